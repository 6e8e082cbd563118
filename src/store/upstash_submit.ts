/** The Upstash store's verbs for those who send, in Lua: submit and withdraw. */

/** Answers {is}, or {is, run, message, status, started, delivery or false}. */
export const submit = `
local run, incarnation, settings, like = arg(), arg(), opt(), opt()
local kind, id, body, note = arg(), arg(), arg(), arg()
local path, entry = opt(), arg()
local key, hash = opt(), arg()
local busy, end_body, due = arg(), arg(), num()
local known = load()

local function accepted(message, started, publish)
  return {'ok', m.run, message, m.status, started and 1 or 0, publish and delivery() or false}
end
local function again(run, message)
  local status = call('HGET', RUNS, 'status:' .. run) or m.status
  return {'repeat', run, message, status, 0, m.run == run and unheld() and delivery() or false}
end
-- A run that waits is queued.
local function wake()
  if m.status ~= 'waiting' then return false end
  rest('queued')
  ring(due)
  return true
end

local function answer()
  local open = m.run == like and active() and call('HGET', OPEN, path) or ''
  local state = open:sub(1, 1)
  if state == 'a' then return again(m.run, '-') end
  if state ~= 'w' then return {'closed'} end
  call('HSET', OPEN, path, 'a' .. open:sub(2))
  append(entry)
  return accepted('-', false, wake())
end

-- Mail for a run that is active.
local function wait()
  if kind ~= '' then
    if m.steering + m.follow_up >= 64 or m.mail_bytes + #body > 1000000 then return {'full'} end
    post(kind, id, m.run, 1, body)
    append('queued ' .. m.run .. ' . 0 ' .. id .. '\\n' .. note)
    if kind == 'steering' then wake() end
  end
  -- A wait that goes on needs no delivery now; any other ticket that nobody holds is published again.
  return accepted(id, false, m.status ~= 'waiting' and unheld())
end

local function accept()
  local is_busy = known and active()
  if is_busy and busy == 'reject' then return {'busy'} end
  if is_busy and busy ~= 'interrupt' then return wait() end
  settings = settings or (like and call('HGET', RUNS, 'settings:' .. like))
  if not settings then return {'unknown'} end
  if is_busy then cancel(end_body) end
  if not known then make(incarnation) end
  -- What starts a run is never refused for mail left over from an earlier one: nothing could ever start here any more.
  if kind ~= '' then post(kind, id, run, 0, body) end
  start(run, settings, due)
  return accepted(id, true, true)
end

-- The thread's last 1,000 keys, numbered: "number run message hash".
local function remember(run, message)
  m.keys = m.keys + 1
  if m.keys == 1 then fresh[#fresh + 1] = SEEN end
  local record = digits(m.keys) .. ' ' .. run .. ' ' .. message .. ' ' .. hash
  call('HSET', SEEN, 'key:' .. key, record, 'number:' .. m.keys, key)
  local old = m.keys - 1000
  local name = old > 0 and call('HGET', SEEN, 'number:' .. old)
  if not name then return end
  call('HDEL', SEEN, 'number:' .. old)
  -- A key that was forgotten may have come again under a later number.
  local kept = call('HGET', SEEN, 'key:' .. name)
  if kept and kept:match('^%d+') == digits(old) then call('HDEL', SEEN, 'key:' .. name) end
end

local record = known and key and call('HGET', SEEN, 'key:' .. key)
if record then
  local seen_run, message, seen_hash = record:match('^%d+ (%S+) (%S+) (.*)$')
  if seen_hash ~= hash then return {'conflict'} end
  return again(seen_run, message)
end
if like and not (known and call('HEXISTS', RUNS, 'first:' .. like) == 1) then return {'unknown'} end
local reply
if path and known then reply = answer() else reply = accept() end
if reply[1] == 'ok' then
  if key then remember(reply[2], reply[3]) end
  save()
end
return reply
`;

/** Answers 1 or 0. */
export const withdraw = `
local id, key = arg(), opt()
if not load() then return 0 end
local mail, others = nil, {}
for _, other in ipairs(box()) do
  if other.id == id then mail = other else others[other.run] = true end
end
-- Mail that was taken is in the log, as answers are: seen by whoever reads it.
if not mail then return 0 end
if not mail.noted and mail.run == m.run and active() and m.claimed == 1 then return 0 end

remove(mail)
if mail.noted then append('withdrawn ' .. mail.run .. ' . 0 ' .. id .. '\\n{}') end
-- Its number stays: it keeps the key of all numbers from becoming empty, and so from losing its end.
if key then call('HDEL', SEEN, 'key:' .. key) end
-- Others may have sent mail to the run meanwhile, and were told that it was accepted: then it stays.
if active() and m.claimed == 0 and not others[m.run] then
  local run, before = m.run, call('HGET', RUNS, 'before:' .. m.run)
  if before == '' then
    news()
    call('DEL', unpack(KEYS))
    return 1
  end
  for _, field in ipairs({'first:', 'settings:', 'before:'}) do call('HDEL', RUNS, field .. run) end
  if call('HGET', RUNS, 'successor:' .. before) == run then call('HDEL', RUNS, 'successor:' .. before) end
  m.run = before
  rest(call('HGET', RUNS, 'status:' .. before))
end
save()
return 1
`;
