-- What workers call about units that they hold: heartbeat, commit, release; and the end of what they hold no longer.

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

  -- What a call has done so far. `check`: groups that may be too old now; `called_off`: those of which units waited;
  -- `aged`: those of which an older journal went.
  local function new_call(x, worker)
    return {
      told = { event_head(x, 'committed', worker, '') }, samples = {}, check = nil, ended = nil, called_off = nil,
      aged = nil, count = 0, tokens = 0,
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

  -- Every splice copies the record, so that beyond this many units in all of them a call's units are looked at one by one.
  local MOST_SPLICED = 4096

  -- The row that these units share, where they are leased under this fence, and nothing was published of them; else nil.
  local function shared_row(x, g, place, count, fence)
    if place < 0 or place + count > g.size or g.units or g.spliced * g.size > MOST_SPLICED then
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

  -- Whether no unit of the group waits any more.
  local function is_taken(g)
    settle(g)
    return not find(sub(g.text, HEAD_BYTES + g.size + 1, HEAD_BYTES + 2 * g.size), '\1', 1, true)
  end

  -- Once a call, not for each of its units: what follows for the groups of units that had come back.
  local function after_all(x, c)
    for g in pairs(c.called_off or NONE) do
      if is_taken(g) then
        call('ZREM', key(x, 't'), g.name)
      end
    end
    for g in pairs(c.aged or NONE) do
      renew_oldest(x, g)
      check_later(c, g)
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
    if u.published > 0 and u.oldest < oldest then
      c.aged = c.aged or {}
      c.aged[g] = true
    end
    forget_journal(x, id_of(g, place), u)
    if u.state == LEASED then
      leave(x, u.owner, g, 1)
      add(x, RUNNING, -1)
    else
      stop_waiting(x, g, place, u)
      c.called_off = c.called_off or {}
      c.called_off[g] = true
    end
    u.state, u.tokens, u.oldest, u.deadline, u.owner = COMMITTED, tokens, oldest, 0, 0
    grow(x, c, g, 1, oldest)
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
      if x.groups[args[at]] == nil then
        x.groups[args[at]], fields[#fields + 1] = false, args[at]
      end
    end
    local texts = fetch(key(x, 'g'), fields)
    x.m = counters_of(x.job, texts[1])
    for i = 2, #fields do
      read_group(x, fields[i], texts[i])
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
      after_all(x, c)
      drop_too_old(x, c.check or NONE)
    end
    done(x)
    return letters[2] and concat(letters) or letters[1]
  end
end

local release

do
  -- Gives one unit back, if this is its holder. Replies whether it was, and whether it has now failed for good.
  local function release_one(x, args, at, list, aged, limit)
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
    give_back(x, g, place, u, reason, list, aged)
    return true, reason == 'unit_failure' and u.failures >= limit and { g, place, args[at + 8] } or nil
  end

  -- args: worker, then nine a release: group, place, fence, reason, start (-1: no progress), count, oldest version, data,
  -- error. Replies one digit a release.
  function release(keys, args)
    local x = open(keys, args)
    local answers, list, aged, failed, grown = {}, {}, {}, {}, {}
    local limit = number(call('HGET', key(x, 'c'), 'unit_failure_limit') or 0)
    for at = 3, #args, 9 do
      local was, why = release_one(x, args, at, list, aged, limit)
      answers[#answers + 1] = was and '1' or '0'
      failed[#failed + 1] = why
      grown[#grown + 1] = was and group(x, args[at]) or nil
    end
    renew_all(x, aged)
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
