"""Settings as of any Wagtail site; those for the cache are at the end."""

import sys

_, _, PROXY, DATABASE = sys.argv
DJANGO = ("contenttypes", "auth", "sessions", "messages")

SECRET_KEY = "only a test's"
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "wagtail_site.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": DATABASE}}
INSTALLED_APPS = [
    "wagtail_site",
    "wagtail.contrib.frontend_cache",
    "wagtail.users",
    "wagtail.images",
    "wagtail.documents",
    "wagtail.search",
    "wagtail.admin",
    "wagtail",
    "modelcluster",
    "taggit",
    *(f"django.contrib.{app}" for app in DJANGO),
]
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}]
STATIC_URL = "/static/"
WAGTAIL_SITE_NAME = "example"
WAGTAILADMIN_BASE_URL = "http://en.example"

# The tables as the models have them now: the history of their changes would take long to replay.
WAGTAIL = ("core", "users", "images", "docs", "search", "admin")
MIGRATION_MODULES = dict.fromkeys([*(f"wagtail{app}" for app in WAGTAIL), "taggit", "wagtail_site", *DJANGO])

WAGTAILFRONTENDCACHE = {
    "univocal": {"BACKEND": "wagtail.contrib.frontend_cache.backends.HTTPBackend", "LOCATION": PROXY}
}
