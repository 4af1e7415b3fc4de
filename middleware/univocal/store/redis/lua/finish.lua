#!lua flags=allow-oom
-- KEYS: lock. ARGV: token. Releases a fetch lock.

if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 0
