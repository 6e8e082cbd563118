/** The Upstash store's verbs for those who advance a run, in Lua: claim, commit, renew and stream. */
import { page } from "./upstash_reading.ts";

/**
 * Answers {"nothing", delivery or false}, {"busy", delivery, until, token}, or {"claimed", {token, attempts, claims, from, length}, settings,
 * progress, open calls, signs, entries}.
 */
export const claim = page + `
local incarnation, run, ticket = arg(), arg(), num()
local message, lease_ms, known, known_incarnation = arg(), num(), num(), arg()
if not load() or m.incarnation ~= incarnation or not active() then return {'nothing', false} end
local ends, holder
if m.status == 'running' then ends, holder = held() end
if m.run ~= run or m.ticket ~= ticket or (m.wake > 0 and m.wake > time()) then
  return {'nothing', not ends and delivery()}
end
-- A later try of the message that holds it takes over; "*" is later than any.
local function takes_over()
  local before, other = holder:match('^(%S+) (.*)$')
  local tries, same = message:match('^(%S+) (.*)$')
  return same == other and (tries == '*' or before == '*' or tonumber(tries) > tonumber(before))
end
if ends and not takes_over() then return {'busy', delivery(), ends, m.token} end

m.status, m.claimed, m.wake, m.holder, m.sequence, m.outcome = 'running', 1, 0, message, 0, ''
m.token, m.attempts, m.claims = m.token + 1, m.attempts + 1, m.claims + 1
hold(lease_ms)
void_partial()
save()
local from = known_incarnation == m.incarnation and known <= m.length and known or 0
return {'claimed', {m.token, m.attempts, m.claims, from, m.length}, call('HGET', RUNS, 'settings:' .. m.run), m.progress,
  open_calls(), signs(), page(from)}
`;

/**
 * Answers {"lost"}, {"sequence", last, status}, or {"ok", outcome, signs, repeated, entries, taken}. The outcome is
 * "quiet" or "quiet run ticket wake". To a commit that applied it tells only what its sender cannot know: the entries before its own,
 * and those it took. A repeat gets all entries after `known` in the first list.
 */
export const commit = `
local incarnation, token, sequence, known, due = arg(), num(), num(), num(), num()
local advances, head = arg() == '1', opt()
local function change()
  return {append = list(), open = list(), close = list(), progress = opt(), leave = arg(), wake = num(), ending = arg(), successor = opt()}
end
local base, has_quiet = change(), arg() == '1'
local quiet, takes = has_quiet and change(), {}
for i = 1, num() do takes[i] = {all = arg() == '1', kinds = arg()} end

if not leased(incarnation, token) then return {'lost'} end
local function answer(repeated, entries, taken)
  return {'ok', m.outcome, signs(), repeated, entries, taken}
end
if sequence == m.sequence and m.outcome ~= '' then return answer(1, call('LRANGE', LOG, known, -1), {}) end
if sequence ~= m.sequence + 1 or m.status ~= 'running' then return {'sequence', m.sequence, m.status} end

local function write(c)
  for _, entry in ipairs(c.append) do append(entry) end
  many('HSET', OPEN, c.open)
  many('HDEL', OPEN, c.close)
  m.progress = c.progress or m.progress
end
-- Mail leaves the box only here, together with its coming into the log (rule 2).
local function take()
  local taken, mails = {}, nil
  if m.steering + m.follow_up == 0 then return taken end
  for _, t in ipairs(takes) do
    for _, mail in ipairs(box()) do
      if t.kinds:find(mail.kind, 1, true) and (t.all or #taken == 0) then
        remove(mail)
        taken[#taken + 1] = (head or 'user ' .. m.run .. ' . 0') .. ' ' .. mail.id .. '\\n' .. mail.body
      end
    end
    if #taken > 0 then break end
  end
  for _, entry in ipairs(taken) do append(entry) end
  return taken
end
-- All mail is for another run now. In place, as the box must keep its end.
local function readdress(run)
  for i, mail in ipairs(box()) do
    local noted = mail.noted and '1' or '0'
    call('LSET', MAIL, i, mail.kind .. ' ' .. mail.id .. ' ' .. run .. ' ' .. noted .. '\\n' .. mail.body)
  end
end
-- Releases the lease; answers whether there is something to publish. The token stays, so that a repeat is recognised.
local function leave(c)
  if c.leave == 'queued' or c.leave == 'waiting' then
    if c.leave == 'waiting' then -- is no failure, however often (rule 7)
      m.attempts, m.claims = max(0, m.attempts - 1), m.claims - 1
    end
    rest(c.leave)
    ring(due, c.wake)
    return true
  end
  local successor = c.leave == 'completed' and m.steering + m.follow_up > 0 and c.successor
  end_run(c.leave, c.ending, successor)
  close_calls()
  if not successor then rest(c.leave) return false end
  readdress(successor)
  start(successor, call('HGET', RUNS, 'settings:' .. m.run), due)
  return true
end

local before = m.length
local applies = has_quiet and known == before
local unknown = known < before and call('LRANGE', LOG, known, before - 1) or {}
m.sequence = sequence
if advances then m.attempts = 0 end
write(base)
if applies then write(quiet) end
local taken = {}
if applies or not has_quiet then taken = take() end
local leaving = applies and quiet.leave ~= '' and quiet or base
m.outcome = applies and '1' or '0'
if leaving.leave ~= '' and leave(leaving) then
  m.outcome = m.outcome .. ' ' .. m.run .. ' ' .. digits(m.ticket) .. ' ' .. digits(m.wake)
end
if m.length > before then drop_partial() end
save()
return answer(0, unknown, taken)
`;

/** Answers {"lost"} or {"ok", signs}. Nobody is told: there is nothing new to see. */
export const renew = `
local incarnation, token, lease_ms = arg(), num(), num()
if not leased(incarnation, token) or m.status ~= 'running' then return {'lost'} end
hold(lease_ms)
if prolong() then
  write_meta()
  for _, key in ipairs(lasting) do expire(key) end
end
return {'ok', signs()}
`;

/** Answers 1 or 0. Positions go on counting while the log has the same length, so no position names two items. */
export const stream = `
local incarnation, token, reset, items = arg(), num(), arg() == '1', list()
if not leased(incarnation, token) or m.status ~= 'running' then return 0 end
if reset then void_partial() end
local base, skip, count = partial()
if not base or count == 0 then
  base, skip, count = m.length, base == m.length and skip or 0, 0
end
many('RPUSH', LIVE, items)
local there = call('LLEN', LIVE)
skip, count = skip + count + #items - there, there -- what has expired meanwhile is void
m.live = digits(base) .. ' ' .. digits(skip) .. ' ' .. digits(count)
call('PEXPIRE', LIVE, 600000)
save()
return 1
`;
