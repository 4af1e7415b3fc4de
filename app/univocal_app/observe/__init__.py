"""For operators: access log, metrics, traces, and the admin listener with its page."""
