-- What the trainer calls: attach, take and change batches, acknowledge, publish, report.

local function check_trainer(x, epoch)
  if number(epoch) ~= x.m[TRAINER_EPOCH] then
    fail('STALEEPOCH', fmt('trainer epoch %s: %.0f has taken over', epoch, x.m[TRAINER_EPOCH]))
  end
end

-- args: owner.
local function attach_trainer(keys, args)
  local x = open(keys, args)
  local epoch = fmt('%.0f', add(x, TRAINER_EPOCH, 1))
  event(x, 'trainer_attached', '', encode({ trainer_epoch = epoch, owner = args[2] }), '')
  done(x)
  return epoch
end

-- A batch as a reply: a header, then bodies. The header has for each group its name, which body has what its units ask
-- for, the attempts of each unit, and which bodies are its samples.
local function show_batch(x, id, names, redelivered)
  local header, bodies = { batch = id, redelivered = redelivered, groups = {} }, { '' }
  local function place(body)
    bodies[#bodies + 1] = body
    return #bodies - 1
  end
  for i = 1, #names do
    local name = names[i]
    local asked, attempts, shown = place(call('HGET', key(x, 'p'), name)), {}, {}
    local ids = members(name, group(x, name).size)
    local units, samples = units_of(x, ids), fetch(key(x, 's'), ids)
    for n = 1, #ids do
      attempts[n] = units[ids[n]].attempt
      shown[#shown + 1] = samples[n] and place(samples[n]) or nil
    end
    header.groups[i] = { name, asked, attempts, shown }
  end
  bodies[1] = encode(header)
  return bodies
end

-- Complete groups in the order they were completed; those too old for the trainer, or for the job, are dropped or drawn
-- again.
local function usable(x, version, wanted_staleness)
  local names, staleness = {}, min(wanted_staleness, x.m[STALENESS])
  for _, name in ipairs(call('ZRANGE', key(x, 'y'), 0, -1)) do
    local g = group(x, name)
    if version - g.oldest > staleness then
      drop_stale(x, name, g)
    else
      names[#names + 1] = name
    end
  end
  return names
end

-- Moves the first `count` of these complete groups to the end of a batch.
local function claim(x, batch, names, count)
  for i = 1, count do
    local g = group(x, names[i])
    g.state = IN_BATCH
    keep_group(x, names[i], g)
    call('ZREM', key(x, 'y'), names[i])
    add(x, TAKEN, g.size)
    table.insert(batch.names, names[i])
  end
end

local function subjects(names)
  local entries = {}
  for i = 1, #names do
    entry(entries, names[i], '')
  end
  return concat(entries)
end

-- A batch that is open: its groups, how many are wanted, and what it was taken with.
local function batch_of(x, id)
  return call('ZSCORE', key(x, 'n'), id) and cjson.decode(call('HGET', key(x, 'b'), id)) or nil
end

local function record_batch(x, id, batch, epoch)
  call('HSET', key(x, 'b'), id, encode(batch))
  local data = encode({ batch = id, trainer_epoch = epoch, trainer_version = batch.version })
  event(x, 'batch_taken', '', data, subjects(batch.names))
end

-- args: trainer epoch, groups, trainer version, max staleness.
local function take_batch(keys, args)
  local x = open(keys, args)
  check_trainer(x, args[2])
  local waiting = call('ZRANGE', key(x, 'n'), 0, 0)[1]
  if waiting then
    done(x)
    return show_batch(x, waiting, batch_of(x, waiting).names, true)
  end
  local wanted, reply = number(args[3]), false
  local ready = usable(x, number(args[4]), number(args[5]))
  if #ready >= wanted then
    local id, batch = fmt('%.0f', add(x, BATCHES, 1)), { names = {}, wanted = wanted, version = args[4], staleness = args[5] }
    claim(x, batch, ready, wanted)
    call('ZADD', key(x, 'n'), id, id)
    record_batch(x, id, batch, args[2])
    reply = show_batch(x, id, batch.names, false)
  end
  done(x)
  return reply
end

-- Drops the groups of a batch whose ids are in `reject`. Returns how many.
local function filter(x, batch, reject)
  local kept = {}
  for _, name in ipairs(batch.names) do
    if reject[match(name, '^(.*)%.%d+$')] then
      drop_group(x, name, group(x, name), FILTERED, false)
    else
      kept[#kept + 1] = name
    end
  end
  local rejected = #batch.names - #kept
  batch.names = kept
  return rejected
end

-- args: trainer epoch, batch, ids to reject.
local function take_more(keys, args)
  local x = open(keys, args)
  check_trainer(x, args[2])
  local id, reject, reply = args[3], {}, false
  for i = 4, #args do
    reject[args[i]] = true
  end
  local batch = batch_of(x, id)
  if batch then
    local rejected = filter(x, batch, reject)
    local missing, ready = batch.wanted - #batch.names, usable(x, number(batch.version), number(batch.staleness))
    local full = #ready >= missing
    if full then
      claim(x, batch, ready, missing)
    end
    if rejected > 0 or (full and missing > 0) then
      record_batch(x, id, batch, args[2])
    end
    reply = full and show_batch(x, id, batch.names, false)
  end
  done(x)
  return reply
end

local function consume(x, name)
  local g = group(x, name)
  local ids, states = members(name, g.size), {}
  local units = units_of(x, ids)
  for i = 1, #ids do
    local u = units[ids[i]]
    u.state = CONSUMED
    states[2 * i - 1], states[2 * i] = ids[i], pack_unit(u)
  end
  many('HSET', key(x, 'u'), states)
  forget_samples(x, ids)
  forget_asked(x, name)
  g.state = FINISHED
  keep_group(x, name, g)
  add(x, BUFFERED, -g.size)
  add(x, ACCEPTED, g.size)
end

-- args: trainer epoch, batches. Replies how many were new.
local function ack_batch(keys, args)
  local x = open(keys, args)
  check_trainer(x, args[2])
  local count = 0
  for i = 3, #args do
    local batch = batch_of(x, args[i])
    if batch then
      local names = batch.names
      for n = 1, #names do
        consume(x, names[n])
      end
      call('ZREM', key(x, 'n'), args[i])
      call('HDEL', key(x, 'b'), args[i])
      event(x, 'batch_acked', '', encode({ batch = args[i], trainer_epoch = args[2] }), subjects(names))
      count = count + 1
    end
  end
  done(x)
  return count
end

-- args: trainer epoch, step, digest.
local function publish(keys, args)
  local x = open(keys, args)
  check_trainer(x, args[2])
  local m, version = x.m, number(args[3]) + 1
  if m[VERSION_EPOCH] == m[TRAINER_EPOCH] then
    if version < m[VERSION] then
      fail('BADVALUE', fmt('version %s after %.0f in the same trainer epoch', args[3], m[VERSION] - 1))
    elseif version == m[VERSION] and call('HGET', key(x, 'c'), 'digest') == args[4] then
      done(x)
      return
    end
  end
  call('HSET', key(x, 'c'), 'digest', args[4])
  m[VERSION], m[VERSION_EPOCH] = version, m[TRAINER_EPOCH]
  event(x, 'published', '', encode({ step = args[3], digest = args[4], trainer_epoch = args[2] }), '')
  drop_open_too_old(x)
  done(x)
end

-- args: trainer epoch, report.
local function report(keys, args)
  local x = open(keys, args)
  check_trainer(x, args[2])
  call('HSET', key(x, 'c'), 'trainer', args[3], 'trainer_at', x.now)
end
