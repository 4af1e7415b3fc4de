"""What tools/differential.py is made of: the sequences, the origin server, the oracle, and the caches that play."""
