-- What workers call: lease, heartbeat, commit, release.

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
    settle(g)
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

  -- Takes up to `n` units that wait in a group which was admitted before. Returns how many.
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

-- A unit as a call names it: its group and its place there. A name that is none comes with a place below 0.
local function named(x, name, place)
  local g = group(x, name)
  return g, g and unit(g, number(place))
end

local function id_in(name, place)
  return number(place) < 0 and name or name .. place_word(number(place))
end

-- Appends what is new of `data`, which starts at token `start`. False where there is a gap.
local function append(x, g, place, u, start, count, oldest, data)
  if start > u.published then
    return false
  end
  local skip = u.published - start
  if skip < count then
    call('APPEND', key(x, 'j:') .. id_of(g, place), sub(data, TOKEN_BYTES * skip + 1))
    u.published = start + count
    changed(x, g)
    if older(u.oldest, oldest) ~= u.oldest then
      u.oldest = oldest
      age_group(x, g, oldest)
    end
  end
  return true
end

-- args: worker, ttl, status, then seven a beat: group, place, fence, start (-1: no progress), count, oldest version, data.
local function heartbeat(keys, args)
  local x = open(keys, args)
  local worker, deadline = args[2], x.now + args[3]
  local lost, gone, owners, grown = {}, {}, {}, {}
  for at = 5, #args, 7 do
    local g, u = named(x, args[at], args[at + 1])
    local place, start = number(args[at + 1]), number(args[at + 3])
    if not u or u.fence ~= args[at + 2] then
      lost[#lost + 1] = id_in(args[at], place)
    elseif is_dropped(u) then
      gone[id_of(g, place)] = true
    elseif u.state ~= LEASED
      or (start >= 0 and not append(x, g, place, u, start, number(args[at + 4]), number(args[at + 5]), args[at + 6])) then
      lost[#lost + 1] = id_of(g, place)
    else
      u.deadline, owners[u.owner] = deadline, true
      changed(x, g)
      grown[#grown + 1] = start >= 0 and g or nil
    end
  end
  for owner in pairs(owners) do
    call('ZADD', key(x, 'l'), 'LT', deadline, owner)
    x.m[NEXT_EXPIRY] = min(x.m[NEXT_EXPIRY], deadline)
  end
  drop_too_old(x, grown)
  local mark = mark_of(x, worker)
  if mark[4] then
    call('HSET', key(x, 'w:') .. worker, 'seen', x.now, 'status', args[4])
  end
  local reply = control(x, mark, lost, gone)
  done(x)
  return reply
end

local commit

do
  -- Samples of units side by side that came in one call are a run and share a field, that of the first: 2, how many (I2), the
  -- bytes of each (I4), then the records. A sample alone, or one that names an object, is its record.

  -- Before the facts of the first unit: the fence, and the facts of all together.
  local FACTS_FROM = FENCE_BYTES + FACTS_BYTES

  -- What a call has done so far. `check`: groups that may be too old now.
  local function new_call(x, worker)
    return {
      told = { event_head(x, 'committed', worker, '') }, samples = {}, check = nil, ended = nil, count = 0, tokens = 0,
    }
  end

  local function check_later(c, g)
    c.check = c.check or {}
    c.check[#c.check + 1] = g
  end

  local function tell_run(c, g, place, count, lease, facts)
    c.count = c.count + count
    c.told[#c.told + 1] = length_word(g.name) .. g.name .. pack('<I2I2', place, count) .. lease .. facts
  end

  -- The group gets `count` samples, the oldest of version `oldest`.
  local function grow(x, c, g, count, oldest)
    g.committed, g.oldest = g.committed + count, older(g.oldest, oldest)
    if g.committed == g.size then
      g.state, g.complete_at = COMPLETE, x.now
      c.ended = c.ended or {}
      c.ended[#c.ended + 1] = g.name
    end
    changed(x, g)
    if too_old(x, g.oldest) then
      check_later(c, g)
    end
  end

  -- Groups that became complete, in this order.
  local function complete(x, names)
    local words = {}
    for i = 1, #names do
      words[2 * i - 1], words[2 * i] = add(x, COMPLETED, 1), names[i]
    end
    many('ZREM', key(x, 'o'), names)
    many('ZADD', key(x, 'y'), words)
  end

  -- The row that these units share, where they are leased under this fence, and nothing was published of them; else nil.
  local function shared_row(x, g, place, count, fence)
    if place < 0 or place + count > g.size or g.units then
      return nil
    end
    local text, state_at = g.text, HEAD_BYTES + g.size + place + 1
    local row_at = HEAD_BYTES + 10 * g.size + ROW_BYTES * place + 1
    local row = sub(text, row_at, row_at + ROW_BYTES - 1)
    if sub(row, 1, FENCE_BYTES) == fence and unpack_struct('<I4', row) == x.m[EPOCH]
      and unpack_struct('<I4', row, LEASE_BYTES + 1) == 0
      and sub(text, state_at, state_at + count - 1) == rep('\2', count)
      and (count == 1 or sub(text, row_at, row_at + ROW_BYTES * count - 1) == rep(row, count)) then
      return row
    end
    return nil
  end

  -- Commits units that share a row, all at once. `tokens`, `oldest`: of all of them together.
  local function commit_alike(x, c, g, place, count, row, tokens, oldest, facts)
    local owner = unpack_struct('<I4', row, ROW_BYTES - 3)
    if count == g.size then
      call('HDEL', key(x, 'h:') .. owner, g.name)
    else
      leave(x, owner, g, count)
    end
    add(x, RUNNING, -count)
    c.tokens = c.tokens + tokens
    tell_run(c, g, place, count, sub(row, 1, LEASE_BYTES), facts)
    grow(x, c, g, count, oldest)
    splice(g, place, count, rep('\3', count), facts, rep(sub(row, 1, ROW_BYTES - 12) .. NOBODY, count))
  end

  -- Whether a sample of this unit counts now: it is leased, or came back and nobody has it since.
  local function is_owed(x, u)
    return u.epoch == x.m[EPOCH] and (u.state == LEASED or u.state == PENDING_UNIT or u.state == BACKS_OFF)
  end

  -- A unit that came back is committed by the holder before: it waits no longer.
  local function called_off(x, g, place, u)
    stop_waiting(x, g, place, u)
    u.state = COMMITTED
    settle(g)
    if not find(sub(g.text, HEAD_BYTES + g.size + 1, HEAD_BYTES + 2 * g.size), '\1', 1, true) then
      call('ZREM', key(x, 't'), g.name)
    end
  end

  -- One unit. Replies its letter.
  local function commit_one(x, c, g, place, fence, facts)
    local u = unit(g, place)
    if not u or u.fence ~= fence then
      return 'r'
    elseif HAS_SAMPLE[u.state] then
      return 'a'
    elseif not is_owed(x, u) then
      return 'r'
    end
    local tokens, oldest = unpack_struct(FACTS, facts)
    tell_run(c, g, place, 1, lease_of(u), facts)
    c.tokens = c.tokens + tokens
    local renew = u.published > 0 and u.oldest < oldest
    forget_journal(x, id_of(g, place), u)
    if u.state == LEASED then
      leave(x, u.owner, g, 1)
      add(x, RUNNING, -1)
    else
      called_off(x, g, place, u)
      u = unit(g, place)
    end
    u.state, u.tokens, u.oldest, u.deadline, u.owner = COMMITTED, tokens, oldest, 0, 0
    grow(x, c, g, 1, oldest)
    if renew then
      renew_oldest(x, g)
      check_later(c, g)
    end
    return 'c'
  end

  -- Keeps the samples of those units of a run that are committed.
  local function keep_samples(x, samples, name, place, letters, sample)
    local count = #letters
    if letters == rep('c', count) then
      samples[#samples + 1], samples[#samples + 2] = id_in(name, place), sample
      if count == 1 then
        count_object(x, sample, 1)
      end
    elseif count == 1 then
      not_named(x, sample)
    else
      local at = 4 + 4 * count
      for i = 1, count do
        local bytes = unpack_struct('<I4', sample, 4 * i)
        if byte(letters, i) == 99 then
          samples[#samples + 1], samples[#samples + 2] = id_in(name, place + i - 1), sub(sample, at, at + bytes - 1)
        end
        at = at + bytes
      end
    end
  end

  -- A run of units side by side. Replies a letter each.
  local function commit_run(x, c, g, place, count, facts)
    local fence = sub(facts, 1, FENCE_BYTES)
    local row = shared_row(x, g, place, count, fence)
    if row then
      local tokens, oldest = unpack_struct(FACTS, facts, FENCE_BYTES + 1)
      commit_alike(x, c, g, place, count, row, tokens, oldest, sub(facts, FACTS_FROM + 1))
      return rep('c', count)
    end
    local letters = {}
    for i = 0, count - 1 do
      local at = FACTS_FROM + FACTS_BYTES * i + 1
      letters[i + 1] = commit_one(x, c, g, place + i, fence, sub(facts, at, at + FACTS_BYTES - 1))
    end
    return concat(letters)
  end

  -- A context with the groups of a commit, which are read together with the counters.
  local function open_with(keys, args)
    local x, fields = begin(keys, args), { '' }
    for at = 3, #args, 4 do
      fields[#fields + 1] = args[at]
    end
    local texts = fetch(key(x, 'g'), fields)
    x.m = counters_of(x.job, texts[1])
    for i = 2, #fields do
      if x.groups[fields[i]] == nil then
        read_group(x, fields[i], texts[i])
      end
    end
    return x
  end

  -- args: worker, then four a run of units side by side: group, first place, facts (fence, then tokens and oldest version
  -- of all together, then those of each), samples. Replies one letter a unit: c, a (it was before), r (refused).
  function commit(keys, args)
    local x = open_with(keys, args)
    local c, letters = new_call(x, args[2]), {}
    for at = 3, #args, 4 do
      local g, place, facts = x.groups[args[at]], number(args[at + 1]), args[at + 2]
      local count = (#facts - FACTS_FROM) / FACTS_BYTES
      local said = g and commit_run(x, c, g, place, count, facts) or rep('r', count)
      keep_samples(x, c.samples, args[at], place, said, args[at + 3])
      letters[#letters + 1] = said
    end
    if c.count > 0 then
      many('HSET', key(x, 's'), c.samples)
      if c.ended then
        complete(x, c.ended)
      end
      add(x, BUFFERED, c.count)
      add(x, COMMITTED_TOKENS, c.tokens)
      call('HINCRBY', key(x, 'w:') .. args[2], 'committed', c.count)
      tell(x, concat(c.told))
      drop_too_old(x, c.check or NONE)
    end
    done(x)
    return letters[2] and concat(letters) or letters[1]
  end
end

local release

do
  -- Gives one unit back, if this is its holder. Replies whether it was, and whether it has now failed for good.
  local function release_one(x, args, at, list, limit)
    local g, u = named(x, args[at], args[at + 1])
    local place, reason, start = number(args[at + 1]), args[at + 3], number(args[at + 4])
    if not u or u.fence ~= args[at + 2] then
      return false, nil
    elseif is_dropped(u) then
      let_go(x, g, place, u)
      return true, nil
    elseif u.state ~= LEASED then
      return false, nil
    end
    if start >= 0 then
      append(x, g, place, u, start, number(args[at + 5]), number(args[at + 6]), args[at + 7])
    end
    u.failures = u.failures + (reason == 'unit_failure' and 1 or 0)
    give_back(x, g, place, u, reason, list)
    return true, reason == 'unit_failure' and u.failures >= limit and { g, place, args[at + 8] } or nil
  end

  -- args: worker, then nine a release: group, place, fence, reason, start (-1: no progress), count, oldest version, data,
  -- error. Replies one digit a release.
  function release(keys, args)
    local x = open(keys, args)
    local answers, list, failed, grown = {}, {}, {}, {}
    local limit = number(call('HGET', key(x, 'c'), 'unit_failure_limit') or 0)
    for at = 3, #args, 9 do
      local was, why = release_one(x, args, at, list, limit)
      answers[#answers + 1] = was and '1' or '0'
      failed[#failed + 1] = why
      grown[#grown + 1] = was and group(x, args[at]) or nil
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
end

local function expire(keys, args)
  local x = open(keys, args)
  local count = expire_due(x)
  done(x)
  return count
end
