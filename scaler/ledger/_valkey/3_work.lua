-- What workers call: lease, heartbeat, commit, release.

local function check_configured(x)
  if x.m.configured == 0 then
    fail('REFUSED', 'the job is not configured yet')
  end
end

local function admissible(x)
  local m = x.m
  local room = math.min(m.concurrent - m.running, m.bound - m.buffered - m.running)
  return room > 0 and room or 0
end

-- How many units a call may take: half-done groups first, then what admission leaves for fresh ones. A group that was
-- admitted keeps the places of all its units while they wait; else fresh groups would take the place of a unit that backs
-- off, and once the bound is full of groups that each lack a unit, nothing would move again.
local function room_for(x, n)
  local m, half_done = x.m, call('ZCARD', key(x, 't'))
  local in_hand = math.min(half_done, n)
  local free = m.bound - m.buffered - m.running - half_done - call('ZCARD', key(x, 'k'))
  return math.min(in_hand + math.max(0, math.min(n - in_hand, free)), m.concurrent - m.running)
end

-- Units whose back-off is over go back to their place in the queue.
local function wake(x)
  local due = call('ZRANGEBYSCORE', key(x, 'k'), '-inf', x.stamp)
  if #due == 0 then
    return
  end
  local units, back = units_of(x, due), {}
  for i = 1, #due do
    back[2 * i - 1], back[2 * i] = fmt('%.0f', units[due[i]].score), due[i]
  end
  many('ZADD', key(x, 't'), back)
  many('ZREM', key(x, 'k'), due)
end

-- The next `n` ids with their scores: those of admitted groups, then those of the group that was put first.
local function pick(x, n)
  local ids, scores = {}, {}
  local got = call('ZPOPMIN', key(x, 't'), n)
  for i = 1, #got, 2 do
    ids[#ids + 1], scores[#scores + 1] = got[i], got[i + 1] + 0
  end
  local rest = {}
  while #ids < n do
    local next = call('ZPOPMIN', key(x, 'q'))
    local name = next[1]
    if not name then
      break
    end
    local g = group(x, name)
    add(x, 'admitted', 1)
    g.state = 'o'
    keep_group(x, name, g)
    call('ZADD', key(x, 'o'), x.m.admitted, name)
    for i = 1, g.size do
      local id, score = name .. '/' .. (i - 1), x.m.admitted * 65536 + i - 1
      if #ids < n then
        ids[#ids + 1], scores[#scores + 1] = id, score
      else
        rest[#rest + 1], rest[#rest + 2] = fmt('%.0f', score), id
      end
    end
  end
  many('ZADD', key(x, 't'), rest)
  return ids, scores
end

local function hand_over(x, u)
  add(x, 'tokens_salvaged', u.published)
  add(x, 'hand_overs', 1)
end

-- Prompt bodies of these units, one a group where its units share it, and for each unit which one it is.
local function prompts(x, ids, heads)
  local owners, index, at = {}, {}, {}
  for i = 1, #ids do
    local owner = match(heads[i], '^own') and ids[i] or group_of(ids[i])
    if not at[owner] then
      owners[#owners + 1] = owner
      at[owner] = #owners
    end
    index[i] = at[owner] - 1
  end
  return fetch(key(x, 'p'), owners), index
end

local function grant(x, worker, ids, scores, deadline)
  local texts, heads = fetch(key(x, 'u'), ids), fetch(key(x, 'r'), ids)
  local states, deadlines, entries, leases, journals = {}, {}, {}, {}, {}
  local bodies, index = prompts(x, ids, heads)
  add(x, 'fence', 1)
  -- One token serves the whole call: a token orders the holders of one unit.
  local fence = fmt('%.0f.%.0f', x.m.epoch, x.m.fence)
  for i = 1, #ids do
    local id, u = ids[i], unit_of(texts[i])
    u.code, u.fence, u.attempt, u.owner, u.score = 'L', fence, u.attempt + 1, worker, scores[i]
    states[2 * i - 1], states[2 * i] = id, text_of(u)
    deadlines[2 * i - 1], deadlines[2 * i] = deadline, id
    entry(entries, id, fmt('%s %d %d', fence, u.attempt, u.published))
    leases[i] = { id, u.attempt, heads[i], index[i], u.published }
    if u.published > 0 then
      hand_over(x, u)
      journals[#journals + 1] = call('GET', key(x, 'j:') .. id)
    end
  end
  many('HSET', key(x, 'u'), states)
  many('ZADD', key(x, 'l'), deadlines)
  many('SADD', key(x, 'h:') .. worker, ids)
  add(x, 'running', #ids)
  add(x, 'pending', -#ids)
  event(x, 'leased', worker, '', concat(entries))
  return leases, bodies, concat(journals), fence
end

local function drain_mark(x, worker)
  return call('HMGET', key(x, 'w:') .. worker, 'deadline', 'reason', 'gone', 'incarnation')
end

-- args: worker, n, ttl. Replies the control, what was leased, the prompts, the journals one after the other.
local function lease(keys, args)
  local x = open(keys, args)
  local worker, n, ttl = args[2], tonumber(args[3]), tonumber(args[4])
  expire_due(x)
  local mark = drain_mark(x, worker)
  local leases, bodies, journals, fence = {}, {}, '', nil
  if mark[4] and not mark[1] and not mark[3] then
    check_configured(x)
    wake(x)
    n = room_for(x, n)
  else
    n = 0
  end
  if n > 0 then
    local ids, scores = pick(x, n)
    if #ids > 0 then
      leases, bodies, journals, fence = grant(x, worker, ids, scores, fmt('%.6f', x.now + ttl))
    end
  end
  local c = control(x, worker, mark)
  c.leases, c.fence, c.until_s = leases, fence, fmt('%.6f', x.now + ttl)
  done(x)
  return { encode(c), journals, unpack(bodies) }
end

-- Appends what is new of `data`, which starts at token `start`. False where there is a gap.
local function append(x, id, u, start, count, oldest, data)
  if start > u.published then
    return false
  end
  local skip = u.published - start
  if skip < count then
    call('APPEND', key(x, 'j:') .. id, data:sub(12 * skip + 1))
    u.published = start + count
    if older(u.oldest, oldest) ~= u.oldest then
      u.oldest = oldest
      age_group(x, group_of(id), oldest)
    end
  end
  return true
end

-- args: worker, ttl, status, then six a beat: unit, fence, start (-1: no progress), count, oldest version, data.
local function heartbeat(keys, args)
  local x = open(keys, args)
  local worker, deadline = args[2], fmt('%.6f', x.now + args[3])
  local ids, lost, states, deadlines, grown, gone = {}, {}, {}, {}, {}, {}
  for at = 5, #args, 6 do
    ids[#ids + 1] = args[at]
  end
  local units = units_of(x, ids)
  for i = 1, #ids do
    local at, id, u = 6 * i - 1, ids[i], units[ids[i]]
    local start, count = tonumber(args[at + 2]), tonumber(args[at + 3])
    if u and u.fence == args[at + 1] and (u.code == 'D' or u.code == 'E') then
      gone[id] = true
    elseif not u or u.code ~= 'L' or u.fence ~= args[at + 1] then
      lost[#lost + 1] = id
    elseif start >= 0 and not append(x, id, u, start, count, tonumber(args[at + 4]), args[at + 5]) then
      lost[#lost + 1] = id
    else
      deadlines[#deadlines + 1], deadlines[#deadlines + 2] = deadline, id
      if start >= 0 then
        states[#states + 1], states[#states + 2] = id, text_of(u)
        grown[#grown + 1] = group_of(id)
      end
    end
  end
  many('HSET', key(x, 'u'), states)
  many('ZADD', key(x, 'l'), deadlines)
  drop_too_old(x, grown)
  local mark = drain_mark(x, worker)
  if mark[4] then
    call('HSET', key(x, 'w:') .. worker, 'seen', x.stamp, 'status', args[4])
  end
  local c = control(x, worker, mark, lost, gone)
  done(x)
  return encode(c)
end

local function complete(x, name, g)
  load(x, 'completed')
  add(x, 'completed', 1)
  g.state, g.complete_at = 'y', x.stamp
  call('ZREM', key(x, 'o'), name)
  call('ZADD', key(x, 'y'), x.m.completed, name)
end

-- Takes a unit that is being committed out of wherever it waits.
local function settle(x, id, u, leased, held)
  if u.code == 'L' then
    leased[#leased + 1] = id
    held[u.owner] = held[u.owner] or {}
    table.insert(held[u.owner], id)
  else
    call('ZREM', key(x, 't'), id)
    call('ZREM', key(x, 'k'), id)
    add(x, 'pending', -1)
  end
  forget_journal(x, id, u)
end

-- args: worker, then five a commit: unit, fence, tokens, oldest version, sample. Replies one letter a commit.
local function commit(keys, args)
  local x = open(keys, args)
  local ids, outcomes, leased, held, states, samples = {}, {}, {}, {}, {}, {}
  for at = 3, #args, 5 do
    ids[#ids + 1] = args[at]
  end
  local units, entries, by_group, names, renew, tokens, count = units_of(x, ids), {}, {}, {}, {}, 0, 0
  local epoch = fmt('%.0f.', x.m.epoch)
  for i = 1, #ids do
    local at, id, u = 5 * i - 2, ids[i], units[ids[i]]
    local fence = args[at + 1]
    outcomes[i] = 'r'
    if u and u.fence == fence then
      if u.code == 'C' or u.code == 'X' or u.code == 'E' then
        outcomes[i] = 'a'
      elseif (u.code == 'L' or u.code == 'P') and fence:sub(1, #epoch) == epoch then
        local journal = u.oldest
        settle(x, id, u, leased, held)
        outcomes[i], u.code, u.tokens, u.oldest = 'c', 'C', args[at + 2] + 0, args[at + 3] + 0
        states[#states + 1], states[#states + 2] = id, text_of(u)
        samples[#samples + 1], samples[#samples + 2] = id, args[at + 4]
        count_object(x, args[at + 4], 1)
        entry(entries, id, fmt('%s %d %d %d', fence, u.attempt, u.tokens, u.oldest))
        tokens, count = tokens + u.tokens, count + 1
        local name = group_of(id)
        renew[name] = renew[name] or (journal >= 0 and journal < u.oldest)
        local sum = by_group[name]
        if not sum then
          sum = { 0, -1 }
          by_group[name], names[#names + 1] = sum, name
        end
        sum[1], sum[2] = sum[1] + 1, older(sum[2], u.oldest)
      end
    end
  end
  if count > 0 then
    many('HSET', key(x, 'u'), states)
    many('HSET', key(x, 's'), samples)
    many('ZREM', key(x, 'l'), leased)
    for owner, list in pairs(held) do
      many('SREM', key(x, 'h:') .. owner, list)
    end
    add(x, 'running', -#leased)
    add(x, 'buffered', count)
    add(x, 'tokens_committed', tokens)
    for i = 1, #names do
      local name = names[i]
      local sum, g = by_group[name], group(x, name)
      g.committed, g.oldest = g.committed + sum[1], older(g.oldest, sum[2])
      if g.committed == g.size then
        complete(x, name, g)
      end
      keep_group(x, name, g)
      if renew[name] then
        renew_oldest(x, name)
      end
    end
    event(x, 'committed', args[2], '', concat(entries))
    drop_too_old(x, names)
    local worker = key(x, 'w:') .. args[2]
    local before = call('HGET', worker, 'committed')
    if before then
      call('HSET', worker, 'committed', before + count, 'seen', x.stamp)
    end
  end
  done(x)
  return concat(outcomes)
end

-- args: worker, then eight a release: unit, fence, reason, start (-1: no progress), count, oldest version, data, error.
-- Replies one digit a release.
local function release(keys, args)
  local x = open(keys, args)
  local ids, answers, list, failed, grown = {}, {}, {}, {}, {}
  for at = 3, #args, 8 do
    ids[#ids + 1] = args[at]
  end
  local units = units_of(x, ids)
  local m = call('HMGET', key(x, 'm'), 'unit_failure_limit')
  for i = 1, #ids do
    local at, id, u = 8 * i - 5, ids[i], units[ids[i]]
    local reason, start = args[at + 2], tonumber(args[at + 3])
    answers[i] = '0'
    if u and u.code == 'L' and u.fence == args[at + 1] then
      answers[i] = '1'
      if start >= 0 then
        append(x, id, u, start, tonumber(args[at + 4]), tonumber(args[at + 5]), args[at + 6])
      end
      if reason == 'unit_failure' then
        u.failures = u.failures + 1
      end
      give_back(x, id, u, reason, list)
      if reason == 'unit_failure' and u.failures >= tonumber(m[1]) then
        failed[#failed + 1] = { id, u, args[at + 7] }
      end
      grown[#grown + 1] = group_of(id)
    elseif u and (u.code == 'D' or u.code == 'E') and u.fence == args[at + 1] then
      answers[i] = '1'
      let_go(x, id)
    end
  end
  if #list > 0 then
    event(x, 'released', args[2], '', concat(list))
  end
  if #failed > 0 then
    dead_letter(x, failed)
  end
  drop_too_old(x, grown)
  done(x)
  return concat(answers)
end

local function expire(keys, args)
  local x = open(keys, args)
  local count = expire_due(x)
  done(x)
  return count
end
