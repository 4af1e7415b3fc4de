"""A Wagtail site under en.example: `python wagtail_site SOCKET PROXY DATABASE`."""
