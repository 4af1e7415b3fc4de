"""The prose linter: Markdown pages and docstrings, held to our rules of style."""
