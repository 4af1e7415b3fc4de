"""The store, which keeps responses."""
