"""The parts of fuzz/exchange.py: what is played, and a second reading of HTTP to judge by."""
