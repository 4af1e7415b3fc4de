"""Makes the tables and three pages, and serves them at the port."""

import os
import sys

import django
import uvicorn
from django.core.asgi import get_asgi_application
from django.core.management import call_command

os.environ["DJANGO_SETTINGS_MODULE"] = "wagtail_site.settings"
django.setup()

from wagtail.models import Locale, Page, Site  # noqa: E402

from wagtail_site.models import Article  # noqa: E402

call_command("migrate", run_syncdb=True, verbosity=0)
locale = Locale.objects.create(language_code="en-us")
root = Page.add_root(title="Root", slug="root", locale=locale)
home = root.add_child(instance=Article(title="Home", slug="home", text="home 1"))
Site.objects.create(hostname="en.example", root_page=home, is_default_site=True)
for slug in ("news", "café"):
    home.add_child(instance=Article(title=slug, slug=slug, text=f"{slug} 1"))
uvicorn.run(get_asgi_application(), port=int(sys.argv[1]), log_level="warning", lifespan="off")
