"""univocal.toml: its tables, its values, and what a setting that cannot be is told."""
