#!lua flags=allow-oom
-- KEYS: head, log, last, how. ARGV: the address by which this server was reached, the last number that this node
-- knows. Finds the journal, or begins one.
-- Gives the number of the last purge, the horizon, the history, Redis's time in seconds and microseconds.
--
-- A number is never given twice. A journal begins at Redis's time in microseconds, and leaps there when the
-- server's history is another one: the last purges may be lost with the server that was before. If that was
-- another server, which this one followed as a replica, those are few, and nodes publish them again. If not (a
-- server that read an old file), what was stored before counts as purged. Such a server may seem to have followed
-- itself, under another address; but it started after all that the file says, and a replica was there before.

local head, time = KEYS[1], redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local info = redis.call('INFO', 'replication')
local history = string.match(info, 'master_replid:(%x+)')
local before = string.match(info, 'master_replid2:(%x+)')
local known = redis.pcall('HMGET', head, 'number', 'horizon', 'history', 'address', 'written')
local number, horizon = tonumber(known[1] or nil), tonumber(known[2] or nil)
local uptime = tonumber(string.match(redis.call('INFO', 'server'), 'uptime_in_seconds:(%d+)'))
local written = tonumber(known[5] or nil)
local is_younger = not (uptime and written and time[1] - uptime < written - 1)  -- both are whole seconds
local function renew(from)
  redis.call('DEL', KEYS[1], KEYS[2], KEYS[3], KEYS[4])
  number, horizon = from, from
end
if not (number and horizon) then
  renew(math.max(now, ARGV[2] + 1))
elseif known[3] ~= history then
  number = math.max(number, now, tonumber(ARGV[2])) + 1
  if known[4] == ARGV[1] or before ~= known[3] or is_younger then renew(number) end
elseif number < tonumber(ARGV[2]) then
  renew(math.max(now, ARGV[2] + 1))
elseif not complete(KEYS) then
  renew(number + 1)
end
redis.call('HSET', head, 'number', string.format('%.0f', number), 'horizon', string.format('%.0f', horizon),
  'history', history, 'address', ARGV[1], 'written', time[1])
return {number, horizon, history, tonumber(time[1]), tonumber(time[2])}
