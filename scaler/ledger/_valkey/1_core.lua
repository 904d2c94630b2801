-- What every call stands on: the store's clock, the job's counters, packed unit and group records, the history.
--
-- A call is one function of this library: it reads, decides, writes, and nothing else happens meanwhile. It opens a
-- context `x` (prefix, now, counters), and ends with `done(x)`, which writes the counters back. Records are packed
-- strings, so that one field a unit is read and one is written.
--
-- Keys of a job, all after the prefix "headrace:{job}:", so that they share a slot:
--   m   hash    settings and counters                    u   hash    unit -> state
--   r   hash    unit -> its constant numbers             p   hash    unit or group -> prompt body
--   j:U string  journal of unit U, 12 bytes a token      s   hash    unit -> sample body
--   q   zset    groups never leased, by order of put     t   zset    pending units of admitted groups, by admission
--   k   zset    units waiting for their back-off         l   zset    leased units, by deadline
--   g   hash    group -> record                          o   zset    admitted, unfinished groups, by admission
--   y   zset    complete groups, by completion           b   hash    batch -> its groups
--   n   zset    batches not acknowledged                 a   hash    unit to abandon -> its holder
--   w:W hash    worker W                                 h:W set     units that W holds
--   f   zset    workers, by when they went               d   hash    drops by reason and length
--   e   list    dead letters                             v   hash    group -> highest epoch ever known, after compaction
--   x   stream  history                                  i   hash    object -> how many records name it
--   z   zset    objects that no record names, since when

-- Set by `open`: while it is loaded, a library may name nothing but `redis.register_function`.
local call, fmt, match, concat, encode

local function fail(code, text)
  error({ err = code .. ' ' .. text })
end

-- Names of counters that nearly every call needs; the others are read where they are needed.
local HOT = { 'epoch', 'fence', 'seq', 'pending', 'running', 'buffered', 'admitted', 'bound', 'concurrent', 'version',
  'abandoned', 'trainer_epoch', 'configured', 'staleness' }

local function key(x, name)
  return x.prefix .. name
end

-- args[1] is a time to use instead of the store's clock; only clients that tests built send one.
local function open(keys, args)
  if not call then
    call, fmt, match, concat, encode = redis.call, string.format, string.match, table.concat, cjson.encode
  end
  local x = { prefix = keys[1], dirty = {}, m = {} }
  if args[1] ~= '' then
    x.now = tonumber(args[1])
  else
    local t = call('TIME')
    x.now = t[1] + t[2] / 1000000
  end
  x.stamp = fmt('%.6f', x.now)
  local values = call('HMGET', x.prefix .. 'm', unpack(HOT))
  local m = x.m
  for i = 1, #HOT do
    m[HOT[i]] = tonumber(values[i]) or 0
  end
  return x
end

-- A counter outside HOT.
local function load(x, ...)
  local names = { ... }
  local values = call('HMGET', key(x, 'm'), ...)
  for i = 1, #names do
    if x.m[names[i]] == nil then
      x.m[names[i]] = tonumber(values[i]) or 0
    end
  end
end

local function set(x, name, value)
  x.m[name] = value
  x.dirty[name] = true
end

local function add(x, name, delta)
  if x.m[name] == nil then
    load(x, name)
  end
  x.m[name] = x.m[name] + delta
  x.dirty[name] = true
end

local function done(x)
  local fields = { 'HSET', key(x, 'm') }
  for name in pairs(x.dirty) do
    fields[#fields + 1] = name
    fields[#fields + 1] = fmt('%.0f', x.m[name])
  end
  if #fields > 2 then
    call(unpack(fields))
  end
end

-- Many fields or members in one command; Lua's stack bounds how many go at once.
local function many(command, name, list)
  local n = #list
  if n == 0 then
    return
  end
  if n <= 4000 then
    call(command, name, unpack(list))
    return
  end
  for first = 1, n, 4000 do
    call(command, name, unpack(list, first, math.min(first + 3999, n)))
  end
end

local function fetch(name, fields)
  local n = #fields
  if n <= 4000 then
    return n == 0 and {} or call('HMGET', name, unpack(fields))
  end
  local values = {}
  for first = 1, n, 4000 do
    local part = call('HMGET', name, unpack(fields, first, math.min(first + 3999, n)))
    for i = 1, #part do
      values[first + i - 1] = part[i]
    end
  end
  return values
end

-- Events: `entries` is text, one "<length of subject> <subject> <values...>\n" a subject; `data` is JSON or ''.
local function entry(list, subject, values)
  list[#list + 1] = fmt('%d %s %s\n', #subject, subject, values)
end

local function event(x, kind, worker, data, entries)
  local seq = x.m.seq + 1
  set(x, 'seq', seq)
  call('XADD', key(x, 'x'), fmt('%.0f-0', seq), 'k', kind, 't', x.stamp, 'w', worker, 'd', data, 'e', entries)
end

-- Units. Codes: P pending, L leased, C committed, X consumed, D dropped, E dropped after its commit, F failed for good.
-- `score` is where the unit stands in the queue: order of its group's admission, then its place in the group.
local UNIT = '^(%a) (%S+) (%d+) (%d+) (%d+) (%d+) (%-?%d+) (%d+) (%d+) ([01]) (.*)$'
local FRESH = 'P 0.0 0 0 0 0 -1 0 0 0 '
local FRESH_RESTART = 'P 0.0 0 0 0 0 -1 0 0 1 '

local function unit_of(text)
  local code, fence, attempt, returns, failures, published, oldest, score, tokens, restart, owner = match(text, UNIT)
  return {
    code = code, fence = fence, attempt = attempt + 0, returns = returns + 0, failures = failures + 0,
    published = published + 0, oldest = oldest + 0, score = score + 0, tokens = tokens + 0, restart = restart, owner = owner,
  }
end

local function text_of(u)
  return fmt('%s %s %d %d %d %d %d %.0f %d %s %s', u.code, u.fence, u.attempt, u.returns, u.failures, u.published,
    u.oldest, u.score, u.tokens, u.restart, u.owner)
end

-- The units of these ids, nil where one is unknown; one record an id, also where an id comes twice.
local function units_of(x, ids)
  local texts, units = fetch(key(x, 'u'), ids), {}
  for i = 1, #ids do
    if texts[i] and not units[ids[i]] then
      units[ids[i]] = unit_of(texts[i])
    end
  end
  return units
end

local function group_of(unit_id)
  return match(unit_id, '^(.*)/%d+$')
end

-- Groups. States: q never leased, o admitted, y complete, b in a batch, x consumed, d dropped.
-- `oldest` is the oldest version in its samples and journals, -1 without any; `redraws` counts draws after dead letters.
local GROUP = '^(%a) (%d+) (%d+) (%-?%d+) (%d+) (%S+)$'

local function group_record(text)
  local state, size, committed, oldest, redraws, complete_at = match(text, GROUP)
  return {
    state = state, size = size + 0, committed = committed + 0, oldest = oldest + 0, redraws = redraws + 0,
    complete_at = complete_at,
  }
end

local function group_text(g)
  return fmt('%s %d %d %d %d %s', g.state, g.size, g.committed, g.oldest, g.redraws, g.complete_at)
end

local function group(x, name)
  local text = call('HGET', key(x, 'g'), name)
  return text and group_record(text) or nil
end

local function keep_group(x, name, g)
  call('HSET', key(x, 'g'), name, group_text(g))
end

local function members(name, size)
  local ids = {}
  for i = 1, size do
    ids[i] = name .. '/' .. (i - 1)
  end
  return ids
end

-- The version that a sample must have at least to be trained on; nothing is too old before the first publication.
local function too_old(x, oldest)
  return oldest >= 0 and x.m.version > 0 and x.m.version - 1 - oldest > x.m.staleness
end

local function older(a, b)
  if a < 0 then
    return b
  end
  return (b < 0 or a < b) and a or b
end

-- What worker-facing replies carry. `gone`: ids that the worker still names and that were dropped.
local function control(x, worker, mark, lost, gone)
  local c, abandon = { now = x.stamp, lost = lost }, gone or {}
  if mark[1] then
    c.deadline, c.reason = mark[1], mark[2]
  end
  if x.m.version > 0 then
    c.version = x.m.version - 1
  end
  if x.m.abandoned > 0 then
    local all = call('HGETALL', key(x, 'a'))
    for i = 1, #all, 2 do
      if all[i + 1] == worker then
        abandon[all[i]] = true
      end
    end
  end
  for id in pairs(abandon) do
    c.abandon = c.abandon or {}
    table.insert(c.abandon, id)
  end
  return c
end
