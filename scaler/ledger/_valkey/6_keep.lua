-- Readings, and what keeps the store small.

local KEPT_S = 3600

local function stats(keys, args)
  local x = open(keys, args)
  local m, drops = call('HGETALL', key(x, 'm')), call('HGETALL', key(x, 'd'))
  local oldest = call('ZRANGE', key(x, 'y'), 0, 0)[1]
  local reading = {
    now = x.stamp, backing_off = call('ZCOUNT', key(x, 'k'), '(' .. x.stamp, '+inf'),
    ready = call('ZCARD', key(x, 'y')), admissible = admissible(x),
    oldest_ready = oldest and group(x, oldest).complete_at or nil,
  }
  return { encode(reading), m, drops }
end

-- Live workers, and those that went within the last hour: fields, and how many units each holds.
local function workers(keys, args)
  local x = open(keys, args)
  local names = call('ZRANGEBYSCORE', key(x, 'f'), x.now - KEPT_S, '+inf')
  local reply = {}
  for i = 1, #names do
    reply[i] = { call('HGETALL', key(x, 'w:') .. names[i]), call('SCARD', key(x, 'h:') .. names[i]) }
  end
  return reply
end

-- A group whose end is compacted away: of it stays only that its id was used.
local function forget_group(x, name)
  local g = group(x, name)
  if not g then
    return 0
  end
  many('HDEL', key(x, 'u'), members(name, g.size))
  call('HDEL', key(x, 'g'), name)
  local group_id, epoch = match(name, '^(.*)%.(%d+)$')
  local known = call('HGET', key(x, 'v'), group_id)
  if not known or known + 0 < epoch + 0 then
    call('HSET', key(x, 'v'), group_id, epoch)
  end
  return g.size
end

local function forget_groups(x, entries)
  local units, at = 0, 1
  while at <= #entries do
    local _, stop, length = entries:find('^(%d+) ', at)
    units = units + forget_group(x, entries:sub(stop + 1, stop + length))
    at = entries:find('\n', stop + 1 + length, true) + 1
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

local function record_compaction(x)
  local data = { through_seq = fmt('%.0f', x.m.compacting), units_final = fmt('%.0f', x.m.forgotten) }
  event(x, 'compacted', '', encode(data), '')
  set(x, 'forgotten', 0)
  set(x, 'compacting', 0)
end

-- args: how many events at most. Replies how many events went; fewer than asked for when all is as small as the
-- settings say, and only then is it told in the history.
local function compact(keys, args)
  local x = open(keys, args)
  forget_workers(x)
  load(x, 'history_events', 'forgotten', 'compacting')
  local most = tonumber(args[2])
  local through = math.max(x.m.seq - x.m.history_events, x.m.compacting)
  local old = call('XRANGE', key(x, 'x'), '-', fmt('%.0f-0', through), 'COUNT', most)
  for i = 1, #old do
    local fields = old[i][2]
    if fields[2] == 'batch_acked' or fields[2] == 'group_dropped' then
      add(x, 'forgotten', forget_groups(x, fields[10]))
    end
  end
  if #old > 0 then
    set(x, 'compacting', tonumber(match(old[#old][1], '^%d+')))
    call('XTRIM', key(x, 'x'), 'MINID', fmt('%.0f-0', x.m.compacting + 1))
  end
  if #old < most and x.m.compacting > 0 then
    record_compaction(x)
  end
  done(x)
  return { #old, call('ZRANGE', key(x, 'z'), 0, 99) }
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
