-- What every call stands on: the store's clock, the job's counters, packed unit and group records, the history.
--
-- A call is one function of this library: it reads, decides, writes, and nothing else happens meanwhile. It opens a
-- context `x` (job, now, counters, groups), and ends with `done(x)`, which writes back what it changed.
--
-- What is slow here is the number of commands, and of strings and tables made: the server has one thread for all. So the
-- units of a group lie in its record, where what is the same for units side by side is compared and written at once. A
-- call reads a group's record once, and writes those that it changed, and the counters, in one command at its end.
--
-- Keys of a job, all after the prefix "headrace:{job}:", so that they share a slot:
--   g   hash    group -> record with its units, '' -> counters
--   c   hash    settings and other words                 s   hash    first unit of a run -> its samples
--   p   hash    group -> draws and what its units ask for
--   j:U string  journal of unit U, 12 bytes a token
--   q   zset    groups never leased, by order of put     t   zset    admitted groups with units that wait, by admission
--   k   zset    units waiting for their back-off         h:N hash    group -> how many of its units worker N holds
--   l   zset    numbers of workers that hold units, none of which runs out before the score
--   o   zset    admitted, unfinished groups              y   zset    complete groups, by completion
--   b   hash    batch -> its groups                      n   zset    batches not acknowledged
--   a   hash    dropped unit -> number of the holder     d   hash    drops by reason and length
--   w:W hash    worker W                                 f   zset    workers, by when they went
--   e   list    dead letters                             x   stream  history
--   v   hash    group -> highest epoch ever known, after compaction
--   i   hash    object -> how many records name it       z   zset    objects that no record names, since when
--   r   string  run id of the server                     m   string  GUARD

-- Set by `open`: while it is loaded, a library may name nothing but `redis.register_function`.
local call, fmt, match, sub, byte, find, rep, concat, encode, pack, unpack_struct, unpack_list
local min, max, number, msgpack, msgunpack

-- Places of the counters. VERSION is the newest published step plus one, 0 before the first.
local EPOCH, FENCE, SEQ, CONFIGURED, BOUND, CONCURRENT, STALENESS, VERSION, VERSION_EPOCH = 1, 2, 3, 4, 5, 6, 7, 8, 9
local PENDING, RUNNING, BUFFERED, HALF_DONE, BACKING_OFF, ABANDONED = 10, 11, 12, 13, 14, 15
local NEXT_EXPIRY, NEXT_DUE, PUT, ADMITTED, COMPLETED, BATCHES = 16, 17, 18, 19, 20, 21
local TRAINER_EPOCH, CONTROLLER_EPOCH, TAKEN, ACCEPTED, DEAD_LETTERED = 22, 23, 24, 25, 26
local COMMITTED_TOKENS, SALVAGED_TOKENS, DISCARDED_TOKENS, HAND_OVERS = 27, 28, 29, 30
local COMPACTING, FORGOTTEN, WORKERS, COUNTERS = 31, 32, 33, 33
local NEVER = 1e15
local NONE = {}

-- Goes before the counters. Those of a build with other records do not begin with it, and are refused.
local SCHEMA = 'blocks\n'
-- Builds that kept the counters in `m` fail on it before they touch anything: MessagePack has no such byte. The later ones
-- take the first one off.
local GUARD = '\193\193'

local function fail(code, text)
  error({ err = code .. ' ' .. text })
end

-- Units. One that BACKS_OFF is pending too. What was DROPPED had no sample, what is a DROPPED_SAMPLE had one.
local PENDING_UNIT, LEASED, COMMITTED, CONSUMED, DROPPED, DROPPED_SAMPLE, FAILED, BACKS_OFF = 1, 2, 3, 4, 5, 6, 7, 8
local HAS_SAMPLE = { [COMMITTED] = true, [CONSUMED] = true, [DROPPED_SAMPLE] = true }

-- Groups. A record is a head, then for each unit a letter (1: it starts anew when it comes back), then for each its state
-- (a byte), then its facts, then its row. `oldest` is the oldest version in samples and journals, -1 without any;
-- `redraws` counts draws after dead letters; `order` is that of admission. Facts are those of the unit's sample, and the
-- oldest version of its journal. Of a row the first LEASE_BYTES tell the lease; who holds the unit comes last, 0: nobody.
local FRESH_GROUP, OPEN_GROUP, COMPLETE, IN_BATCH, FINISHED, GONE = 1, 2, 3, 4, 5, 6
-- state, size, committed, oldest, redraws, complete_at, order
local HEAD, HEAD_BYTES = '<BI4I4i4I4dd', 33
-- tokens, oldest
local FACTS, FACTS_BYTES = '<I4i4', 8
-- fence (epoch, counter), attempt; published, returns, failures, deadline, owner
local ROW, ROW_BYTES, FENCE_BYTES, LEASE_BYTES = '<I4dI4I4I4I4dI4', 40, 12, 16
-- Of a unit that nobody had yet; the end of a row that nobody holds. A journal's token.
local FRESH_FACTS, FRESH_ROW
local NOBODY, TOKEN_BYTES = '\0\0\0\0\0\0\0\0\0\0\0\0', 12

-- `name` is one of the few above, not made up of what a call brings: it is kept.
local function key(x, name)
  local keys = x.job.keys
  local whole = keys[name]
  if not whole then
    whole = x.job.prefix .. name
    keys[name] = whole
  end
  return whole
end

local function bind()
  call, fmt, match, sub, byte = redis.call, string.format, string.match, string.sub, string.byte
  find, rep, concat, encode = string.find, string.rep, table.concat, cjson.encode
  pack, unpack_struct, unpack_list = struct.pack, struct.unpack, unpack
  min, max, number, msgpack, msgunpack = math.min, math.max, tonumber, cmsgpack.pack, cmsgpack.unpack
  FRESH_FACTS, FRESH_ROW = pack(FACTS, 0, -1), pack(ROW, 0, 0, 0, 0, 0, 0, 0, 0)
end

local function fresh_counters()
  local m = {}
  for i = 1, COUNTERS do
    m[i] = 0
  end
  m[NEXT_EXPIRY], m[NEXT_DUE] = NEVER, NEVER
  return m
end

local job_of, counters_of

do
  -- What is kept of a job from call to call: names of its keys, and counters with the text that they were written as. It
  -- decides nothing. Counters hold where the store has that very text, else the store's text is read: after a restart, a
  -- restore, a failover, or a call of another version of this library.
  local MOST_JOBS = 256
  local jobs, job_count = {}, 0

  function job_of(prefix)
    local job = jobs[prefix]
    if not job then
      if job_count == MOST_JOBS then
        jobs, job_count = {}, 0
      end
      job = { prefix = prefix, keys = {}, m = nil, text = nil }
      jobs[prefix], job_count = job, job_count + 1
    end
    return job
  end

  -- A call changes the counters as it goes, so they are kept again by `done` only: a call that fails leaves none behind.
  function counters_of(job, text)
    local m = job.m
    job.m = nil
    if m and text == job.text then
      return m
    end
    if text and sub(text, 1, #SCHEMA) == SCHEMA then
      return msgunpack(sub(text, #SCHEMA + 1))
    end
    if text or call('EXISTS', job.prefix .. 'm') == 1 then
      fail('REFUSED', 'another build of Headrace began the job: let that one finish it, or give this one a job of its own')
    end
    return fresh_counters()
  end
end

-- The context, one for all calls.
local X = {}

local function begin(keys, args)
  if not call then
    bind()
  end
  local job, now = job_of(keys[1]), nil
  if args[1] ~= '' then
    now = number(args[1])
  else
    local t = call('TIME')
    now = t[1] + t[2] / 1000000
  end
  local x = X
  x.job, x.now, x.stamp = job, now, fmt('%.6f', now)
  x.groups, x.changed = {}, {}
  return x
end

-- args[1] is a time to use instead of the store's clock; only clients that tests built send one. `stamp` is `now` as
-- history and replies have it.
local function open(keys, args)
  local x = begin(keys, args)
  x.m = counters_of(x.job, call('HGET', key(x, 'g'), ''))
  return x
end

local function add(x, counter, delta)
  local m = x.m
  m[counter] = m[counter] + delta
  return m[counter]
end

local function check_configured(x)
  if x.m[CONFIGURED] == 0 then
    fail('REFUSED', 'the job is not configured yet')
  end
end

-- Many words in one command, the first `n` of a list or all of it; Lua's stack bounds how many go at once.
local function many(command, name, list, n)
  n = n or #list
  if n == 0 then
    return
  end
  if n <= 4000 then
    call(command, name, unpack_list(list, 1, n))
    return
  end
  for first = 1, n, 4000 do
    call(command, name, unpack_list(list, first, min(first + 3999, n)))
  end
end

local function fetch(name, fields, n)
  n = n or #fields
  if n == 1 then
    return { call('HGET', name, fields[1]) }
  end
  if n <= 4000 then
    return n == 0 and {} or call('HMGET', name, unpack_list(fields, 1, n))
  end
  local values = {}
  for first = 1, n, 4000 do
    local part = call('HMGET', name, unpack_list(fields, first, min(first + 3999, n)))
    for i = 1, #part do
      values[first + i - 1] = part[i]
    end
  end
  return values
end

local length_word, place_word, event_head

do
  -- Words that come again and again, made once: by the length of a name, by that of a worker's, by a place in a group.
  local LENGTHS, HEADS, PLACES = {}, {}, {}
  local MOST_PLACES = 4096

  function length_word(text)
    local n = #text
    local word = LENGTHS[n]
    if not word then
      word = pack('<I2', n)
      LENGTHS[n] = word
    end
    return word
  end

  -- What comes after a group's name in the id of the unit in this place.
  function place_word(place)
    local word = PLACES[place]
    if not word then
      word = '/' .. fmt('%d', place)
      if place < MOST_PLACES then
        PLACES[place] = word
      end
    end
    return word
  end

  -- Events. `data` is JSON or ''; after it come entries: for each subject its length (I2), the subject, and values whose
  -- layout follows from the kind: `scaler/ledger/_valkey/readings.py` reads them. First what goes before the entries.
  function event_head(x, kind, worker, data)
    local lengths = nil
    if data == '' then
      lengths = HEADS[#worker]
      if not lengths then
        lengths = fmt(' %d 0\n', #worker)
        HEADS[#worker] = lengths
      end
    else
      lengths = fmt(' %d %d\n', #worker, #data)
    end
    return kind .. ' ' .. x.stamp .. lengths .. worker .. data
  end
end

local function tell(x, text)
  call('XADD', key(x, 'x'), fmt('%.0f-0', add(x, SEQ, 1)), 'e', text)
end

local function event(x, kind, worker, data, entries)
  tell(x, event_head(x, kind, worker, data) .. entries)
end

local function entry(list, subject, values)
  list[#list + 1] = length_word(subject) .. subject .. values
end

local function pack_head(g)
  return pack(HEAD, g.state, g.size, g.committed, g.oldest, g.redraws, g.complete_at, g.order)
end

-- Keeps what was read of a group for the call; false where there is none.
local function read_group(x, name, text)
  local g = false
  if text and name ~= '' then
    local state, size, committed, oldest, redraws, complete_at, order = unpack_struct(HEAD, text)
    g = {
      name = name, text = text, units = nil, state = state, size = size, committed = committed, oldest = oldest,
      redraws = redraws, complete_at = complete_at, order = order, is_headed = true, is_changed = false, spliced = 0,
    }
  end
  x.groups[name] = g
  return g
end

-- The group of this name, the same for the whole call; false where there is none. `units`: those that were looked at.
local function group(x, name)
  local g = x.groups[name]
  if g == nil then
    return read_group(x, name, call('HGET', key(x, 'g'), name))
  end
  return g
end

-- The group is written when the call ends: its units changed.
local function units_changed(x, g)
  if not g.is_changed then
    g.is_changed = true
    x.changed[#x.changed + 1] = g
  end
end

-- So did its head.
local function changed(x, g)
  g.is_headed = false
  units_changed(x, g)
end

-- The unit in this place, the same for the whole call until `settle`; nil where the group has no such place. Who changes
-- it says so of its group.
local function unit(g, place)
  local u = g.units and g.units[place]
  if not u and place >= 0 and place < g.size then
    local text, size = g.text, g.size
    local row_at = HEAD_BYTES + 10 * size + ROW_BYTES * place + 1
    u = { restart = byte(text, HEAD_BYTES + place + 1) == 49, state = byte(text, HEAD_BYTES + size + place + 1) }
    u.tokens, u.oldest = unpack_struct(FACTS, text, HEAD_BYTES + 2 * size + FACTS_BYTES * place + 1)
    u.epoch, u.counter, u.attempt, u.published, u.returns, u.failures, u.deadline, u.owner =
      unpack_struct(ROW, text, row_at)
    u.fence = sub(text, row_at, row_at + FENCE_BYTES - 1)
    g.units = g.units or {}
    g.units[place] = u
  end
  return u
end

-- Of a row, the bytes that tell the lease.
local function lease_of(u)
  return pack('<I4dI4', u.epoch, u.counter, u.attempt)
end

local settle, splice

do
  -- Of one column of a record: what was there, with `value` of each unit that was looked at in place of its `width` bytes.
  local function column(pieces, g, places, before, width, value)
    local from = before + 1
    for i = 1, #places do
      local at = before + width * places[i] + 1
      pieces[#pieces + 1], pieces[#pieces + 2] = sub(g.text, from, at - 1), value(g.units[places[i]])
      from = at + width
    end
    pieces[#pieces + 1] = sub(g.text, from, before + width * g.size)
  end

  local function state_of(u)
    return string.char(u.state)
  end

  local function facts_of(u)
    return pack(FACTS, u.tokens, u.oldest)
  end

  local function row_of(u)
    return lease_of(u) .. pack('<I4I4I4dI4', u.published, u.returns, u.failures, u.deadline, u.owner)
  end

  -- Brings the group's text up to what was done to its units, which are looked at anew then.
  function settle(g)
    if not g.units then
      return
    end
    local size, places, pieces = g.size, {}, {}
    for place in pairs(g.units) do
      places[#places + 1] = place
    end
    table.sort(places)
    pieces[1] = sub(g.text, 1, HEAD_BYTES + size)
    column(pieces, g, places, HEAD_BYTES + size, 1, state_of)
    column(pieces, g, places, HEAD_BYTES + 2 * size, FACTS_BYTES, facts_of)
    column(pieces, g, places, HEAD_BYTES + 10 * size, ROW_BYTES, row_of)
    g.text, g.units = concat(pieces), nil
  end

  -- Puts states, facts and rows in place of those of `count` units from `place` on, and the head as it is now. None of these
  -- units may have been looked at. `facts`: nil leaves them.
  function splice(g, place, count, states, facts, rows)
    local text, size = g.text, g.size
    local state_at, facts_at = HEAD_BYTES + size + place, HEAD_BYTES + 2 * size + FACTS_BYTES * place
    local row_at = HEAD_BYTES + 10 * size + ROW_BYTES * place
    local before = g.is_headed and sub(text, 1, state_at) or pack_head(g) .. sub(text, HEAD_BYTES + 1, state_at)
    local after = sub(text, row_at + ROW_BYTES * count + 1)
    if facts then
      g.text = before .. states .. sub(text, state_at + count + 1, facts_at) .. facts
        .. sub(text, facts_at + FACTS_BYTES * count + 1, row_at) .. rows .. after
    else
      g.text = before .. states .. sub(text, state_at + count + 1, row_at) .. rows .. after
    end
    g.is_headed, g.spliced = true, g.spliced + 1
  end
end

-- Nothing may change groups or counters after it. It writes though nothing has changed: who waits for the disk waits for
-- what this connection wrote last, and a call that is repeated on a new one is to find on disk what the first had done.
local function done(x)
  local text, list, groups = SCHEMA .. msgpack(x.m), x.changed, key(x, 'g')
  if #list == 0 then
    call('HSET', groups, '', text)
  else
    local words = { '', text }
    for i = 1, #list do
      local g = list[i]
      if not g.is_forgotten then
        settle(g)
        words[#words + 1] = g.name
        words[#words + 1] = g.is_headed and g.text or pack_head(g) .. sub(g.text, HEAD_BYTES + 1)
      end
    end
    many('HSET', groups, words)
  end
  x.job.m, x.job.text = x.m, text
end

local function id_of(g, place)
  return g.name .. place_word(place)
end

local function is_dropped(u)
  return u.state == DROPPED or u.state == DROPPED_SAMPLE
end

local function members(g)
  local ids = {}
  for i = 1, g.size do
    ids[i] = id_of(g, i - 1)
  end
  return ids
end

-- The version that a sample must have at least to be trained on; nothing is too old before the first publication.
local function too_old(x, oldest)
  local version = x.m[VERSION]
  return oldest >= 0 and version > 0 and version - 1 - oldest > x.m[STALENESS]
end

local function older(a, b)
  if a < 0 then
    return b
  end
  return (b < 0 or a < b) and a or b
end

local version_told, version_word

-- What worker-facing replies carry: time and version, then JSON where there is more to say. `mark`: the worker's, with its
-- number. `gone`: ids that the worker still names and that were dropped.
local function control(x, mark, lost, gone)
  local version = x.m[VERSION]
  if version ~= version_told then
    version_told, version_word = version, fmt(' %.0f ', version - 1)
  end
  local plain, more = x.stamp .. version_word, nil
  if x.m[ABANDONED] == 0 and not mark[1] and not lost and not gone then
    return plain
  end
  local abandon = gone or {}
  if x.m[ABANDONED] > 0 then
    local all = call('HGETALL', key(x, 'a'))
    for i = 1, #all, 2 do
      if all[i + 1] == mark[5] then
        abandon[all[i]] = true
      end
    end
  end
  for id in pairs(abandon) do
    more = more or {}
    more.abandon = more.abandon or {}
    table.insert(more.abandon, id)
  end
  if mark[1] then
    more = more or {}
    more.deadline, more.reason = mark[1], mark[2]
  end
  if lost and #lost > 0 then
    more = more or {}
    more.lost = lost
  end
  return more and plain .. encode(more) or plain
end
