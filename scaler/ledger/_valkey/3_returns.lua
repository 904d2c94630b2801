-- How a lease ends without a sample: given back, run out, void; and what follows for the unit and its group.

local RETURNS = {
  drain = 1, infrastructure = 2, unit_failure = 3, abandoned = 4, worker_lost = 5, expired = 6, superseded = 7,
}

local function back_off(x, returns)
  local s = call('HMGET', key(x, 'c'), 'backoff_initial_s', 'backoff_max_s')
  return min(number(s[2]), s[1] * 2 ^ min(returns - 1, 60))
end

-- Units that failed for good, as { group, place, error } each: their groups cannot be completed.
local function dead_letter(x, failed)
  local entries = {}
  for i = 1, #failed do
    local g, place, why = unpack_list(failed[i])
    local u, id = unit(g, place), id_of(g, place)
    stop_waiting(x, g, place, u)
    discard(x, u.published)
    forget_journal(x, id, u)
    call('RPUSH', key(x, 'e'), encode({ id, u.failures, why }))
    u.state = FAILED
    changed(x, g)
    entry(entries, id, pack('<I4', u.failures))
  end
  add(x, DEAD_LETTERED, #failed)
  event(x, 'dead_lettered', '', '', concat(entries))
  local limit = number(call('HGET', key(x, 'c'), 'group_redraw_limit'))
  for i = 1, #failed do
    local g = failed[i][1]
    if g.state ~= GONE then
      drop_group(x, g, DEAD_LETTER, g.redraws < limit)
    end
  end
end

-- The unit waits among its group's, which has been admitted.
local function wait_again(x, g, u)
  u.state = PENDING_UNIT
  call('ZADD', key(x, 't'), g.order, g.name)
  add(x, HALF_DONE, 1)
  changed(x, g)
end

-- The unit waits, after its place failed, for longer each time.
local function wait_longer(x, g, id, u)
  u.state, u.returns = BACKS_OFF, u.returns + 1
  local due = x.now + back_off(x, u.returns)
  call('ZADD', key(x, 'k'), due, id)
  add(x, BACKING_OFF, 1)
  x.m[NEXT_DUE] = min(x.m[NEXT_DUE], due)
  changed(x, g)
end

-- A leased unit goes back, with its progress as its Resume says; tells it in `list`, and in `aged` a group that lost a
-- journal.
local function give_back(x, g, place, u, reason, list, aged)
  local id, published = id_of(g, place), u.published
  local restart = u.restart and published > 0
  leave(x, u.owner, g, 1)
  u.owner = 0
  if restart then
    discard(x, published)
    forget_journal(x, id, u)
  end
  if reason == 'infrastructure' or reason == 'unit_failure' then
    wait_longer(x, g, id, u)
  else
    u.returns = 0
    wait_again(x, g, u)
  end
  add(x, RUNNING, -1)
  add(x, PENDING, 1)
  entry(list, id, lease_of(u) .. pack('<I4BI4', u.published, RETURNS[reason], published))
  if restart then
    aged[g] = true
  end
end

-- Once a call, not for each unit that started anew: it looks at all units of a group.
local function renew_all(x, aged)
  for g in pairs(aged) do
    renew_oldest(x, g)
  end
end

-- Units that are leased, or dropped and not let go of, as { group, place } each. Returns how many leases that ended.
local function give_back_all(x, held, reason, worker)
  local list, aged = {}, {}
  for i = 1, #held do
    local g, place = held[i][1], held[i][2]
    local u = unit(g, place)
    if u.state == LEASED then
      give_back(x, g, place, u, reason, list, aged)
    else
      let_go(x, g, place, u)
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

-- The groups of which these workers, by number, hold units, each once, in order.
local function groups_held(x, workers)
  local names, seen = {}, {}
  for i = 1, #workers do
    for _, name in ipairs(call('HKEYS', key(x, 'h:') .. workers[i])) do
      if not seen[name] then
        seen[name], names[#names + 1] = true, name
      end
    end
  end
  table.sort(names)
  return names
end

-- The units that these workers, by number, hold and that run out by `until_then`, as { group, place } each, in the order of
-- their groups and places; and by number when the next one does. A group is gone through once, whoever holds of it.
local function held_by(x, workers, until_then)
  local names, list, next = groups_held(x, workers), {}, {}
  for i = 1, #workers do
    next[number(workers[i])] = NEVER
  end
  for i = 1, #names do
    local g = group(x, names[i])
    settle(g)
    for place = 0, g.size - 1 do
      local deadline, holder = unpack_struct('<dI4', g.text, HEAD_BYTES + 10 * g.size + ROW_BYTES * place + 29)
      if next[holder] and deadline <= until_then then
        list[#list + 1] = { g, place }
      elseif next[holder] then
        next[holder] = min(next[holder], deadline)
      end
    end
  end
  return list, next
end

-- Gives back what has run out. Costs a comparison while nothing can have.
local function expire_due(x)
  if x.m[NEXT_EXPIRY] > x.now then
    return 0
  end
  local workers = call('ZRANGEBYSCORE', key(x, 'l'), '-inf', x.now)
  local due, next = held_by(x, workers, x.now)
  for i = 1, #workers do
    local then_s = next[number(workers[i])]
    if then_s < NEVER then
      call('ZADD', key(x, 'l'), then_s, workers[i])
    else
      call('ZREM', key(x, 'l'), workers[i])
    end
  end
  x.m[NEXT_EXPIRY] = earliest(key(x, 'l')) or NEVER
  return give_back_all(x, due, 'expired', '')
end

-- The group and the place of a unit that the store itself named.
local function find_unit(x, id)
  local name, place = match(id, '^(.*)/(%d+)$')
  return group(x, name), number(place)
end

-- Units whose back-off is over go back to their place in the queue.
local function wake(x)
  if x.m[NEXT_DUE] > x.now then
    return
  end
  local due = call('ZRANGEBYSCORE', key(x, 'k'), '-inf', x.now)
  for i = 1, #due do
    local g, place = find_unit(x, due[i])
    wait_again(x, g, unit(g, place))
  end
  many('ZREM', key(x, 'k'), due)
  add(x, BACKING_OFF, -#due)
  x.m[NEXT_DUE] = earliest(key(x, 'k')) or NEVER
end
