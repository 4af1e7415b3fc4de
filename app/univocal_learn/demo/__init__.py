"""The demo: the proxy before four small origins, and what to try with curl."""
