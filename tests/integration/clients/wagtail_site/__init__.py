"""A Wagtail site under en.example: `python -m wagtail_site PORT PROXY DATABASE`."""
