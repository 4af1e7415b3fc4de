#!lua flags=no-cluster,no-writes
-- KEYS: entry. ARGV: variant. Gives its description.

return redis.call('HGET', KEYS[1], 'm' .. ARGV[1])
