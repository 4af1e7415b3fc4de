"""HTTP caching (RFC 9111): what may be stored and reused, and where it is kept; pure, but for `shared`."""
