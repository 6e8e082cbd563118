/**
 * A thread in Redis, in Lua: its keys, its meta, and what can happen to it at all. Each verb's script is this text and then its own, which
 * `upstash_submit.ts`, `upstash_slice.ts` and `upstash_reading.ts` hold.
 *
 * A script touches only the keys it is given, which all bear the thread's hash tag: so Upstash locks no more than them. It never looks
 * into the body of an entry (DESIGN rule 6). It reads the meta once, changes it in memory, and writes what changed at its end.
 */

/** Of what a thread's keys hold, kept in its meta. Whoever changes that counts it up and says how older threads become the new. */
export const version = 1;
/** How scripts say that a thread has a version from the future. */
export const newerVersion = "PAWL_VERSION";

/** In the order in which scripts take them. The last two have ends of their own; the others end together with the thread. */
const names = ["meta", "log", "open", "mail", "runs", "seen", "blobs", "live", "lease"];

export function threadKeys(prefix: string, thread: string): string[] {
  return names.map((name) => `${prefix}{${thread}}:${name}`);
}

/** What scripts publish on, while somebody watches. */
export function channelOf(prefix: string, thread: string): string {
  return threadKeys(prefix, thread)[0]!;
}

/**
 * `open` and `mail` keep a sentinel, for Redis removes an emptied key together with its end, and what came back would live for ever. `log`
 * and `seen` begin empty and get their end with their first value; they are never empty again.
 */
export const prelude = `
local VERSION = ${version}
local META, LOG, OPEN, MAIL, RUNS, SEEN, BLOBS, LIVE, LEASE = unpack(KEYS)
local lasting = {META, LOG, OPEN, MAIL, RUNS, SEEN, BLOBS}
local call, max = redis.call, math.max

-- Arguments, one after the other. An optional one is '' or '=' and its value.
local at = 0
local function arg() at = at + 1 return ARGV[at] end
local function num() return tonumber(arg()) end
local function opt() local v = arg() if v ~= '' then return v:sub(2) end end
local function list() local t = {} for i = 1, num() do t[i] = arg() end return t end

-- The sender's clock says when to look at lifetimes; only if it alone counts, as in tests, does it say anything else.
local now, alone, ttl = num(), arg() == '1', num()
local moment
local function time()
  if alone then return now end
  if not moment then
    local t = call('TIME')
    moment = t[1] * 1000 + math.floor(t[2] / 1000)
  end
  return moment
end

-- Lua hands a command at most some thousands of arguments.
local function many(command, key, values)
  for i = 1, #values, 4000 do call(command, key, unpack(values, i, math.min(i + 3999, #values))) end
end

-- Meta: m is what it is to be, was what Redis holds. A number that is 0, or a text that is '', is absent.
local texts = {'incarnation', 'run', 'status', 'outcome', 'holder', 'progress', 'watchers', 'live'}
local numbers = {'claimed', 'token', 'sequence', 'ticket', 'attempts', 'claims', 'length', 'wake', 'due', 'ends',
  'steering', 'follow_up', 'mail_bytes', 'keys', 'version'}
local fields = {}
for _, f in ipairs(texts) do fields[#fields + 1] = f end
for _, f in ipairs(numbers) do fields[#fields + 1] = f end
local m, was = {}, {}
local function fill(values)
  for i, f in ipairs(fields) do
    was[f] = values[i]
    if i <= #texts then m[f] = values[i] or '' else m[f] = tonumber(values[i] or 0) end
  end
end
local function load()
  fill(call('HMGET', META, unpack(fields)))
  if m.version > VERSION then error('${newerVersion} ' .. m.version) end
  return m.incarnation ~= '' and not (alone and m.ends <= now)
end
local function digits(n) return string.format('%.0f', n) end
local function write_meta()
  local set = {}
  for _, f in ipairs(fields) do
    local v = type(m[f]) == 'number' and digits(m[f]) or m[f]
    if v ~= was[f] then set[#set + 1] = f set[#set + 1] = v end
  end
  if #set > 0 then call('HSET', META, unpack(set)) end
end

-- Lifetime: the end moves outwards only, of all keys at once; not each time, as that is a command for each key.
local function expire(key)
  if alone then call('PEXPIRE', key, m.ends - now) else call('PEXPIREAT', key, m.ends) end
end
local function prolong()
  if max(now, m.wake) + ttl - m.ends < (m.wake > 0 and 1 or ttl / 10) then return false end
  m.ends = max(m.ends, max(time(), m.wake) + ttl)
  return true
end

-- Who watches: ";id end" for each. Ids begin with l where partials are shown, and with n where not. All are told that there is something
-- to read.
local function watches(pattern)
  for ends in m.watchers:gmatch(pattern) do if tonumber(ends) > time() then return true end end
  return false
end
-- What every answer to a slice says of the world outside.
local function signs() return {m.steering, m.follow_up, watches(';l%w* (%d+)') and 1 or 0} end
local function news() if watches(' (%d+)') then call('PUBLISH', META, '') end end

-- Entries for the log, and keys that this script made without an end.
local push, fresh = {}, {}
local function append(entry)
  push[#push + 1] = entry
  m.length = m.length + 1
end
local function save()
  if #push > 0 then
    many('RPUSH', LOG, push)
    if m.length == #push then fresh[#fresh + 1] = LOG end
  end
  if prolong() then fresh = lasting end
  write_meta()
  for _, key in ipairs(fresh) do expire(key) end
  news()
end

-- What is still there of another incarnation goes first.
local function make(incarnation)
  call('DEL', unpack(KEYS))
  fill({})
  m.incarnation, m.version = incarnation, VERSION
  call('HSET', OPEN, '', '')
  call('RPUSH', MAIL, '')
end

-- The delivery that the current ticket makes necessary.
local function delivery() return {m.incarnation, m.run, m.ticket, m.wake} end
local function active() return m.status == 'queued' or m.status == 'running' or m.status == 'waiting' end

-- The lease, "token end holder": its own expiry ends it. Answers when it ends, and who holds it.
local function held()
  local value = call('GET', LEASE)
  if not value then return nil end
  local ends, holder = value:match('^%d+ (%d+) (.*)$')
  if alone then
    if tonumber(ends) <= now then return nil end
    return tonumber(ends), holder
  end
  return time() + call('PTTL', LEASE), holder
end
local function hold(ms)
  local value = digits(m.token) .. ' ' .. digits(now + ms) .. ' ' .. m.holder
  call('SET', LEASE, value, 'PX', alone and ttl or max(1, ms))
end
-- Nobody has claimed the ticket, or the claimant's lease has ended: whoever finds it publishes it again (rule 4).
local function unheld() return active() and (m.status ~= 'running' or not held()) end
-- The latest lease on the thread (rule 1). One that has run out is good until another takes it.
local function leased(incarnation, token) return load() and m.incarnation == incarnation and m.token == token end

-- Nobody holds the thread and nothing is due.
local function rest(status)
  if m.status == 'running' then call('DEL', LEASE) end
  m.status, m.wake, m.due, m.holder = status, 0, 0, ''
end
-- A delivery has become necessary.
local function ring(due, wake)
  m.ticket, m.due, m.wake = m.ticket + 1, due, wake or 0
end
local function start(run, settings, due)
  call('HSET', RUNS, 'first:' .. run, m.length, 'settings:' .. run, settings, 'before:' .. run, m.run)
  m.run, m.claimed, m.attempts, m.claims, m.progress = run, 0, 0, 0, ''
  rest('queued')
  ring(due)
end
local function end_run(status, progress, successor)
  call('HSET', RUNS, 'status:' .. m.run, status, 'progress:' .. m.run, progress)
  if successor then call('HSET', RUNS, 'successor:' .. m.run, successor) end
end

-- Calls without a result, in the order of a message: 3.2 is before 3.10.
local function open_calls()
  local all, calls = call('HGETALL', OPEN), {}
  for i = 1, #all, 2 do
    if all[i] ~= '' then calls[#calls + 1] = {all[i], all[i + 1]} end
  end
  table.sort(calls, function(a, b)
    if #a[1] ~= #b[1] then return #a[1] < #b[1] end
    return a[1] < b[1]
  end)
  return calls
end
local function close_calls()
  local paths = {}
  for _, path in ipairs(call('HKEYS', OPEN)) do
    if path ~= '' then paths[#paths + 1] = path end
  end
  many('HDEL', OPEN, paths)
end

-- The partial that watchers see. m.live says "base skip count" of it.
local function partial()
  local base, skip, count = m.live:match('^(%d+) (%d+) (%d+)$')
  return tonumber(base), tonumber(skip), tonumber(count)
end
-- What was shown is not going to be finished; its positions stay used.
local function void_partial()
  if m.live == '' then return end
  local base, skip, count = partial()
  if count > 0 then call('DEL', LIVE) end
  m.live = base .. ' ' .. skip + count .. ' 0'
end
-- The log has grown past it.
local function drop_partial()
  if m.live ~= '' then call('DEL', LIVE) end
  m.live = ''
end

-- Final in itself: the token counted up is what stops the run's slice (rule 8).
local function cancel(end_body)
  for _, open in ipairs(open_calls()) do append(open[2]:sub(2)) end
  append('end ' .. m.run .. ' . 0 -\\n' .. end_body)
  close_calls()
  end_run('cancelled', m.progress)
  rest('cancelled')
  m.token = m.token + 1
  drop_partial()
end

-- Mail: "kind id run noted", and the body. noted: whether the log says that it waits.
local function post(kind, id, run, noted, body)
  call('RPUSH', MAIL, kind .. ' ' .. id .. ' ' .. run .. ' ' .. noted .. '\\n' .. body)
  m[kind], m.mail_bytes = m[kind] + 1, m.mail_bytes + #body
end
local function box()
  local mails = {}
  for i, item in ipairs(call('LRANGE', MAIL, 1, -1)) do
    local kind, id, run, noted, body = item:match('^(%S+) (%S+) (%S+) (%d)\\n(.*)$')
    mails[i] = {item = item, kind = kind, id = id, run = run, noted = noted == '1', body = body}
  end
  return mails
end
local function remove(mail)
  call('LREM', MAIL, 1, mail.item)
  m[mail.kind], m.mail_bytes = m[mail.kind] - 1, m.mail_bytes - #mail.body
end
`;
