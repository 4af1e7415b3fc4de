"""The way to origin servers: connections, pools, balance, health."""
