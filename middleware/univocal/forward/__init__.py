"""Out to the origin servers of a route: which of them is asked, what it is sent, and who is asked next."""
