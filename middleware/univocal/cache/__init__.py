"""HTTP caching (RFC 9111) as decisions: what may be stored, and what is stored may answer. Pure."""
