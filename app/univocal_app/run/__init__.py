"""The program at work: sockets, processes, reloads, and the origin servers of a configuration."""
