-- What every call stands on: the store's clock, the job's counters, packed unit and group records, the history.
--
-- A call is one function of this library: it reads, decides, writes, and nothing else happens meanwhile. It opens a
-- context `x` (job, now, counters), and ends with `done(x)`, which writes the counters back.
--
-- What is slow here is the number of commands, and of strings and tables made: the server has one thread for all. So
-- records are packed (one field a unit is read and one is written), commands take all units of a call at once, and where
-- a call takes many units, lists that all calls share are filled anew instead of made: whoever fills one says how long
-- it is, and what lies beyond is of an earlier call.
--
-- Keys of a job, all after the prefix "headrace:{job}:", so that they share a slot:
--   m   string  counters                                 c   hash    settings and other words
--   u   hash    unit -> record                           s   hash    first unit of a run -> its samples
--   g   hash    group -> record                          p   hash    group -> draws and what its units ask for
--   j:U string  journal of unit U, 12 bytes a token
--   q   zset    groups never leased, by order of put     t   zset    pending units of admitted groups, by admission
--   k   zset    units waiting for their back-off         h:W hash    unit that W holds -> deadline, 8 bytes
--   l   zset    workers that hold units, none of which runs out before the score
--   o   zset    admitted, unfinished groups              y   zset    complete groups, by completion
--   b   hash    batch -> its groups                      n   zset    batches not acknowledged
--   a   hash    dropped unit -> holder to be told        d   hash    drops by reason and length
--   w:W hash    worker W                                 f   zset    workers, by when they went
--   e   list    dead letters                             x   stream  history
--   v   hash    group -> highest epoch ever known, after compaction
--   i   hash    object -> how many records name it       z   zset    objects that no record names, since when

-- Set by `open`: while it is loaded, a library may name nothing but `redis.register_function`.
local call, fmt, match, sub, concat, encode, pack, unpack_struct, unpack_list, min, max, number, msgpack, msgunpack

-- Places of the counters. VERSION is the newest published step plus one, 0 before the first.
local EPOCH, FENCE, SEQ, CONFIGURED, BOUND, CONCURRENT, STALENESS, VERSION, VERSION_EPOCH = 1, 2, 3, 4, 5, 6, 7, 8, 9
local PENDING, RUNNING, BUFFERED, HALF_DONE, BACKING_OFF, ABANDONED = 10, 11, 12, 13, 14, 15
local NEXT_EXPIRY, NEXT_DUE, PUT, ADMITTED, COMPLETED, BATCHES = 16, 17, 18, 19, 20, 21
local TRAINER_EPOCH, CONTROLLER_EPOCH, TAKEN, ACCEPTED, DEAD_LETTERED = 22, 23, 24, 25, 26
local COMMITTED_TOKENS, SALVAGED_TOKENS, DISCARDED_TOKENS, HAND_OVERS = 27, 28, 29, 30
local COMPACTING, FORGOTTEN, COUNTERS = 31, 32, 32
local NEVER = 1e15
local NONE = {}

-- Goes before the counters. MessagePack has no such byte, so a library that does not know runs of samples fails in `open`, before
-- it touches anything.
local SCHEMA = '\193'

local function fail(code, text)
  error({ err = code .. ' ' .. text })
end

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
  call, fmt, match, sub, concat, encode = redis.call, string.format, string.match, string.sub, table.concat, cjson.encode
  pack, unpack_struct, unpack_list = struct.pack, struct.unpack, unpack
  min, max, number, msgpack, msgunpack = math.min, math.max, tonumber, cmsgpack.pack, cmsgpack.unpack
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
    if not text then
      return fresh_counters()
    end
    if m and text == job.text then
      return m
    end
    -- Without that byte it was written before there were runs of samples.
    return msgunpack(sub(text, 1, 1) == SCHEMA and sub(text, 2) or text)
  end
end

-- The context, one for all calls.
local X = {}

-- args[1] is a time to use instead of the store's clock; only clients that tests built send one. `stamp` is `now` as
-- history and replies have it.
local function open(keys, args)
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
  x.m = counters_of(job, call('GET', key(x, 'm')))
  return x
end

local function add(x, counter, delta)
  local m = x.m
  m[counter] = m[counter] + delta
  return m[counter]
end

-- Nothing may change the counters after it. It writes though nothing has changed: who waits for the disk waits for what this
-- connection wrote last, and a call that is repeated on a new one is to find on disk what the first had done.
local function done(x)
  local text = SCHEMA .. msgpack(x.m)
  call('SET', key(x, 'm'), text)
  x.job.m, x.job.text = x.m, text
end

local function check_configured(x)
  if x.m[CONFIGURED] == 0 then
    fail('REFUSED', 'the job is not configured yet: its controller sets the rules, unless it is a dry run; '
      .. 'so does `python -m trainer --configure`')  -- `NOT_CONFIGURED` of the contract
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

-- Units. `score` is the place in the queue: order of the group's admission, times 65536, plus the place in the group.
-- After the record comes the last holder's name. The first TOLD bytes are what the history tells of a unit.
local PENDING_UNIT, LEASED, COMMITTED, CONSUMED, DROPPED, DROPPED_SAMPLE, FAILED = 1, 2, 3, 4, 5, 6, 7
-- state, fence (epoch, counter), attempt, published, tokens, oldest; returns, failures, score, restart
local UNIT, UNIT_BYTES, TOLD_UNIT, TOLD = '<BI4dI4I4I4i4I4I4dB', 46, '<BI4dI4I4I4i4', 29

local function pack_unit(u)
  return pack(UNIT, u.state, u.epoch, u.counter, u.attempt, u.published, u.tokens, u.oldest, u.returns, u.failures,
    u.score, u.restart)
end

local function unit_of(text)
  local state, epoch, counter, attempt, published, tokens, oldest, returns, failures, score, restart =
    unpack_struct(UNIT, text)
  return {
    state = state, epoch = epoch, counter = counter, attempt = attempt, published = published, tokens = tokens,
    oldest = oldest, returns = returns, failures = failures, score = score, restart = restart,
    fence = sub(text, 2, 13), owner = sub(text, UNIT_BYTES + 1),
  }
end

-- The units of these ids, nil where one is unknown; one table an id, also where an id comes twice.
local function units_of(x, ids)
  local texts, units = fetch(key(x, 'u'), ids), {}
  for i = 1, #ids do
    if texts[i] and not units[ids[i]] then
      units[ids[i]] = unit_of(texts[i])
    end
  end
  return units
end

local function is_dropped(u)
  return u.state == DROPPED or u.state == DROPPED_SAMPLE
end

local function set_unit(x, id, u)
  call('HSET', key(x, 'u'), id, pack_unit(u) .. u.owner)
end

local function group_of(unit_id)
  return match(unit_id, '^(.*)/%d+$')
end

-- Groups. `oldest` is the oldest version in samples and journals, -1 without any; `redraws` counts draws after dead
-- letters.
local FRESH_GROUP, OPEN_GROUP, COMPLETE, IN_BATCH, FINISHED, GONE = 1, 2, 3, 4, 5, 6
local GROUP = '<BI4I4i4I4d'

local function keep_group(x, name, g)
  call('HSET', key(x, 'g'), name, pack(GROUP, g.state, g.size, g.committed, g.oldest, g.redraws, g.complete_at))
end

local function group(x, name)
  local text = call('HGET', key(x, 'g'), name)
  if not text then
    return nil
  end
  local state, size, committed, oldest, redraws, complete_at = unpack_struct(GROUP, text)
  return {
    state = state, size = size, committed = committed, oldest = oldest, redraws = redraws, complete_at = complete_at,
  }
end

local function members(name, size)
  local ids = {}
  for i = 1, size do
    ids[i] = name .. place_word(i - 1)
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

-- What worker-facing replies carry: time and version, then JSON where there is more to say. `gone`: ids that the worker
-- still names and that were dropped.
local function control(x, worker, mark, lost, gone)
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
      if all[i + 1] == worker then
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
