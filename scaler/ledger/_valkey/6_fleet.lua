-- The store, the job's rules and its workers: attach, configure, put, register, drain, release a worker.

local function held_by(x, worker)
  local ids = call('HKEYS', key(x, 'h:') .. worker)
  table.sort(ids)
  return ids
end

local function release_all(x, worker, reason)
  local count = give_back_all(x, held_by(x, worker), reason, worker)
  call('ZREM', key(x, 'l'), worker)
  return count
end

-- More batches than a copy of the store can miss.
local LOST_BATCHES = 1048576

-- args: run id of the server, a random number. A server that was not seen before voids every lease. It may have been
-- restored from a copy that misses the newest fences and batches, so their numbers start beyond any that were given away:
-- a checkpoint may name batches that the copy does not know.
local function attach(keys, args)
  local x = open(keys, args)
  if call('GET', key(x, 'r')) ~= args[2] then
    local held = {}
    for _, worker in ipairs(call('ZRANGE', key(x, 'l'), 0, -1)) do
      for _, id in ipairs(held_by(x, worker)) do
        held[#held + 1] = id
      end
    end
    give_back_all(x, held, 'superseded', '')
    call('DEL', key(x, 'l'))
    x.m[NEXT_EXPIRY] = NEVER
    if add(x, EPOCH, 1) > 1 then
      add(x, FENCE, number(args[3]))
      add(x, BATCHES, LOST_BATCHES)
    end
    call('SET', key(x, 'r'), args[2])
    event(x, 'store_epoch', '', encode({ store_epoch = fmt('%.0f', x.m[EPOCH]) }), '')
    done(x)
  end
  return fmt('%.0f', x.m[EPOCH])
end

-- args: settings as JSON, what the history says of them, bound of admission, most units at once, staleness, then names
-- and values that are read one by one.
local function configure(keys, args)
  local x = open(keys, args)
  local m = x.m
  if call('HGET', key(x, 'c'), 'settings') == args[2] then
    done(x)
    return
  end
  call('HSET', key(x, 'c'), 'settings', args[2], unpack(args, 7))
  m[CONFIGURED], m[BOUND], m[CONCURRENT], m[STALENESS] = 1, number(args[4]), number(args[5]), number(args[6])
  event(x, 'configured', '', args[3], '')
  drop_open_too_old(x)
  done(x)
end

local function nearly_full()
  local memory = call('INFO', 'memory')
  local used, limit = match(memory, 'used_memory:(%d+)'), match(memory, 'maxmemory:(%d+)')
  return limit and number(limit) > 0 and used / limit > 0.8
end

-- args: then three a group: name, a digit a unit (1: starts anew when it comes back), what its units ask for.
local function put_units(keys, args)
  local x = open(keys, args)
  check_configured(x)
  if nearly_full() then
    fail('REFUSED', 'the store has more than 80 % of maxmemory in use: acknowledge or compact, or give it more memory')
  end
  local new, entries = 0, {}
  for at = 2, #args, 3 do
    local name, restarts = args[at], args[at + 1]
    if not known(x, name) then
      entries[#entries + 1] = put_group(x, name, restarts, args[at + 2], 0, 0)
      new = new + #restarts
    else
      not_named(x, args[at + 2])
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
  call('HDEL', name, 'deadline', 'reason', 'epoch', 'gone', 'status')
  call('HSET', name, 'incarnation', incarnation, 'identity', args[3], 'registered', x.now, 'seen', x.now,
    'committed', 0)
  call('ZADD', key(x, 'f'), '+inf', worker)
  event(x, 'worker_registered', worker, encode({ incarnation = incarnation }), '')
  done(x)
  return incarnation
end

local function check_controller(x, epoch)
  if number(epoch) < x.m[CONTROLLER_EPOCH] then
    fail('STALEEPOCH', fmt('controller epoch %s: %.0f has taken over', epoch, x.m[CONTROLLER_EPOCH]))
  end
  x.m[CONTROLLER_EPOCH] = number(epoch)
end

-- args: worker, deadline, reason, epoch.
local function drain(keys, args)
  local x = open(keys, args)
  check_controller(x, args[5])
  local mark = drain_mark(x, args[2])
  local live = mark[4] and not mark[3]
  if live and (not mark[1] or number(args[3]) < number(mark[1])) then
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
    call('HSET', key(x, 'w:') .. worker, 'gone', x.now, 'seen', x.now)
    call('ZADD', key(x, 'f'), x.now, worker)
    event(x, 'worker_gone', worker, encode({ reason = args[3] }), '')
  end
  done(x)
  return count
end
