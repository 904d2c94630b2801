-- How a lease ends without a sample: given back, run out, void; and what follows for the unit and its group.

local RETURNS = {
  drain = 1, infrastructure = 2, unit_failure = 3, abandoned = 4, worker_lost = 5, expired = 6, superseded = 7,
}

local function back_off(x, returns)
  local s = call('HMGET', key(x, 'c'), 'backoff_initial_s', 'backoff_max_s')
  return min(number(s[2]), s[1] * 2 ^ min(returns - 1, 60))
end

-- Units that failed for good, as { id, unit, error } each: their groups cannot be completed.
local function dead_letter(x, failed)
  local entries, names = {}, {}
  for i = 1, #failed do
    local id, u, why = unpack_list(failed[i])
    unqueue(x, id)
    discard(x, u.published)
    forget_journal(x, id, u)
    call('RPUSH', key(x, 'e'), encode({ id, u.failures, why }))
    u.state = FAILED
    set_unit(x, id, u)
    entry(entries, id, pack('<I4', u.failures))
    names[i] = group_of(id)
  end
  add(x, DEAD_LETTERED, #failed)
  event(x, 'dead_lettered', '', '', concat(entries))
  local limit = number(call('HGET', key(x, 'c'), 'group_redraw_limit'))
  for i = 1, #names do
    local g = group(x, names[i])
    if g.state ~= GONE then
      drop_group(x, names[i], g, DEAD_LETTER, g.redraws < limit)
    end
  end
end

-- A leased unit goes back, with its progress as its Resume says; tells it in `list`, and in `aged` the name of a group that
-- lost a journal.
local function give_back(x, id, u, reason, list, aged)
  local published = u.published
  local restart = u.restart == 1 and published > 0
  call('HDEL', key(x, 'h:') .. u.owner, id)
  if restart then
    discard(x, published)
    forget_journal(x, id, u)
  end
  u.state = PENDING_UNIT
  if reason == 'infrastructure' or reason == 'unit_failure' then
    u.returns = u.returns + 1
    local due = x.now + back_off(x, u.returns)
    call('ZADD', key(x, 'k'), due, id)
    add(x, BACKING_OFF, 1)
    x.m[NEXT_DUE] = min(x.m[NEXT_DUE], due)
  else
    u.returns = 0
    call('ZADD', key(x, 't'), u.score, id)
    add(x, HALF_DONE, 1)
  end
  add(x, RUNNING, -1)
  add(x, PENDING, 1)
  local record = pack_unit(u)
  call('HSET', key(x, 'u'), id, record .. u.owner)
  entry(list, id, sub(record, 1, TOLD) .. pack('<BI4', RETURNS[reason], published))
  if restart then
    aged[group_of(id)] = true
  end
end

-- Once a call, not for each unit that starts anew: it reads all units of a group.
local function renew_all(x, aged)
  for name in pairs(aged) do
    renew_oldest(x, name)
  end
end

-- Units that are leased, or dropped and not let go of. Returns how many leases that ended.
local function give_back_all(x, ids, reason, worker)
  local units, list, aged = units_of(x, ids), {}, {}
  for i = 1, #ids do
    local u = units[ids[i]]
    if u.state == LEASED then
      give_back(x, ids[i], u, reason, list, aged)
    else
      let_go(x, ids[i], u.owner)
    end
  end
  renew_all(x, aged)
  if #list > 0 then
    event(x, 'released', worker, '', concat(list))
  end
  return #list
end

local function earliest(name)
  local first = call('ZRANGE', name, 0, 0, 'WITHSCORES')
  return first[2] and number(first[2])
end

-- Of the units that a worker holds: those that have run out, in the order of their ids, and when the next one does.
local function run_out(x, worker)
  local held, due, next = call('HGETALL', key(x, 'h:') .. worker), {}, NEVER
  for i = 1, #held, 2 do
    local deadline = unpack_struct('<d', held[i + 1])
    if deadline <= x.now then
      due[#due + 1] = held[i]
    else
      next = min(next, deadline)
    end
  end
  table.sort(due)
  return due, next
end

-- Gives back what has run out. Costs a comparison while nothing can have.
local function expire_due(x)
  if x.m[NEXT_EXPIRY] > x.now then
    return 0
  end
  local ids = {}
  for _, worker in ipairs(call('ZRANGEBYSCORE', key(x, 'l'), '-inf', x.now)) do
    local due, next = run_out(x, worker)
    for i = 1, #due do
      ids[#ids + 1] = due[i]
    end
    if next < NEVER then
      call('ZADD', key(x, 'l'), next, worker)
    else
      call('ZREM', key(x, 'l'), worker)
    end
  end
  x.m[NEXT_EXPIRY] = earliest(key(x, 'l')) or NEVER
  return give_back_all(x, ids, 'expired', '')
end

-- Units whose back-off is over go back to their place in the queue.
local function wake(x)
  if x.m[NEXT_DUE] > x.now then
    return
  end
  local due = call('ZRANGEBYSCORE', key(x, 'k'), '-inf', x.now)
  local units, back = units_of(x, due), {}
  for i = 1, #due do
    back[2 * i - 1], back[2 * i] = units[due[i]].score, due[i]
  end
  many('ZADD', key(x, 't'), back)
  many('ZREM', key(x, 'k'), due)
  add(x, HALF_DONE, #due)
  add(x, BACKING_OFF, -#due)
  x.m[NEXT_DUE] = earliest(key(x, 'k')) or NEVER
end
