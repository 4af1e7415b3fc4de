"""The program `univocal`: the proxy that people run, built on the library."""
