-- Groups: put, dropped, drawn again.

-- Counts a finished sample's or journal's tokens as thrown away.
local function discard(x, tokens)
  add(x, DISCARDED_TOKENS, tokens)
end

local function forget_journal(x, id, u)
  if u.published > 0 then
    call('UNLINK', key(x, 'j:') .. id)
    u.published, u.oldest = 0, -1
  end
end

-- A record that names an object: 0x01 and its key. Records with their own body start with 0x00.
local function count_object(x, record, step)
  if record:byte(1) ~= 1 then
    return
  end
  local object = record:sub(2)
  local count = call('HINCRBY', key(x, 'i'), object, step)
  if count <= 0 then
    call('HDEL', key(x, 'i'), object)
    call('ZADD', key(x, 'z'), x.now, object)
  elseif count == step then
    call('ZREM', key(x, 'z'), object)
  end
end

-- Samples end with their group, whichever runs they are in. A run never names an object.
local function forget_samples(x, ids)
  local records = fetch(key(x, 's'), ids)
  for i = 1, #ids do
    if records[i] then
      count_object(x, records[i], -1)
    end
  end
  many('HDEL', key(x, 's'), ids)
end

-- An object that was written for a call that came to nothing.
local function not_named(x, record)
  if record:byte(1) == 1 and call('HEXISTS', key(x, 'i'), record:sub(2)) == 0 then
    call('ZADD', key(x, 'z'), x.now, record:sub(2))
  end
end

-- What the units of a finished group asked for.
local function forget_asked(x, name)
  local asked = call('HGET', key(x, 'p'), name)
  if asked then
    count_object(x, asked:sub(5), -1)
    call('HDEL', key(x, 'p'), name)
  end
end

local fresh_units

do
  -- The records of units that nobody had yet: of one that goes on, and of one that starts anew, when it comes back.
  local GOES_ON, ANEW

  function fresh_units()
    if not ANEW then
      GOES_ON = pack(UNIT, PENDING_UNIT, 0, 0, 0, 0, 0, -1, 0, 0, 0, 0)
      ANEW = pack(UNIT, PENDING_UNIT, 0, 0, 0, 0, 0, -1, 0, 0, 0, 1)
    end
    return GOES_ON, ANEW
  end
end

-- A fresh group. `restarts` has a digit a unit, 1 where it starts anew when it comes back; `asked` is a packed body.
-- Returns history entries.
local function put_group(x, name, restarts, asked, draws, redraws)
  local size, states, entries = #restarts, {}, {}
  local ids, goes_on, anew = members(name, size), fresh_units()
  for i = 1, size do
    states[2 * i - 1], states[2 * i] = ids[i], restarts:byte(i) == 49 and anew or goes_on
    entry(entries, ids[i], pack('<I4', size))
  end
  many('HSET', key(x, 'u'), states)
  call('HSET', key(x, 'p'), name, pack('<I4', draws) .. asked)
  count_object(x, asked, 1)
  keep_group(x, name,
    { state = FRESH_GROUP, size = size, committed = 0, oldest = -1, redraws = redraws, complete_at = 0 })
  call('ZADD', key(x, 'q'), add(x, PUT, 1), name)
  add(x, PENDING, size)
  return concat(entries)
end

-- The holder of a unit that was dropped has been told, or is gone, or its time has run out.
local function let_go(x, id, owner)
  call('HDEL', key(x, 'h:') .. owner, id)
  add(x, ABANDONED, -call('HDEL', key(x, 'a'), id))
end

-- Takes a pending unit out of wherever it waits: in the queue, for its back-off, or in a group never leased.
local function unqueue(x, id)
  if call('ZREM', key(x, 't'), id) == 1 then
    add(x, HALF_DONE, -1)
  elseif call('ZREM', key(x, 'k'), id) == 1 then
    add(x, BACKING_OFF, -1)
  end
  add(x, PENDING, -1)
end

local function length_bucket(tokens)
  local bucket = 1
  while bucket < tokens do
    bucket = bucket * 2
  end
  return fmt('%.0f', bucket)
end

local function drop_unit(x, id, u, reason)
  local length, state = u.published, DROPPED
  if u.state == COMMITTED then
    length, state = u.tokens, DROPPED_SAMPLE
    add(x, BUFFERED, -1)
  elseif u.state == LEASED then
    call('HSET', key(x, 'a'), id, u.owner)
    add(x, ABANDONED, 1)
    add(x, RUNNING, -1)
  else
    unqueue(x, id)
  end
  call('HINCRBY', key(x, 'd'), reason .. ' ' .. length_bucket(length), 1)
  discard(x, length)
  forget_journal(x, id, u)
  u.state = state
  set_unit(x, id, u)
end

-- The group's units end, but for dead letters. A holder is told to stop until it lets go or its time has run out.
local function drop_units(x, name, g, reason)
  local ids = members(name, g.size)
  local units, restarts = units_of(x, ids), {}
  for i = 1, #ids do
    local u = units[ids[i]]
    restarts[i] = u.restart
    if u.state ~= FAILED then
      drop_unit(x, ids[i], u, reason)
    end
  end
  if g.committed > 0 then
    forget_samples(x, ids)
  end
  return concat(restarts)
end

-- Whether the job ever had a group of this name.
local function known(x, name)
  if call('HEXISTS', key(x, 'g'), name) == 1 then
    return true
  end
  local group_id, epoch = match(name, '^(.*)%.(%d+)$')
  local forgotten = call('HGET', key(x, 'v'), group_id)
  return forgotten and epoch + 0 <= forgotten + 0
end

-- The next draw of a group that nobody drew yet.
local function next_draw(x, name)
  local group_id, epoch = match(name, '^(.*)%.(%d+)$')
  repeat
    epoch = epoch + 1
    name = group_id .. '.' .. fmt('%.0f', epoch)
  until not known(x, name)
  return name, epoch
end

local REASONS = { 'stale', 'filtered', 'dead_lettered' }
local STALE, FILTERED, DEAD_LETTER = 1, 2, 3

-- The group will never be trained on; with `redraw` it starts again from its prompt, under a new epoch.
local function drop_group(x, name, g, reason, redraw)
  local asked, again, epoch, put = call('HGET', key(x, 'p'), name), nil, -1, nil
  local restarts = drop_units(x, name, g, REASONS[reason])
  if redraw then
    again, epoch = next_draw(x, name)
    local draws = unpack_struct('<I4', asked) + 1
    put = put_group(x, again, restarts, asked:sub(5), draws, g.redraws + (reason == DEAD_LETTER and 1 or 0))
  end
  if g.state == IN_BATCH then
    add(x, TAKEN, -g.size)
  else
    local list = ({ 'q', 'o', 'y' })[g.state]
    call('ZREM', key(x, list), name)
  end
  forget_asked(x, name)
  g.state = GONE
  keep_group(x, name, g)
  local entries = {}
  entry(entries, name, pack('<Bd', reason, epoch))
  event(x, 'group_dropped', '', '', entries[1])
  if put then
    event(x, 'units_put', '', '', put)
  end
end

local function drop_stale(x, name, g)
  drop_group(x, name, g, STALE, call('HGET', key(x, 'c'), 'on_stale') == 'requeue')
end

-- Looks at groups that have got an older token, or come under a newer version: what is too old ends at once.
local function drop_too_old(x, names)
  if x.m[VERSION] == 0 then
    return
  end
  for i = 1, #names do
    local g = group(x, names[i])
    if (g.state == OPEN_GROUP or g.state == COMPLETE) and too_old(x, g.oldest) then
      drop_stale(x, names[i], g)
    end
  end
end

-- The same for all incomplete groups; complete ones are the trainer's to judge.
local function drop_open_too_old(x)
  drop_too_old(x, call('ZRANGE', key(x, 'o'), 0, -1))
end

-- A token of version `oldest` has come to the group.
local function age_group(x, name, oldest)
  local g = group(x, name)
  local now = older(g.oldest, oldest)
  if now ~= g.oldest then
    g.oldest = now
    keep_group(x, name, g)
  end
end

-- Works a group's oldest version out anew, after tokens of it were thrown away.
local function renew_oldest(x, name)
  local g, oldest = group(x, name), -1
  for _, u in pairs(units_of(x, members(name, g.size))) do
    oldest = older(oldest, u.oldest)
  end
  g.oldest = oldest
  keep_group(x, name, g)
end
