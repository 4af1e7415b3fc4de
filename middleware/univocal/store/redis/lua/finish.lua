#!lua flags=allow-oom
-- KEYS: turn. ARGV: token. Gives a turn back.

if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 0
