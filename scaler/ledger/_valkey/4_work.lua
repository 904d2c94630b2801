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

-- Lists of a call's units, filled anew by each call that leases or commits.
local IDS, SCORES, STATES, HELD, TOLD_LIST, SHOWN, WAITING = {}, {}, {}, {}, {}, {}, {}

-- The group that was put first is admitted: its first units are picked, the others wait before all fresh ones. Replies how
-- many are picked then.
local function admit(x, name, n, picked)
  local text, order = call('HGET', key(x, 'g'), name), add(x, ADMITTED, 1)
  local size, waiting = unpack_struct('<I4', text, 2), 0
  call('HSET', key(x, 'g'), name, '\2' .. sub(text, 2))
  call('ZADD', key(x, 'o'), order, name)
  for place = 0, size - 1 do
    local id, score = name .. place_word(place), order * 65536 + place
    if picked < n then
      picked = picked + 1
      IDS[picked], SCORES[picked] = id, score
    else
      waiting = waiting + 1
      WAITING[2 * waiting - 1], WAITING[2 * waiting] = score, id
    end
  end
  many('ZADD', key(x, 't'), WAITING, 2 * waiting)
  add(x, HALF_DONE, waiting)
  return picked
end

-- The next `n` ids with their scores. Replies how many there are.
local function pick(x, n)
  local picked = 0
  if x.m[HALF_DONE] > 0 then
    local got = call('ZPOPMIN', key(x, 't'), n)
    for i = 1, #got, 2 do
      picked = picked + 1
      IDS[picked], SCORES[picked] = got[i], number(got[i + 1])
    end
    add(x, HALF_DONE, -picked)
  end
  while picked < n do
    local name = call('ZPOPMIN', key(x, 'q'))[1]
    if not name then
      break
    end
    picked = admit(x, name, n, picked)
  end
  return picked
end

local first_shown

do
  -- What is shown of a unit that nobody had before: its group in the reply and its place there. Those of small calls are kept.
  local FIRST_SHOWN = {}

  function first_shown(group_place, place)
    if group_place > 63 or place > 255 then
      return pack('<I4I4I2I2', 1, 0, group_place, place)
    end
    local index = group_place * 256 + place
    local word = FIRST_SHOWN[index]
    if not word then
      word = pack('<I4I4I2I2', 1, 0, group_place, place)
      FIRST_SHOWN[index] = word
    end
    return word
  end
end

-- What the units of these groups ask for, each with the group's name before it.
local function asked_words(x, names)
  local asked = fetch(key(x, 'p'), names)
  for i = 1, #names do
    asked[i] = pack('<I2I4', #names[i], #asked[i]) .. names[i] .. asked[i]
  end
  return asked[2] and concat(asked) or asked[1]
end

-- Leases the units that were picked. Returns the words of the reply after `head`: what the grant has in common, then the
-- groups (name, and what the units ask for), then for each unit its attempt, published tokens, group and place in it, then
-- the journals. One token serves the call: it orders the holders of one unit. Records of units that nobody had before
-- differ in their score only. The score tells groups apart, since their names may begin alike.
local function grant(x, worker, count, deadline, head)
  local m, texts = x.m, fetch(key(x, 'u'), IDS, count)
  local epoch, counter = m[EPOCH], add(x, FENCE, 1)
  local goes_on, anew = fresh_units()
  local first = pack(UNIT, LEASED, epoch, counter, 1, 0, 0, -1, 0, 0, 0, 0)
  local first_told, before_score = sub(first, 1, TOLD), sub(first, 1, UNIT_BYTES - 9)
  local names, groups, order, journals, until_then = {}, 0, -1, nil, pack('<d', deadline)
  local start, length = '', 0
  TOLD_LIST[1] = event_head(x, 'leased', worker, '')
  for i = 1, count do
    local id, text, score = IDS[i], texts[i], SCORES[i]
    local place, told = score % 65536, first_told
    -- A call that failed halfway may have left two groups with one order.
    if score - place ~= order or sub(id, 1, length) ~= start then
      local name = group_of(id)
      groups, order, start, length = groups + 1, score - place, name .. '/', #name + 1
      names[groups] = name
    end
    if text == goes_on then
      STATES[2 * i], SHOWN[i] = before_score .. pack('<d', score) .. '\0' .. worker, first_shown(groups - 1, place)
    elseif text == anew then
      STATES[2 * i], SHOWN[i] = before_score .. pack('<d', score) .. '\1' .. worker, first_shown(groups - 1, place)
    else
      local _, _, _, attempt, published, _, oldest, returns, failures, _, restart = unpack_struct(UNIT, text)
      local record =
        pack(UNIT, LEASED, epoch, counter, attempt + 1, published, 0, oldest, returns, failures, score, restart)
      told = sub(record, 1, TOLD)
      STATES[2 * i], SHOWN[i] = record .. worker, pack('<I4I4I2I2', attempt + 1, published, groups - 1, place)
      if published > 0 then
        add(x, SALVAGED_TOKENS, published)
        add(x, HAND_OVERS, 1)
        journals = journals or {}
        journals[#journals + 1] = call('GET', key(x, 'j:') .. id)
      end
    end
    STATES[2 * i - 1], HELD[2 * i - 1], HELD[2 * i] = id, id, until_then
    TOLD_LIST[3 * i - 1], TOLD_LIST[3 * i], TOLD_LIST[3 * i + 1] = length_word(id), id, told
  end
  many('HSET', key(x, 'u'), STATES, 2 * count)
  many('HSET', key(x, 'h:') .. worker, HELD, 2 * count)
  call('ZADD', key(x, 'l'), 'LT', deadline, worker)
  m[NEXT_EXPIRY] = min(m[NEXT_EXPIRY], deadline)
  m[RUNNING], m[PENDING] = m[RUNNING] + count, m[PENDING] - count
  tell(x, concat(TOLD_LIST, '', 1, 3 * count + 1))
  return head .. pack('<I4ddI2I2', epoch, counter, deadline, groups, count) .. asked_words(x, names)
    .. concat(SHOWN, '', 1, count) .. (journals and concat(journals) or '')
end

local function drain_mark(x, worker)
  return call('HMGET', key(x, 'w:') .. worker, 'deadline', 'reason', 'gone', 'incarnation')
end

-- args: worker, n, ttl. Replies the control, a line's end, and what was granted, if anything was.
local function lease(keys, args)
  local x = open(keys, args)
  local worker = args[2]
  expire_due(x)
  local mark = drain_mark(x, worker)
  local reply = control(x, worker, mark) .. '\n'
  if mark[4] and not mark[1] and not mark[3] then
    check_configured(x)
    wake(x)
    local n = room_for(x, number(args[3]))
    local picked = n > 0 and pick(x, n) or 0
    if picked > 0 then
      reply = grant(x, worker, picked, x.now + args[4], reply)
    end
  end
  done(x)
  return reply
end

-- Appends what is new of `data`, which starts at token `start`. False where there is a gap.
local function append(x, id, u, start, count, oldest, data)
  if start > u.published then
    return false
  end
  local skip = u.published - start
  if skip < count then
    call('APPEND', key(x, 'j:') .. id, sub(data, 12 * skip + 1))
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
  local worker, deadline = args[2], x.now + args[3]
  local until_then = pack('<d', deadline)
  local ids, lost, gone, held, states, grown = {}, {}, {}, {}, {}, {}
  for at = 5, #args, 6 do
    ids[#ids + 1] = args[at]
  end
  local units = units_of(x, ids)
  for i = 1, #ids do
    local at, id, u = 6 * i - 1, ids[i], units[ids[i]]
    local start = number(args[at + 2])
    if not u or u.fence ~= args[at + 1] then
      lost[#lost + 1] = id
    elseif is_dropped(u) then
      gone[id] = true
    elseif u.state ~= LEASED
      or (start >= 0 and not append(x, id, u, start, number(args[at + 3]), number(args[at + 4]), args[at + 5])) then
      lost[#lost + 1] = id
    else
      held[u.owner] = held[u.owner] or {}
      table.insert(held[u.owner], id)
      table.insert(held[u.owner], until_then)
      if start >= 0 then
        states[#states + 1], states[#states + 2] = id, pack_unit(u) .. u.owner
        grown[#grown + 1] = group_of(id)
      end
    end
  end
  for owner, list in pairs(held) do
    many('HSET', key(x, 'h:') .. owner, list)
    call('ZADD', key(x, 'l'), 'LT', deadline, owner)
    x.m[NEXT_EXPIRY] = min(x.m[NEXT_EXPIRY], deadline)
  end
  many('HSET', key(x, 'u'), states)
  drop_too_old(x, grown)
  local mark = drain_mark(x, worker)
  if mark[4] then
    call('HSET', key(x, 'w:') .. worker, 'seen', x.now, 'status', args[4])
  end
  local reply = control(x, worker, mark, lost, gone)
  done(x)
  return reply
end

local commit

do
  -- Adds `count` samples, the oldest of version `version`, to a group. Returns the oldest version in it.
  local function grow_group(x, name, count, version)
    local state, size, committed, oldest, redraws, complete_at = unpack_struct(GROUP, call('HGET', key(x, 'g'), name))
    committed, oldest = committed + count, older(oldest, version)
    if committed == size then
      state, complete_at = COMPLETE, x.now
      call('ZREM', key(x, 'o'), name)
      call('ZADD', key(x, 'y'), add(x, COMPLETED, 1), name)
    end
    call('HSET', key(x, 'g'), name, pack(GROUP, state, size, committed, oldest, redraws, complete_at))
    return oldest
  end

  -- Lists of a call's runs and groups, as above.
  local ENDS, RUN_GROUPS, GROUPS, COUNTS, VERSIONS, OUTCOMES = {}, {}, {}, {}, {}, {}

  -- The first `n` groups listed get the samples of a call, and what is too old then ends. `renew`: groups whose oldest
  -- version has to be worked out anew, if there are any.
  local function grow_groups(x, n, renew)
    local check = nil
    for i = 1, n do
      if too_old(x, grow_group(x, GROUPS[i], COUNTS[i], VERSIONS[i])) or renew then
        check = check or {}
        check[#check + 1] = GROUPS[i]
      end
    end
    for i = 1, renew and #renew or 0 do
      renew_oldest(x, renew[i])
    end
    if check then
      drop_too_old(x, check)
    end
  end

  local HAS_SAMPLE = { [COMMITTED] = true, [CONSUMED] = true, [DROPPED_SAMPLE] = true }

  -- Samples of units side by side that came in one call are a run and share a field, that of the first: 2, how many (I2), the
  -- bytes of each (I4), then the records. A sample alone, or one that names an object, is its record.

  -- Lists the ids of a call's units, where the units of each run end, and the group of each run. Returns how many units
  -- there are, and runs.
  local function units_in(args)
    local count, runs = 0, 0
    for at = 3, #args, 3 do
      local id, units = args[at], (#args[at + 1] - 12) / 8
      local name, place = match(id, '^(.*)/(%d+)$')
      count = count + 1
      IDS[count] = id
      for i = 1, units - 1 do
        count = count + 1
        IDS[count] = name .. place_word(place + i)
      end
      runs = runs + 1
      ENDS[runs], RUN_GROUPS[runs] = count, name or ''
    end
    return count, runs
  end

  -- The samples of those units of a run that are committed, as the store keeps them. `whole`: that is all of them.
  local function keep_samples(x, samples, whole, first, last, sample)
    if first == last then
      if whole then
        samples[#samples + 1], samples[#samples + 2] = IDS[first], sample
        count_object(x, sample, 1)
      else
        not_named(x, sample)
      end
    elseif whole then
      samples[#samples + 1], samples[#samples + 2] = IDS[first], sample
    else
      local at = 4 + 4 * (last - first + 1)
      for i = first, last do
        local bytes = unpack_struct('<I4', sample, 4 + 4 * (i - first))
        if OUTCOMES[i] == 'c' then
          samples[#samples + 1], samples[#samples + 2] = IDS[i], sub(sample, at, at + bytes - 1)
        end
        at = at + bytes
      end
    end
  end

  -- What was committed in this call so far, by id: for a unit that it names again.
  local function changed_so_far(new)
    local changed = {}
    for n = 1, new do
      changed[STATES[2 * n - 1]] = STATES[2 * n]
    end
    return changed
  end

  -- What a unit's record says up to the sample's tokens, of a unit that has its sample now.
  local function committed_head(told)
    return '\3' .. sub(told, 2, 17) .. '\0\0\0\0'
  end

  -- Takes a unit that is committed out of wherever it waits, and forgets its journal. Whether its group's oldest version
  -- has to be worked out anew.
  local function settle(x, id, state, published, oldest, version)
    if state == PENDING_UNIT then
      unqueue(x, id)
    end
    if published > 0 then
      call('UNLINK', key(x, 'j:') .. id)
      return oldest < version
    end
    return false
  end

  -- args: worker, then three a run of units side by side: the first, facts (fence, then tokens and oldest version of each),
  -- its samples. Replies one letter a unit. A new record is the old one but for its state, its published tokens, and what
  -- is said of its sample, which stands in the facts as it does in the record; its owner goes. Units that one call
  -- leased and that published nothing have records that begin alike: what was found of one then holds for all. `alike` is
  -- how the last of them begins.
  function commit(keys, args)
    local x = open(keys, args)
    local count, runs = units_in(args)
    local current, texts, samples, slots = x.m[EPOCH], fetch(key(x, 'u'), IDS, count), {}, runs > 1 and {} or NONE
    local new, sum, first, grown, leased, left = 0, 0, 1, 0, 0, 0
    local holder, others, changed, renew = nil, nil, nil, nil
    TOLD_LIST[1] = event_head(x, 'committed', args[2], '')
    for r = 1, runs do
      local facts, last, name, new_before, oldest_new = args[3 * r + 1], ENDS[r], RUN_GROUPS[r], new, -1
      local fence, alike, head, owner = sub(facts, 1, 12), nil, nil, nil
      if slots[name] and not changed then
        changed = changed_so_far(new)
      end
      for i = first, last do
        local id = IDS[i]
        local text, outcome, at = changed and changed[id] or texts[i], 'r', 13 + 8 * (i - first)
        local told = text and sub(text, 1, TOLD)
        local taken, state, published, oldest = told and told == alike, LEASED, 0, -1
        if told and not taken and sub(told, 2, 13) == fence then
          local epoch, _
          state, epoch, _, _, published, _, oldest = unpack_struct(TOLD_UNIT, told)
          if HAS_SAMPLE[state] then
            outcome = 'a'
          elseif state <= LEASED and epoch == current then
            taken, head, owner = true, committed_head(told), sub(text, UNIT_BYTES + 1)
            alike = state == LEASED and published == 0 and told or nil
          end
        end
        if taken then
          local tokens, version = unpack_struct('<I4i4', facts, at)
          if state == LEASED then
            holder, leased = holder or owner, leased + 1
            if owner == holder then
              left = left + 1
              HELD[left] = id
            else
              others = others or {}
              others[owner] = others[owner] or {}
              table.insert(others[owner], id)
            end
          end
          if (published > 0 or state == PENDING_UNIT) and settle(x, id, state, published, oldest, version) then
            renew = renew or {}
            renew[#renew + 1] = name
          end
          local said = sub(facts, at, at + 7)
          local record = head .. said .. sub(text, TOLD + 1, UNIT_BYTES)
          outcome, new, sum, oldest_new = 'c', new + 1, sum + tokens, older(oldest_new, version)
          STATES[2 * new - 1], STATES[2 * new] = id, record
          TOLD_LIST[4 * new - 2], TOLD_LIST[4 * new - 1] = length_word(id), id
          TOLD_LIST[4 * new], TOLD_LIST[4 * new + 1] = head, said
          if changed then
            changed[id] = record
          end
        end
        OUTCOMES[i] = outcome
      end
      if new > new_before then
        local slot = slots[name]
        if slot then
          COUNTS[slot], VERSIONS[slot] = COUNTS[slot] + new - new_before, older(VERSIONS[slot], oldest_new)
        else
          grown = grown + 1
          GROUPS[grown], COUNTS[grown], VERSIONS[grown] = name, new - new_before, oldest_new
          if runs > 1 then
            slots[name] = grown
          end
        end
      end
      keep_samples(x, samples, new - new_before == last - first + 1, first, last, args[3 * r + 2])
      first = last + 1
    end
    if new > 0 then
      many('HSET', key(x, 'u'), STATES, 2 * new)
      many('HSET', key(x, 's'), samples)
      many('HDEL', holder and key(x, 'h:') .. holder, HELD, left)
      for owner, list in pairs(others or NONE) do
        many('HDEL', key(x, 'h:') .. owner, list)
      end
      add(x, RUNNING, -leased)
      add(x, BUFFERED, new)
      add(x, COMMITTED_TOKENS, sum)
      call('HINCRBY', key(x, 'w:') .. args[2], 'committed', new)
      tell(x, concat(TOLD_LIST, '', 1, 4 * new + 1))
      grow_groups(x, grown, renew)
    end
    done(x)
    return concat(OUTCOMES, '', 1, count)
  end
end

-- args: worker, then eight a release: unit, fence, reason, start (-1: no progress), count, oldest version, data, error.
-- Replies one digit a release.
local function release(keys, args)
  local x = open(keys, args)
  local ids, answers, list, aged, failed, grown = {}, {}, {}, {}, {}, {}
  for at = 3, #args, 8 do
    ids[#ids + 1] = args[at]
  end
  local units, limit = units_of(x, ids), number(call('HGET', key(x, 'c'), 'unit_failure_limit') or 0)
  for i = 1, #ids do
    local at, id, u = 8 * i - 5, ids[i], units[ids[i]]
    local reason, start = args[at + 2], number(args[at + 3])
    answers[i] = '0'
    if u and u.fence == args[at + 1] and u.state == LEASED then
      answers[i] = '1'
      if start >= 0 then
        append(x, id, u, start, number(args[at + 4]), number(args[at + 5]), args[at + 6])
      end
      if reason == 'unit_failure' then
        u.failures = u.failures + 1
      end
      give_back(x, id, u, reason, list, aged)
      grown[#grown + 1] = group_of(id)
      if reason == 'unit_failure' and u.failures >= limit then
        failed[#failed + 1] = { id, u, args[at + 7] }
      end
    elseif u and u.fence == args[at + 1] and is_dropped(u) then
      answers[i] = '1'
      let_go(x, id, u.owner)
    end
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

local function expire(keys, args)
  local x = open(keys, args)
  local count = expire_due(x)
  done(x)
  return count
end
