#!lua flags=no-cluster,allow-oom
-- Whether the namespace is still the one that was attached to.

return 1
