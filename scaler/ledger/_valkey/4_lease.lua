-- What workers call for work: lease.

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

local grant

do
  -- What is the same for all units of a grant: who gets them (number), the row of one that nobody had yet; then how many
  -- there are, the names of their groups, and what is told and shown of each run of units that are alike: units side by
  -- side in a group. `opened`, `held`: words about groups that are admitted now, for the sets that list them.
  local function new_grant(x, owner, deadline)
    local epoch, counter = x.m[EPOCH], add(x, FENCE, 1)
    local row = pack(ROW, epoch, counter, 1, 0, 0, 0, deadline, owner)
    return {
      owner = owner, deadline = deadline, epoch = epoch, counter = counter, row = row, lease = sub(row, 1, LEASE_BYTES),
      count = 0, runs = 0, names = {}, told = {}, shown = {}, opened = nil, held = nil, journals = NONE,
    }
  end

  local function tell_run(grant, g, place, count, lease, attempt, published)
    local runs = grant.runs + 1
    grant.runs, grant.count = runs, grant.count + count
    grant.told[runs] = length_word(g.name) .. g.name .. pack('<I2I2I4', place, count, published) .. lease
    grant.shown[runs] = pack('<I4I4I2I2I2', attempt, published, #grant.names - 1, place, count)
  end

  -- Units that nobody had yet.
  local function take_fresh(grant, g, place, count)
    splice(g, place, count, rep('\2', count), nil, rep(grant.row, count))
    tell_run(grant, g, place, count, grant.lease, 1, 0)
  end

  -- A unit that came back.
  local function take_again(x, grant, g, place)
    local u = unit(g, place)
    u.state, u.attempt, u.deadline, u.owner = LEASED, u.attempt + 1, grant.deadline, grant.owner
    u.epoch, u.counter = grant.epoch, grant.counter
    if u.published > 0 then
      add(x, SALVAGED_TOKENS, u.published)
      add(x, HAND_OVERS, 1)
      grant.journals = grant.journals[1] and grant.journals or {}
      table.insert(grant.journals, call('GET', key(x, 'j:') .. id_of(g, place)))
    end
    tell_run(grant, g, place, 1, lease_of(u), u.attempt, u.published)
  end

  -- The first place from `place` on whose unit waits in its group.
  local function next_waiting(g, place)
    local before = HEAD_BYTES + g.size
    local at = find(g.text, '\1', before + place + 1, true)
    return at and at <= before + g.size and at - before - 1 or nil
  end

  -- How many units from `place` on, `most` at most, wait and are nobody's yet.
  local function fresh_from(g, place, most)
    local states_at, row_at, count = HEAD_BYTES + g.size + 1, HEAD_BYTES + 10 * g.size + 1, 0
    most = min(most, g.size - place)
    while count < most and byte(g.text, states_at + place + count) == PENDING_UNIT do
      local at = row_at + ROW_BYTES * (place + count)
      if sub(g.text, at, at + ROW_BYTES - 1) ~= FRESH_ROW then
        break
      end
      count = count + 1
    end
    return count
  end

  -- Takes up to `n` units that wait in a group which was admitted before. Returns how many. It only ever looks ahead of the
  -- units that it took, which the text does not tell yet: to settle it for each would copy the record each time.
  local function take_waiting(x, grant, g, n)
    settle(g)
    units_changed(x, g)
    local left, place = n, next_waiting(g, 0)
    while place and left > 0 do
      local count = fresh_from(g, place, left)
      if count > 0 then
        take_fresh(grant, g, place, count)
      else
        take_again(x, grant, g, place)
        count = 1
      end
      left, place = left - count, next_waiting(g, place + count)
    end
    add(x, HALF_DONE, left - n)
    if not place then
      call('ZREM', key(x, 't'), g.name)
    end
    call('HINCRBY', key(x, 'h:') .. grant.owner, g.name, n - left)
    return n - left
  end

  -- The group that was put first is admitted: up to `n` of its units are taken, the others wait before all fresh ones.
  -- Returns how many.
  local function admit(x, grant, g, n)
    local count, order = min(n, g.size), add(x, ADMITTED, 1)
    g.state, g.order = OPEN_GROUP, order
    changed(x, g)
    if count < g.size then
      call('ZADD', key(x, 't'), order, g.name)
      add(x, HALF_DONE, g.size - count)
    end
    grant.opened, grant.held = grant.opened or {}, grant.held or {}
    local at = #grant.opened
    grant.opened[at + 1], grant.opened[at + 2] = order, g.name
    grant.held[at + 1], grant.held[at + 2] = g.name, count
    take_fresh(grant, g, 0, count)
    return count
  end

  local function take_from(x, grant, name, n, take)
    grant.names[#grant.names + 1] = name
    return take(x, grant, group(x, name), n)
  end

  -- The reply, as one text: what is said before, then what the grant has in common, then the groups (name, and what the
  -- units ask for), then for each run its attempt, published tokens, group, first place and number of units, then the
  -- journals.
  local function reply_of(x, grant, before)
    local names = grant.names
    local asked = fetch(key(x, 'p'), names)
    local words = { before, pack('<I4ddI2I2', grant.epoch, grant.counter, grant.deadline, #names, grant.runs) }
    for i = 1, #names do
      words[3 * i], words[3 * i + 1], words[3 * i + 2] = pack('<I2I4', #names[i], #asked[i]), names[i], asked[i]
    end
    for _, list in ipairs({ grant.shown, grant.journals }) do
      for i = 1, #list do
        words[#words + 1] = list[i]
      end
    end
    return concat(words)
  end

  local function pick(x, grant, n)
    while n > 0 and x.m[HALF_DONE] > 0 do
      local names = call('ZRANGE', key(x, 't'), 0, n - 1)
      if #names == 0 then
        break
      end
      for i = 1, #names do
        n = n > 0 and n - take_from(x, grant, names[i], n, take_waiting) or 0
      end
    end
    while n > 0 do
      local name = call('ZPOPMIN', key(x, 'q'))[1]
      if not name then
        break
      end
      n = n - take_from(x, grant, name, n, admit)
    end
    if grant.opened then
      many('ZADD', key(x, 'o'), grant.opened)
      many('HSET', key(x, 'h:') .. grant.owner, grant.held)
    end
  end

  -- Leases up to `n` units: half-done groups first, in the order of their admission, then fresh ones. One token serves the
  -- call: it orders the holders of one unit. Returns the reply, which begins with `before`.
  function grant(x, worker, owner, n, deadline, before)
    local given, m = new_grant(x, number(owner), deadline), x.m
    pick(x, given, n)
    local count = given.count
    if count == 0 then
      return before
    end
    call('ZADD', key(x, 'l'), 'LT', deadline, owner)
    m[NEXT_EXPIRY] = min(m[NEXT_EXPIRY], deadline)
    m[RUNNING], m[PENDING] = m[RUNNING] + count, m[PENDING] - count
    tell(x, event_head(x, 'leased', worker, '') .. concat(given.told))
    return reply_of(x, given, before)
  end
end

-- Deadline and reason of a drain, when the worker went, its incarnation, its number.
local function mark_of(x, worker)
  return call('HMGET', key(x, 'w:') .. worker, 'deadline', 'reason', 'gone', 'incarnation', 'number')
end

-- args: worker, n, ttl. Replies the control, a line's end, and what was granted, if anything was.
local function lease(keys, args)
  local x = open(keys, args)
  expire_due(x)
  local mark = mark_of(x, args[2])
  local reply = control(x, mark) .. '\n'
  if mark[4] and not mark[1] and not mark[3] then
    check_configured(x)
    wake(x)
    local n = room_for(x, number(args[3]))
    if n > 0 then
      reply = grant(x, args[2], mark[5], n, x.now + args[4], reply)
    end
  end
  done(x)
  return reply
end
