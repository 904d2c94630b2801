-- The store, the job's rules and its workers: attach, configure, put, register, drain, release a worker.

local function release_all(x, worker, reason)
  local ids = call('SMEMBERS', key(x, 'h:') .. worker)
  table.sort(ids)
  return give_back_all(x, ids, reason, worker)
end

-- Nobody is to stop on behalf of a worker that is not there any more.
local function forget_abandoned(x, worker)
  if x.m.abandoned > 0 then
    local all = call('HGETALL', key(x, 'a'))
    for i = 1, #all, 2 do
      if all[i + 1] == worker then
        let_go(x, all[i])
      end
    end
  end
end

-- More batches than a copy of the store can miss.
local LOST_BATCHES = 1048576

-- args: run id of the server, a random number. A server that was not seen before voids every lease. It may have been
-- restored from a copy that misses the newest fences and batches, so their numbers start beyond any that were given away:
-- a checkpoint may name batches that the copy does not know.
local function attach(keys, args)
  local x = open(keys, args)
  if call('HGET', key(x, 'm'), 'run_id') ~= args[2] then
    local held = call('ZRANGE', key(x, 'l'), 0, -1)
    give_back_all(x, held, 'superseded', '')
    add(x, 'epoch', 1)
    if x.m.epoch > 1 then
      add(x, 'fence', tonumber(args[3]))
      add(x, 'batches', LOST_BATCHES)
    end
    call('HSET', key(x, 'm'), 'run_id', args[2])
    event(x, 'store_epoch', '', encode({ store_epoch = fmt('%.0f', x.m.epoch) }), '')
    done(x)
  end
  return fmt('%.0f', x.m.epoch)
end

-- args: settings as JSON, what the history says of them, then names and values that the library reads one by one.
local function configure(keys, args)
  local x = open(keys, args)
  if call('HGET', key(x, 'm'), 'settings') == args[2] then
    return
  end
  call('HSET', key(x, 'm'), 'settings', args[2], unpack(args, 4))
  x.m.staleness = tonumber(call('HGET', key(x, 'm'), 'staleness'))
  set(x, 'configured', 1)
  event(x, 'configured', '', args[3], '')
  drop_open_too_old(x)
  done(x)
end

local function nearly_full()
  local memory = call('INFO', 'memory')
  local used, limit = match(memory, 'used_memory:(%d+)'), match(memory, 'maxmemory:(%d+)')
  return limit and tonumber(limit) > 0 and used / limit > 0.8
end

-- args: then a group: name, size, its prompt or '', and per unit: constant numbers, own prompt or ''.
local function put_units(keys, args)
  local x = open(keys, args)
  check_configured(x)
  if nearly_full() then
    fail('REFUSED', 'the store has more than 80 % of maxmemory in use: acknowledge or compact, or give it more memory')
  end
  local at, new, entries = 2, 0, {}
  while args[at] do
    local name, size, common = args[at], tonumber(args[at + 1]), args[at + 2]
    local heads, own = {}, {}
    for i = 1, size do
      heads[i], own[i] = args[at + 1 + 2 * i], args[at + 2 + 2 * i]
    end
    at = at + 3 + 2 * size
    if not known(x, name) then
      entries[#entries + 1] = put_group(x, name, 0, heads, own, common)
      new = new + size
    end
  end
  if new > 0 then
    event(x, 'units_put', '', '', concat(entries))
  end
  done(x)
  return new
end

-- args: worker, identity.
local function register(keys, args)
  local x = open(keys, args)
  local worker = args[2]
  local name = key(x, 'w:') .. worker
  local incarnation = (call('HGET', name, 'incarnation') or 0) + 1
  release_all(x, worker, 'superseded')
  forget_abandoned(x, worker)
  call('HDEL', name, 'deadline', 'reason', 'epoch', 'gone', 'status')
  call('HSET', name, 'incarnation', incarnation, 'identity', args[3], 'registered', x.stamp, 'seen', x.stamp,
    'committed', 0)
  call('ZADD', key(x, 'f'), '+inf', worker)
  event(x, 'worker_registered', worker, encode({ incarnation = incarnation }), '')
  done(x)
  return incarnation
end

local function check_controller(x, epoch)
  load(x, 'controller_epoch')
  if tonumber(epoch) < x.m.controller_epoch then
    fail('STALEEPOCH', fmt('leader epoch %s, but %.0f has been seen', epoch, x.m.controller_epoch))
  end
  set(x, 'controller_epoch', tonumber(epoch))
end

-- args: worker, deadline, reason, epoch.
local function drain(keys, args)
  local x = open(keys, args)
  check_controller(x, args[5])
  local mark = drain_mark(x, args[2])
  local live = mark[4] and not mark[3]
  if live and (not mark[1] or tonumber(args[3]) < tonumber(mark[1])) then
    call('HSET', key(x, 'w:') .. args[2], 'deadline', args[3], 'reason', args[4], 'epoch', args[5])
    event(x, 'worker_drained', args[2], encode({ deadline_s = args[3], reason = args[4], epoch = args[5] }), '')
  end
  done(x)
  return live and 1 or 0
end

-- args: worker, epoch.
local function undrain(keys, args)
  local x = open(keys, args)
  check_controller(x, args[3])
  local mark = drain_mark(x, args[2])
  if mark[1] then
    call('HDEL', key(x, 'w:') .. args[2], 'deadline', 'reason', 'epoch')
    event(x, 'worker_drained', args[2], encode({ epoch = args[3] }), '')
  end
  done(x)
  return mark[1] and 1 or 0
end

-- args: worker, reason, epoch or ''.
local function release_worker(keys, args)
  local x = open(keys, args)
  local worker = args[2]
  if args[4] ~= '' then
    check_controller(x, args[4])
  end
  local mark, count = drain_mark(x, worker), 0
  if mark[4] and not mark[3] then
    count = release_all(x, worker, args[3])
    forget_abandoned(x, worker)
    call('HSET', key(x, 'w:') .. worker, 'gone', x.stamp, 'seen', x.stamp)
    call('ZADD', key(x, 'f'), x.stamp, worker)
    event(x, 'worker_gone', worker, encode({ reason = args[3] }), '')
  end
  done(x)
  return count
end
