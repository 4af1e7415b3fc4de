"""Words of HTTP: messages, fields, framing, authority, errors. Pure."""
