"""The judgement of a request: its client, its target, and the decision."""
