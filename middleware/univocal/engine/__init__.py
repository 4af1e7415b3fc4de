"""One request's way, from its judgement to its answer, and who shares whose answer."""
