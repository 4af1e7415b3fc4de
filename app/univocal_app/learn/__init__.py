"""Learning the rules: what an origin and its logs say about which URLs are one."""
