/** The Upstash store's remaining verbs, in Lua: reading, watching, large values, cancel, delete, and what the indexes must know. */

/** As many entries from an index on as one answer carries (2 MB), but at least one if there is one. */
export const page = `
local function page(from)
  local entries, size, step = {}, 0, 16
  while from + #entries < m.length do
    local first = from + #entries
    local part = call('LRANGE', LOG, first, first + step - 1)
    if #part == 0 then break end
    for _, entry in ipairs(part) do
      size = size + #entry
      if size > 2000000 and #entries > 0 then return entries end
      entries[#entries + 1] = entry
    end
    -- As many more as are likely to fit.
    step = max(1, math.min(4000, math.floor((2000000 - size) / (size / #entries + 1))))
  end
  return entries
end
`;

/** Answers false, or {incarnation, length, current, steering, follow-ups, run or false, entries, live or false}. */
export const read = page + `
local run, from = opt(), opt()
if not load() then return false end
run = run or m.run
local fields = {}
for i, f in ipairs({'first', 'settings', 'status', 'progress', 'successor'}) do fields[i] = f .. ':' .. run end
local first, settings, status, progress, successor = unpack(call('HMGET', RUNS, unpack(fields)))
local record = first and {status or m.status, settings, progress or m.progress, first, successor}
local live = false
if m.live ~= '' then
  local base, skip, count = partial()
  local items = call('LRANGE', LIVE, 0, -1)
  if count > 0 and #items == count then live = {base, skip, items} end
end
return {m.incarnation, m.length, m.run, m.steering, m.follow_up, record, from and page(tonumber(from)) or {}, live}
`;

/** Answers a status, or false when there is no such run. */
export const status = `
local run = arg()
if not load() or call('HEXISTS', RUNS, 'first:' .. run) == 0 then return false end
return call('HGET', RUNS, 'status:' .. run) or m.status
`;

/** Says until when a watcher watches; 0: no longer. Those whose time is over go with it. */
export const watch = `
local id, ms = arg(), num()
if not load() then return 0 end
local watchers = ''
for other, ends in m.watchers:gmatch(';(%w+) (%d+)') do
  if other ~= id and tonumber(ends) > time() then watchers = watchers .. ';' .. other .. ' ' .. ends end
end
m.watchers = watchers .. (ms > 0 and ';' .. id .. ' ' .. digits(time() + ms) or '')
write_meta()
return 1
`;

/** Answers 0 when there is no such thread: written without it, nothing would ever remove the value. */
export const put = `
local hash, value = arg(), arg()
if not load() then return 0 end
if call('HSETNX', BLOBS, hash, value) == 1 then expire(BLOBS) end
return 1
`;

/** Answers false or "=" and the value: the client would drop a byte order mark at the beginning of an answer. */
export const get = `
local hash = arg()
local value = load() and call('HGET', BLOBS, hash)
return value and '=' .. value
`;

export const cancel = `
local run, end_body = arg(), arg()
if not load() or call('HEXISTS', RUNS, 'first:' .. run) == 0 then return 'unknown' end
local ended = call('HGET', RUNS, 'status:' .. run)
if ended then return ended == 'cancelled' and 'repeat' or 'ended' end
cancel(end_body)
save()
return 'ok'
`;

/** Answers whether there was a thread. */
export const remove = `
local known = load()
if known then news() end
call('DEL', unpack(KEYS))
return known and 1 or 0
`;

/** Answers false when nothing is due, {due} when it is not yet, or {due, delivery}, and then moves it on. */
export const overdue = `
local before, next = num(), num()
-- A thread that a newer version wrote is for that version's sweep.
local readable, there = pcall(load)
if not readable then return {next} end
if not there or m.due == 0 then return false end
if m.due >= before then return {m.due} end
m.due = next
write_meta()
return {m.due, delivery()}
`;
