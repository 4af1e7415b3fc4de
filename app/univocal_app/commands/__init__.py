"""The commands of `univocal`, each of which ends with an exit status."""
