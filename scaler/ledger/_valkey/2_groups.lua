-- Groups and the ends of units: put, give back, drop, draw again.

-- Counts a finished sample's or journal's tokens as thrown away.
local function discard(x, tokens)
  if tokens > 0 then
    add(x, 'tokens_discarded', tokens)
  end
end

local function forget_journal(x, id, u)
  if u.published > 0 then
    call('UNLINK', key(x, 'j:') .. id)
    u.published, u.oldest = 0, -1
  end
end

-- A record that names an object: 0x01 and its key. Records with their own body start with 0x00.
local function count_object(x, record, step)
  if not record or record:byte(1) ~= 1 then
    return
  end
  local object = record:sub(2)
  local count = call('HINCRBY', key(x, 'i'), object, step)
  if count <= 0 then
    call('HDEL', key(x, 'i'), object)
    call('ZADD', key(x, 'z'), x.stamp, object)
  elseif count == step then
    call('ZREM', key(x, 'z'), object)
  end
end

local function forget_sample(x, id)
  local name = key(x, 's')
  count_object(x, call('HGET', name, id), -1)
  call('HDEL', name, id)
end

-- Constant numbers and prompts of a finished group.
local function forget_prompts(x, name, ids)
  many('HDEL', key(x, 'r'), ids)
  local owners = { name, unpack(ids) }
  local records = fetch(key(x, 'p'), owners)
  for i = 1, #owners do
    if records[i] then
      count_object(x, records[i], -1)
    end
  end
  many('HDEL', key(x, 'p'), owners)
end

-- A fresh group. `heads`, `own` (prompts by unit, or '') and `common` (the group's prompt, or '') are its bodies.
local function put_group(x, name, redraws, heads, own, common)
  local size, states, constants = #heads, {}, {}
  local ids = members(name, size)
  for i = 1, size do
    states[2 * i - 1], states[2 * i] = ids[i], match(heads[i], 'restart$') and FRESH_RESTART or FRESH
    constants[2 * i - 1], constants[2 * i] = ids[i], heads[i]
    if own[i] ~= '' then
      call('HSET', key(x, 'p'), ids[i], own[i])
      count_object(x, own[i], 1)
    end
  end
  many('HSET', key(x, 'u'), states)
  many('HSET', key(x, 'r'), constants)
  if common ~= '' then
    call('HSET', key(x, 'p'), name, common)
    count_object(x, common, 1)
  end
  add(x, 'put', 1)
  keep_group(x, name, { state = 'q', size = size, committed = 0, oldest = -1, redraws = redraws, complete_at = '0' })
  call('ZADD', key(x, 'q'), x.m.put, name)
  add(x, 'pending', size)
  local epoch, entries = match(name, '(%d+)$'), {}
  for i = 1, size do
    entry(entries, ids[i], fmt('%s %d %d', epoch, i - 1, size))
  end
  return concat(entries)
end

-- Ends the hold on a leased unit, whatever becomes of the unit.
local function end_hold(x, id, u)
  call('SREM', key(x, 'h:') .. u.owner, id)
  add(x, 'running', -1)
end

-- The holder of a unit that was dropped has been told, or is gone, or its time has run out.
local function let_go(x, id)
  call('ZREM', key(x, 'l'), id)
  if x.m.abandoned > 0 then
    add(x, 'abandoned', -call('HDEL', key(x, 'a'), id))
  end
end

local function set_unit(x, id, u)
  call('HSET', key(x, 'u'), id, text_of(u))
end

local function length_bucket(tokens)
  local bucket = 1
  while bucket < tokens do
    bucket = bucket * 2
  end
  return fmt('%.0f', bucket)
end

-- The group's units end, but for dead letters. A holder is told to stop until it lets go or its time has run out.
local function drop_units(x, reason, ids)
  local units = units_of(x, ids)
  for i = 1, #ids do
    local id, u = ids[i], units[ids[i]]
    local length = u.code == 'C' and u.tokens or u.published
    if u.code ~= 'F' then
      call('HINCRBY', key(x, 'd'), reason .. ' ' .. length_bucket(length), 1)
      discard(x, length)
    end
    if u.code == 'L' then
      call('HSET', key(x, 'a'), id, u.owner)
      add(x, 'abandoned', 1)
      end_hold(x, id, u)
    elseif u.code == 'P' then
      call('ZREM', key(x, 't'), id)
      call('ZREM', key(x, 'k'), id)
      add(x, 'pending', -1)
    elseif u.code == 'C' then
      forget_sample(x, id)
      add(x, 'buffered', -1)
    end
    if u.code ~= 'F' then
      forget_journal(x, id, u)
      u.code = u.code == 'C' and 'E' or 'D'
      set_unit(x, id, u)
    end
  end
end

local function unlist(x, name, g)
  local list = ({ q = 'q', o = 'o', y = 'y' })[g.state]
  if list then
    call('ZREM', key(x, list), name)
  end
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
    name = fmt('%s.%d', group_id, epoch)
  until not known(x, name)
  return name
end

-- Constant numbers of a unit's next draw. They say how often it was drawn; the seed follows from that.
local function drawn_again(head)
  return (head:gsub('^(%a+) (%d+)', function(kind, draws)
    return kind .. ' ' .. draws + 1
  end))
end

-- The group will never be trained on; with `redraw` it starts again from its prompt, under a new epoch.
local function drop_group(x, name, g, reason, redraw, redraws)
  local ids = members(name, g.size)
  local heads, put, drawn = {}, nil, ''
  if redraw then
    drawn = next_draw(x, name)
    heads = fetch(key(x, 'r'), ids)
    local own, common = fetch(key(x, 'p'), ids), call('HGET', key(x, 'p'), name)
    for i = 1, #ids do
      own[i], heads[i] = own[i] or '', drawn_again(heads[i])
    end
    put = put_group(x, drawn, redraws, heads, own, common or '')
  end
  drop_units(x, reason, ids)
  if g.state == 'b' then
    add(x, 'taken', -g.size)
  end
  unlist(x, name, g)
  forget_prompts(x, name, ids)
  g.state = 'd'
  keep_group(x, name, g)
  local entries = {}
  entry(entries, name, reason .. ' ' .. (match(drawn, '(%d+)$') or '-'))
  event(x, 'group_dropped', '', '', concat(entries))
  if put then
    event(x, 'units_put', '', '', put)
  end
end

local function drop_stale(x, name, g)
  drop_group(x, name, g, 'stale', call('HGET', key(x, 'm'), 'on_stale') == 'requeue', g.redraws)
end

local function back_off(x, returns)
  local s = call('HMGET', key(x, 'm'), 'backoff_initial_s', 'backoff_max_s')
  return math.min(tonumber(s[2]), s[1] * 2 ^ math.min(returns - 1, 60))
end

-- Units that failed for good, as { id, unit, error } each: their groups cannot be completed.
local function dead_letter(x, failed)
  local entries, groups = {}, {}
  for i = 1, #failed do
    local id, u, why = unpack(failed[i])
    discard(x, u.published)
    forget_journal(x, id, u)
    call('ZREM', key(x, 'k'), id)
    call('RPUSH', key(x, 'e'), encode({ id, u.failures, why }))
    u.code = 'F'
    set_unit(x, id, u)
    entry(entries, id, fmt('%d', u.failures))
    groups[i] = group_of(id)
  end
  add(x, 'dead_lettered', #failed)
  add(x, 'pending', -#failed)
  event(x, 'dead_lettered', '', '', concat(entries))
  local limit = tonumber(call('HGET', key(x, 'm'), 'group_redraw_limit'))
  for i = 1, #groups do
    local g = group(x, groups[i])
    if g.state ~= 'd' then
      drop_group(x, groups[i], g, 'dead_lettered', g.redraws < limit, g.redraws + 1)
    end
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

-- A leased unit goes back, with its progress as its Resume says; tells it in `list`.
local function give_back(x, id, u, reason, list)
  end_hold(x, id, u)
  call('ZREM', key(x, 'l'), id)
  local published = u.published
  local restart = u.restart == '1' and published > 0
  if restart then
    discard(x, published)
    forget_journal(x, id, u)
  end
  entry(list, id, fmt('%s %s %d %d', u.fence, reason, u.published, published))
  u.code = 'P'
  add(x, 'pending', 1)
  if reason == 'infrastructure' or reason == 'unit_failure' then
    u.returns = u.returns + 1
    call('ZADD', key(x, 'k'), fmt('%.6f', x.now + back_off(x, u.returns)), id)
  else
    u.returns = 0
    call('ZADD', key(x, 't'), fmt('%.0f', u.score), id)
  end
  set_unit(x, id, u)
  if restart then
    renew_oldest(x, group_of(id))
  end
end

-- Units that are leased, or dropped and not let go of. Returns how many leases that ended.
local function give_back_all(x, ids, reason, worker)
  local units, list = units_of(x, ids), {}
  for i = 1, #ids do
    local u = units[ids[i]]
    if u.code == 'L' then
      give_back(x, ids[i], u, reason, list)
    else
      let_go(x, ids[i])
    end
  end
  if #list > 0 then
    event(x, 'released', worker, '', concat(list))
  end
  return #list
end

local function expire_due(x)
  local ids = call('ZRANGEBYSCORE', key(x, 'l'), '-inf', x.stamp)
  if #ids == 0 then
    return 0
  end
  return give_back_all(x, ids, 'expired', '')
end

-- Looks at groups that have got an older token, or come under a newer version: what is too old ends at once.
local function drop_too_old(x, names)
  for i = 1, #names do
    local name = names[i]
    local g = group(x, name)
    if (g.state == 'o' or g.state == 'y') and too_old(x, g.oldest) then
      drop_stale(x, name, g)
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
