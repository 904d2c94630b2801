-- What workers call: lease, heartbeat, commit, release.

local function admissible(x)
  local m = x.m
  return max(0, min(m[CONCURRENT] - m[RUNNING], m[BOUND] - m[BUFFERED] - m[RUNNING]))
end

-- How many units a call may take: half-done groups first, then what admission leaves for fresh ones. A group that was
-- admitted keeps the places of all its units while they wait; else fresh groups would take the place of a unit that backs
-- off, and once the bound is full of groups that each lack a unit, nothing would move again.
local function room_for(x, n)
  local m = x.m
  local in_hand = min(m[HALF_DONE], n)
  local free = m[BOUND] - m[BUFFERED] - m[RUNNING] - m[HALF_DONE] - m[BACKING_OFF]
  return min(in_hand + max(0, min(n - in_hand, free)), m[CONCURRENT] - m[RUNNING])
end

-- The group that was put first is admitted: its first units are picked, the others wait before all fresh ones.
local function admit(x, name, n, ids, scores)
  local g, order = group(x, name), add(x, ADMITTED, 1)
  g.state = OPEN_GROUP
  keep_group(x, name, g)
  call('ZADD', key(x, 'o'), order, name)
  local rest = {}
  for i = 1, g.size do
    local id, score = name .. '/' .. (i - 1), order * 65536 + i - 1
    if #ids < n then
      ids[#ids + 1], scores[#scores + 1] = id, score
    else
      rest[#rest + 1], rest[#rest + 2] = score, id
    end
  end
  many('ZADD', key(x, 't'), rest)
  add(x, HALF_DONE, #rest / 2)
end

-- The next `n` ids with their scores.
local function pick(x, n)
  local ids, scores = {}, {}
  if x.m[HALF_DONE] > 0 then
    local got = call('ZPOPMIN', key(x, 't'), n)
    for i = 1, #got, 2 do
      ids[#ids + 1], scores[#scores + 1] = got[i], number(got[i + 1])
    end
    add(x, HALF_DONE, -#ids)
  end
  while #ids < n do
    local name = call('ZPOPMIN', key(x, 'q'))[1]
    if not name then
      break
    end
    admit(x, name, n, ids, scores)
  end
  return ids, scores
end

-- Leases units and returns the words of the reply: what the grant has in common, then the groups (name, and what the
-- units ask for), then for each unit its attempt, published tokens, group and place in it, then the journals. One token
-- serves the call: it orders the holders of one unit.
local function grant(x, worker, ids, scores, deadline)
  local m, texts = x.m, fetch(x.prefix .. 'u', ids)
  local epoch, counter, count = m[EPOCH], add(x, FENCE, 1), #ids
  local states, held, told, shown, journals, names = {}, {}, {}, {}, {}, {}
  local start, length, until_then = '', 0, pack('<d', deadline)
  for i = 1, count do
    local id = ids[i]
    if sub(id, 1, length) ~= start or length == 0 then
      local name = group_of(id)
      names[#names + 1], start, length = name, name .. '/', #name + 1
    end
    local _, _, _, attempt, published, _, oldest, returns, failures, _, restart = unpack_struct(UNIT, texts[i])
    local score = scores[i]
    local record =
      pack(UNIT, LEASED, epoch, counter, attempt + 1, published, 0, oldest, returns, failures, score, restart)
    states[2 * i - 1], states[2 * i] = id, record .. worker
    held[2 * i - 1], held[2 * i] = id, until_then
    told[3 * i - 2], told[3 * i - 1], told[3 * i] = pack('<I2', #id), id, sub(record, 1, TOLD)
    shown[i] = pack('<I4I4I2I2', attempt + 1, published, #names - 1, score % 65536)
    if published > 0 then
      add(x, SALVAGED_TOKENS, published)
      add(x, HAND_OVERS, 1)
      journals[#journals + 1] = call('GET', key(x, 'j:') .. id)
    end
  end
  many('HSET', x.prefix .. 'u', states)
  many('HSET', x.prefix .. 'h:' .. worker, held)
  call('ZADD', x.prefix .. 'l', 'LT', deadline, worker)
  m[NEXT_EXPIRY] = min(m[NEXT_EXPIRY], deadline)
  m[RUNNING], m[PENDING] = m[RUNNING] + count, m[PENDING] - count
  event(x, 'leased', worker, '', concat(told))
  local asked = fetch(x.prefix .. 'p', names)
  for i = 1, #names do
    asked[i] = pack('<I2I4', #names[i], #asked[i]) .. names[i] .. asked[i]
  end
  return pack('<I4ddI2I2', epoch, counter, deadline, #names, count) .. concat(asked) .. concat(shown) .. concat(journals)
end

local function drain_mark(x, worker)
  return call('HMGET', key(x, 'w:') .. worker, 'deadline', 'reason', 'gone', 'incarnation')
end

-- args: worker, n, ttl. Replies the control, a line's end, and what was granted, if anything was.
local function lease(keys, args)
  local x = open(keys, args)
  local worker, granted = args[2], ''
  expire_due(x)
  local mark = drain_mark(x, worker)
  if mark[4] and not mark[1] and not mark[3] then
    check_configured(x)
    wake(x)
    local n = room_for(x, number(args[3]))
    if n > 0 then
      local ids, scores = pick(x, n)
      if #ids > 0 then
        granted = grant(x, worker, ids, scores, x.now + args[4])
      end
    end
  end
  local reply = control(x, worker, mark) .. '\n' .. granted
  done(x)
  return reply
end

-- Appends what is new of `data`, which starts at token `start`. False where there is a gap.
local function append(x, id, u, start, count, oldest, data)
  if start > u.published then
    return false
  end
  local skip = u.published - start
  if skip < count then
    call('APPEND', key(x, 'j:') .. id, sub(data, 12 * skip + 1))
    u.published = start + count
    if older(u.oldest, oldest) ~= u.oldest then
      u.oldest = oldest
      age_group(x, group_of(id), oldest)
    end
  end
  return true
end

-- args: worker, ttl, status, then six a beat: unit, fence, start (-1: no progress), count, oldest version, data.
local function heartbeat(keys, args)
  local x = open(keys, args)
  local worker, deadline = args[2], x.now + args[3]
  local until_then = pack('<d', deadline)
  local ids, lost, gone, held, states, grown = {}, {}, {}, {}, {}, {}
  for at = 5, #args, 6 do
    ids[#ids + 1] = args[at]
  end
  local units = units_of(x, ids)
  for i = 1, #ids do
    local at, id, u = 6 * i - 1, ids[i], units[ids[i]]
    local start = number(args[at + 2])
    if not u or u.fence ~= args[at + 1] then
      lost[#lost + 1] = id
    elseif is_dropped(u) then
      gone[id] = true
    elseif u.state ~= LEASED
      or (start >= 0 and not append(x, id, u, start, number(args[at + 3]), number(args[at + 4]), args[at + 5])) then
      lost[#lost + 1] = id
    else
      held[u.owner] = held[u.owner] or {}
      table.insert(held[u.owner], id)
      table.insert(held[u.owner], until_then)
      if start >= 0 then
        states[#states + 1], states[#states + 2] = id, pack_unit(u) .. u.owner
        grown[#grown + 1] = group_of(id)
      end
    end
  end
  for owner, list in pairs(held) do
    many('HSET', key(x, 'h:') .. owner, list)
    call('ZADD', key(x, 'l'), 'LT', deadline, owner)
    x.m[NEXT_EXPIRY] = min(x.m[NEXT_EXPIRY], deadline)
  end
  many('HSET', key(x, 'u'), states)
  drop_too_old(x, grown)
  local mark = drain_mark(x, worker)
  if mark[4] then
    call('HSET', key(x, 'w:') .. worker, 'seen', x.now, 'status', args[4])
  end
  local reply = control(x, worker, mark, lost, gone)
  done(x)
  return reply
end

-- Adds `count` samples, the oldest of version `oldest`, to a group.
local function grow_group(x, name, count, oldest)
  local g = group(x, name)
  g.committed, g.oldest = g.committed + count, older(g.oldest, oldest)
  if g.committed == g.size then
    g.state, g.complete_at = COMPLETE, x.now
    call('ZREM', key(x, 'o'), name)
    call('ZADD', key(x, 'y'), add(x, COMPLETED, 1), name)
  end
  keep_group(x, name, g)
end

local function grow_groups(x, ids, versions, renew)
  local names, counts, oldest = {}, {}, {}
  for i = 1, #ids do
    local name = group_of(ids[i])
    if not counts[name] then
      names[#names + 1] = name
      counts[name], oldest[name] = 0, -1
    end
    counts[name], oldest[name] = counts[name] + 1, older(oldest[name], versions[i])
  end
  for i = 1, #names do
    grow_group(x, names[i], counts[names[i]], oldest[names[i]])
  end
  for i = 1, #renew do
    renew_oldest(x, group_of(renew[i]))
  end
  return names
end

-- Takes a unit that is committed out of wherever it waits, and forgets its journal. Whether its group's oldest version
-- has to be worked out anew.
local function settle(x, id, text, state, published, oldest, version, held)
  if state == LEASED then
    local owner = sub(text, UNIT_BYTES + 1)
    local list = held[owner]
    if list then
      list[#list + 1] = id
    else
      held[owner] = { id }
    end
    add(x, RUNNING, -1)
  else
    unqueue(x, id)
  end
  if published > 0 then
    call('UNLINK', key(x, 'j:') .. id)
    return oldest < version
  end
  return false
end

local HAS_SAMPLE = { [COMMITTED] = true, [CONSUMED] = true, [DROPPED_SAMPLE] = true }

-- Samples of units side by side that came in one call are a run and share a field, that of the first: 2, how many (I2), the
-- bytes of each (I4), then the records. A sample alone, or one that names an object, is its record.
-- The ids of a call's units, and where the units of each run end.
local function units_in(args)
  local ids, ends = {}, {}
  for at = 3, #args, 3 do
    local id, count = args[at], (#args[at + 1] - 12) / 8
    ids[#ids + 1] = id
    if count > 1 then
      local name, index = match(id, '^(.*/)(%d+)$')
      for i = index + 1, index + count - 1 do
        ids[#ids + 1] = name .. i
      end
    end
    ends[#ends + 1] = #ids
  end
  return ids, ends
end

-- The samples of those units of a run that are committed, as the store keeps them.
local function keep_samples(x, samples, ids, outcomes, first, last, sample)
  if first == last then
    if outcomes[first] == 'c' then
      samples[#samples + 1], samples[#samples + 2] = ids[first], sample
      count_object(x, sample, 1)
    else
      not_named(x, sample)
    end
  elseif not concat(outcomes, '', first, last):find('[^c]') then
    samples[#samples + 1], samples[#samples + 2] = ids[first], sample
  else
    local at = 4 + 4 * (last - first + 1)
    for i = first, last do
      local bytes = unpack_struct('<I4', sample, 4 + 4 * (i - first))
      if outcomes[i] == 'c' then
        samples[#samples + 1], samples[#samples + 2] = ids[i], sub(sample, at, at + bytes - 1)
      end
      at = at + bytes
    end
  end
end

-- args: worker, then three a run of units side by side: the first, facts (fence, then tokens and oldest version of each),
-- its samples. Replies one letter a unit.
local function commit(keys, args)
  local x = open(keys, args)
  local current, outcomes = x.m[EPOCH], {}
  local ids, ends = units_in(args)
  local texts, changed = fetch(x.prefix .. 'u', ids), {}
  local states, samples, told, held, renew, new, versions, sum = {}, {}, {}, {}, {}, {}, {}, 0
  local first = 1
  for r = 1, #ends do
    local facts, last = args[3 * r + 1], ends[r]
    local fence = sub(facts, 1, 12)
    for i = first, last do
      local id = ids[i]
      local text = changed[id] or texts[i]
      outcomes[i] = 'r'
      if text and sub(text, 2, 13) == fence then
        local state, epoch, counter, attempt, published, _, oldest, returns, failures, score, restart =
          unpack_struct(UNIT, text)
        if HAS_SAMPLE[state] then
          outcomes[i] = 'a'
        elseif state <= LEASED and epoch == current then
          local tokens, version = unpack_struct('<I4i4', facts, 13 + 8 * (i - first))
          if settle(x, id, text, state, published, oldest, version, held) then
            renew[#renew + 1] = id
          end
          local n = #new + 1
          local record =
            pack(UNIT, COMMITTED, epoch, counter, attempt, 0, tokens, version, returns, failures, score, restart)
          outcomes[i], changed[id], new[n], versions[n], sum = 'c', record, id, version, sum + tokens
          states[2 * n - 1], states[2 * n] = id, record
          told[3 * n - 2], told[3 * n - 1], told[3 * n] = pack('<I2', #id), id, sub(record, 1, TOLD)
        end
      end
    end
    keep_samples(x, samples, ids, outcomes, first, last, args[3 * r + 2])
    first = last + 1
  end
  if #new > 0 then
    many('HSET', x.prefix .. 'u', states)
    many('HSET', x.prefix .. 's', samples)
    for owner, list in pairs(held) do
      many('HDEL', x.prefix .. 'h:' .. owner, list)
    end
    add(x, BUFFERED, #new)
    add(x, COMMITTED_TOKENS, sum)
    call('HINCRBY', x.prefix .. 'w:' .. args[2], 'committed', #new)
    event(x, 'committed', args[2], '', concat(told))
    drop_too_old(x, grow_groups(x, new, versions, renew))
    done(x)
  end
  return concat(outcomes)
end

-- args: worker, then eight a release: unit, fence, reason, start (-1: no progress), count, oldest version, data, error.
-- Replies one digit a release.
local function release(keys, args)
  local x = open(keys, args)
  local ids, answers, list, failed, grown = {}, {}, {}, {}, {}
  for at = 3, #args, 8 do
    ids[#ids + 1] = args[at]
  end
  local units, limit = units_of(x, ids), number(call('HGET', key(x, 'c'), 'unit_failure_limit') or 0)
  for i = 1, #ids do
    local at, id, u = 8 * i - 5, ids[i], units[ids[i]]
    local reason, start = args[at + 2], number(args[at + 3])
    answers[i] = '0'
    if u and u.fence == args[at + 1] and u.state == LEASED then
      answers[i] = '1'
      if start >= 0 then
        append(x, id, u, start, number(args[at + 4]), number(args[at + 5]), args[at + 6])
      end
      if reason == 'unit_failure' then
        u.failures = u.failures + 1
      end
      give_back(x, id, u, reason, list)
      grown[#grown + 1] = group_of(id)
      if reason == 'unit_failure' and u.failures >= limit then
        failed[#failed + 1] = { id, u, args[at + 7] }
      end
    elseif u and u.fence == args[at + 1] and is_dropped(u) then
      answers[i] = '1'
      let_go(x, id, u.owner)
    end
  end
  if #list > 0 then
    event(x, 'released', args[2], '', concat(list))
  end
  if #failed > 0 then
    dead_letter(x, failed)
  end
  drop_too_old(x, grown)
  done(x)
  return concat(answers)
end

local function expire(keys, args)
  local x = open(keys, args)
  local count = expire_due(x)
  done(x)
  return count
end
