"""A store in a directory: entries in SQLite, purges in a mapped file; for the processes of one machine."""
