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

-- A fresh group. `restarts` has a digit a unit, 1 where it starts anew when it comes back; `asked` is a packed body.
-- Returns its history entry.
local function put_group(x, name, restarts, asked, draws, redraws)
  local size = #restarts
  local g = {
    name = name, units = nil, state = FRESH_GROUP, size = size, committed = 0, oldest = -1, redraws = redraws,
    complete_at = 0, order = 0, is_headed = false, is_changed = false, spliced = 0,
  }
  g.text = rep('\0', HEAD_BYTES) .. restarts .. rep('\1', size) .. rep(FRESH_FACTS, size) .. rep(FRESH_ROW, size)
  x.groups[name] = g
  changed(x, g)
  call('HSET', key(x, 'p'), name, pack('<I4', draws) .. asked)
  count_object(x, asked, 1)
  call('ZADD', key(x, 'q'), add(x, PUT, 1), name)
  add(x, PENDING, size)
  return length_word(name) .. name .. pack('<I4', size)
end

-- A worker holds `count` units of the group less.
local function leave(x, owner, g, count)
  local held = key(x, 'h:') .. owner
  if call('HINCRBY', held, g.name, -count) <= 0 then
    call('HDEL', held, g.name)
  end
end

-- The holder of a unit that was dropped has been told, or is gone, or its time has run out.
local function let_go(x, g, place, u)
  if u.owner ~= 0 then
    leave(x, u.owner, g, 1)
    u.owner = 0
    changed(x, g)
  end
  add(x, ABANDONED, -call('HDEL', key(x, 'a'), id_of(g, place)))
end

-- A pending unit is no longer counted among those that wait for their back-off, or in a group that was admitted.
local function stop_waiting(x, g, place, u)
  if u.state == BACKS_OFF then
    call('ZREM', key(x, 'k'), id_of(g, place))
    add(x, BACKING_OFF, -1)
  elseif g.state == OPEN_GROUP then
    add(x, HALF_DONE, -1)
  end
  add(x, PENDING, -1)
end

-- Whether the job ever had a group of this name.
local function known(x, name)
  if group(x, name) then
    return true
  end
  local group_id, epoch = match(name, '^(.*)%.(%d+)$')
  local forgotten = call('HGET', key(x, 'v'), group_id)
  return forgotten and epoch + 0 <= forgotten + 0
end

local REASONS = { 'stale', 'filtered', 'dead_lettered' }
local STALE, FILTERED, DEAD_LETTER = 1, 2, 3

local drop_group

do
  local function length_bucket(tokens)
    local bucket = 1
    while bucket < tokens do
      bucket = bucket * 2
    end
    return fmt('%.0f', bucket)
  end

  local function drop_unit(x, g, place, u, reason)
    local id, length, state = id_of(g, place), u.published, DROPPED
    if u.state == COMMITTED then
      length, state = u.tokens, DROPPED_SAMPLE
      add(x, BUFFERED, -1)
    elseif u.state == LEASED then
      call('HSET', key(x, 'a'), id, fmt('%.0f', u.owner))
      add(x, ABANDONED, 1)
      add(x, RUNNING, -1)
    else
      stop_waiting(x, g, place, u)
    end
    call('HINCRBY', key(x, 'd'), reason .. ' ' .. length_bucket(length), 1)
    discard(x, length)
    forget_journal(x, id, u)
    u.state = state
  end

  -- The group's units end, but for dead letters. A holder is told to stop until it lets go or its time has run out.
  local function drop_units(x, g, reason)
    for place = 0, g.size - 1 do
      local u = unit(g, place)
      if u.state ~= FAILED then
        drop_unit(x, g, place, u, reason)
      end
    end
    if g.committed > 0 then
      forget_samples(x, members(g))
    end
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

  -- The group will never be trained on; with `redraw` it starts again from its prompt, under a new epoch.
  function drop_group(x, g, reason, redraw)
    local name, asked, epoch, put = g.name, call('HGET', key(x, 'p'), g.name), -1, nil
    drop_units(x, g, REASONS[reason])
    if redraw then
      local again
      again, epoch = next_draw(x, name)
      local restarts, draws = sub(g.text, HEAD_BYTES + 1, HEAD_BYTES + g.size), unpack_struct('<I4', asked) + 1
      put = put_group(x, again, restarts, sub(asked, 5), draws, g.redraws + (reason == DEAD_LETTER and 1 or 0))
    end
    if g.state == IN_BATCH then
      add(x, TAKEN, -g.size)
    else
      call('ZREM', key(x, ({ 'q', 'o', 'y' })[g.state]), name)
      call('ZREM', key(x, 't'), name)
    end
    forget_asked(x, name)
    g.state = GONE
    changed(x, g)
    event(x, 'group_dropped', '', '', length_word(name) .. name .. pack('<Bd', reason, epoch))
    if put then
      event(x, 'units_put', '', '', put)
    end
  end
end

local function drop_stale(x, g)
  drop_group(x, g, STALE, call('HGET', key(x, 'c'), 'on_stale') == 'requeue')
end

-- Looks at groups that have got an older token, or come under a newer version: what is too old ends at once.
local function drop_too_old(x, groups)
  if x.m[VERSION] == 0 then
    return
  end
  for i = 1, #groups do
    local g = groups[i]
    if (g.state == OPEN_GROUP or g.state == COMPLETE) and too_old(x, g.oldest) then
      drop_stale(x, g)
    end
  end
end

-- The same for all incomplete groups; complete ones are the trainer's to judge.
local function drop_open_too_old(x)
  local names = call('ZRANGE', key(x, 'o'), 0, -1)
  for i = 1, #names do
    drop_too_old(x, { group(x, names[i]) })
  end
end

-- A token of version `oldest` has come to the group.
local function age_group(x, g, oldest)
  g.oldest = older(g.oldest, oldest)
  changed(x, g)
end

-- Works a group's oldest version out anew, after tokens of it were thrown away.
local function renew_oldest(x, g)
  g.oldest = -1
  for place = 0, g.size - 1 do
    g.oldest = older(g.oldest, unit(g, place).oldest)
  end
  changed(x, g)
end
