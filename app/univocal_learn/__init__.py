"""Learning, importing and exporting rules, and the demo: the command line loads it, the proxy never."""
