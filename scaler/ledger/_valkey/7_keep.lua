-- Readings, and what keeps the store small.

local KEPT_S = 3600

local function stats(keys, args)
  local x = open(keys, args)
  local m = x.m
  local oldest = call('ZRANGE', key(x, 'y'), 0, 0)[1]
  local reading = {
    now = fmt('%.6f', x.now), epoch = m[EPOCH], version = m[VERSION] - 1, pending = m[PENDING],
    backing_off = call('ZCOUNT', key(x, 'k'), '(' .. fmt('%.6f', x.now), '+inf'), running = m[RUNNING],
    buffered = m[BUFFERED], ready = call('ZCARD', key(x, 'y')), admissible = admissible(x), consumed = m[TAKEN],
    accepted = m[ACCEPTED], dead_lettered = m[DEAD_LETTERED], committed_tokens = m[COMMITTED_TOKENS],
    salvaged_tokens = m[SALVAGED_TOKENS], discarded_tokens = m[DISCARDED_TOKENS], hand_overs = m[HAND_OVERS],
    trainer_epoch = m[TRAINER_EPOCH], oldest_ready = oldest and fmt('%.6f', group(x, oldest).complete_at) or nil,
  }
  return { encode(reading), call('HGETALL', key(x, 'c')), call('HGETALL', key(x, 'd')) }
end

-- Live workers, and those that went within the last hour: fields, and how many units each holds. One text: a client takes
-- several times longer to read tens of thousands of small replies.
local function workers(keys, args)
  local x = open(keys, args)
  local names, reply, in_vain = call('ZRANGEBYSCORE', key(x, 'f'), x.now - KEPT_S, '+inf'), {}, {}
  local told = x.m[ABANDONED] > 0 and call('HGETALL', key(x, 'a')) or {}
  for i = 2, #told, 2 do
    in_vain[told[i]] = (in_vain[told[i]] or 0) + 1
  end
  for i = 1, #names do
    local held = call('HLEN', key(x, 'h:') .. names[i]) - (in_vain[names[i]] or 0)
    reply[i] = { call('HGETALL', key(x, 'w:') .. names[i]), held }
  end
  return encode(reply)
end

local compact

do
  -- Units that are forgotten are nobody's any more, told or not: a lease without a record could not end.
  local function let_all_go(x, ids)
    local owners = x.m[ABANDONED] > 0 and fetch(key(x, 'a'), ids) or {}
    for i = 1, #ids do
      if owners[i] then
        let_go(x, ids[i], owners[i])
      end
    end
  end

  -- A group whose end is compacted away: of it stays only that its id was used.
  local function forget_group(x, name)
    local g = group(x, name)
    if not g then
      return 0
    end
    local ids = members(name, g.size)
    let_all_go(x, ids)
    many('HDEL', key(x, 'u'), ids)
    call('HDEL', key(x, 'g'), name)
    local group_id, epoch = match(name, '^(.*)%.(%d+)$')
    local known = call('HGET', key(x, 'v'), group_id)
    if not known or known + 0 < epoch + 0 then
      call('HSET', key(x, 'v'), group_id, epoch)
    end
    return g.size
  end

  -- The groups that an event ended: its entries are each a length, a name, and `tail` bytes.
  local function forget_groups(x, text, tail)
    local _, head, worker, data = text:find('^[^\n]* (%d+) (%d+)\n')
    local units, at = 0, head + worker + data + 1
    while at <= #text do
      local length = unpack_struct('<I2', text, at)
      units = units + forget_group(x, sub(text, at + 2, at + 1 + length))
      at = at + 2 + length + tail
    end
    return units
  end

  local function forget_workers(x)
    local names = call('ZRANGEBYSCORE', key(x, 'f'), '-inf', x.now - 24 * KEPT_S)
    for i = 1, #names do
      call('UNLINK', key(x, 'w:') .. names[i])
      call('ZREM', key(x, 'f'), names[i])
    end
  end

  local ENDS_GROUPS = { batch_acked = 0, group_dropped = 9 }

  -- args: how many events at most. Replies how many events went; fewer than asked for when all is as small as the
  -- settings say, and only then is it told in the history. And some objects that no record names any more.
  function compact(keys, args)
    local x = open(keys, args)
    local m, most = x.m, number(args[2])
    forget_workers(x)
    local kept = number(call('HGET', key(x, 'c'), 'history_events') or NEVER)
    local through = max(m[SEQ] - kept, m[COMPACTING])
    local old = call('XRANGE', key(x, 'x'), '-', fmt('%.0f-0', through), 'COUNT', most)
    for i = 1, #old do
      local text = old[i][2][2]
      local tail = ENDS_GROUPS[match(text, '^[^ ]+')]
      if tail then
        add(x, FORGOTTEN, forget_groups(x, text, tail))
      end
    end
    if #old > 0 then
      m[COMPACTING] = number(match(old[#old][1], '^%d+'))
      call('XTRIM', key(x, 'x'), 'MINID', fmt('%.0f-0', m[COMPACTING] + 1))
    end
    if #old < most and m[COMPACTING] > 0 then
      local data = { through_seq = fmt('%.0f', m[COMPACTING]), units_final = fmt('%.0f', m[FORGOTTEN]) }
      event(x, 'compacted', '', encode(data), '')
      m[COMPACTING], m[FORGOTTEN] = 0, 0
    end
    done(x)
    return { #old, call('ZRANGE', key(x, 'z'), 0, 99) }
  end
end

-- args: objects that were deleted. Replies those that a record names again.
local function objects_deleted(keys, args)
  local x = open(keys, args)
  local wanted = {}
  for i = 2, #args do
    if call('ZREM', key(x, 'z'), args[i]) == 0 then
      wanted[#wanted + 1] = args[i]
    end
  end
  return wanted
end

-- Flags. What brings work in is refused where memory is full; what ends it, or orders its end, is not.
local READS, NEEDS, ENDS = { 'no-writes' }, {}, { 'allow-oom' }

local FUNCTIONS = {
  { 'attach', attach, ENDS }, { 'configure', configure, NEEDS }, { 'put_units', put_units, NEEDS },
  { 'register', register, ENDS }, { 'drain', drain, ENDS }, { 'undrain', undrain, ENDS },
  { 'release_worker', release_worker, ENDS }, { 'lease', lease, NEEDS }, { 'heartbeat', heartbeat, NEEDS },
  { 'commit', commit, NEEDS }, { 'release', release, ENDS }, { 'expire', expire, ENDS },
  { 'attach_trainer', attach_trainer, ENDS }, { 'take_batch', take_batch, ENDS }, { 'take_more', take_more, ENDS },
  { 'ack_batch', ack_batch, ENDS }, { 'publish', publish, ENDS }, { 'report', report, ENDS },
  { 'stats', stats, READS }, { 'workers', workers, READS }, { 'compact', compact, ENDS },
  { 'objects_deleted', objects_deleted, ENDS },
}

for i = 1, #FUNCTIONS do
  local f = FUNCTIONS[i]
  redis.register_function({ function_name = PREFIX .. f[1], callback = f[2], flags = f[3] })
end
