#!lua flags=allow-oom
-- KEYS: what an older version stored. Gives how many there were.

return redis.call('UNLINK', unpack(KEYS))
