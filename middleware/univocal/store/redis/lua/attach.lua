#!lua flags=no-cluster,allow-oom
-- KEYS: the marker. ARGV: how a namespace of this run begins, a token for a new one, the token of one that is
-- refused. Gives the token of the namespace and Redis's time. It writes nothing in a namespace that is there,
-- but where it must not write it fails.

local value, token = redis.pcall('GET', KEYS[1]), nil
if type(value) == 'string' and string.sub(value, 1, #ARGV[1]) == ARGV[1] then
  token = string.match(string.sub(value, #ARGV[1] + 1), '^(%x+):$')
end
if not token or token == ARGV[3] then
  token = ARGV[2]
  redis.call('SET', KEYS[1], ARGV[1] .. token .. ':')
end
local time = redis.call('TIME')
return {token, time[1], time[2]}
