"""`python -m univocal_app` is `univocal`."""

from .cli import main

main()
