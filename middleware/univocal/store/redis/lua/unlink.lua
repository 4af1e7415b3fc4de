#!lua flags=allow-oom
-- KEYS: what goes. Gives how many there were.

return redis.call('UNLINK', unpack(KEYS))
