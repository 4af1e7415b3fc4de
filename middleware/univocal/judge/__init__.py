"""The judgement of a request: who asks, what for, and what is decided."""
