"""A Django project in one file: `python -m django_site PORT [PROXY]`.

Without the address of a proxy univocal's middleware is mounted before it. Its purges go to the proxy, or to
itself: by URL when a book is edited, by tag when an author is.
"""

import contextlib
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import quote
from urllib.request import Request, urlopen

import django
import uvicorn
from django.conf import settings

PORT = int(sys.argv[1])
PROXY = sys.argv[2] if len(sys.argv) > 2 else None

settings.configure(
    SECRET_KEY="only a test's",
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": Path(tempfile.mkdtemp()) / "notes.sqlite3",
            "ATOMIC_REQUESTS": True,
        }
    },
    MIDDLEWARE=[
        "django.middleware.gzip.GZipMiddleware",
        "django.middleware.http.ConditionalGetMiddleware",
        "django.middleware.locale.LocaleMiddleware",
        "django.middleware.common.CommonMiddleware",
    ],
)
django.setup()

from django.core.asgi import get_asgi_application  # noqa: E402
from django.db import connection  # noqa: E402
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse  # noqa: E402
from django.urls import path  # noqa: E402
from django.utils.translation import get_language  # noqa: E402
from django.views.decorators.cache import cache_control  # noqa: E402
from django.views.decorators.csrf import csrf_exempt  # noqa: E402
from django.views.decorators.vary import vary_on_headers  # noqa: E402

from univocal import CacheMiddleware  # noqa: E402

author = {"name": "Ursula"}
texts: dict[str, str] = {}
asked = {"count": 0}


@csrf_exempt
@cache_control(public=True, s_maxage=3600)
@vary_on_headers("Accept-Language")
def book(request: HttpRequest, title: str) -> HttpResponse:
    if request.method == "PUT":  # invalidates by itself (RFC 9111 §4.4)
        texts[title] = request.body.decode()
        return HttpResponse(status=204)
    asked["count"] += 1
    text = f"{title} by {author['name']}: {texts.get(title, 'no text')}"
    return HttpResponse(text, "text/plain", headers={"Surrogate-Key": "author"})


@cache_control(public=True, s_maxage=3600)
def export(request: HttpRequest) -> StreamingHttpResponse:
    asked["count"] += 1
    return StreamingHttpResponse((f"line {number}\n" for number in range(3)), content_type="text/plain")


@cache_control(public=True, no_cache=True)
def news(request: HttpRequest) -> HttpResponse:
    """A page in the client's language, compressed for those who take it, and confirmed by 304s."""
    asked["count"] += 1
    return HttpResponse(f"{get_language()} news, " * 100, "text/plain")


@csrf_exempt
@cache_control(public=True, s_maxage=3600)
def note(request: HttpRequest) -> HttpResponse:
    """A page of the database, which a POST changes in a transaction of its own; some are rolled back."""
    with connection.cursor() as cursor:
        if request.method == "POST":
            cursor.execute("UPDATE notes SET text = %s", [request.body.decode()])
            time.sleep(0.01)
            if request.GET:
                raise LookupError
        text = cursor.execute("SELECT text FROM notes").fetchone()[0]
    return HttpResponse(text, "text/plain")


@csrf_exempt
def edit(request: HttpRequest, title: str) -> HttpResponse:
    texts[title] = request.body.decode()
    purge(quote(f"/books/{title}"), {})
    return HttpResponse(status=204)


@csrf_exempt
def rename(request: HttpRequest) -> HttpResponse:
    author["name"] = request.body.decode()
    purge("/", {"Surrogate-Key": "author"})
    return HttpResponse(status=204)


def purge(target: str, headers: dict[str, str]) -> None:
    address = PROXY or f"http://127.0.0.1:{PORT}"
    urlopen(Request(address + target, method="PURGE", headers={"Host": "en.example", **headers})).close()


def count(request: HttpRequest) -> HttpResponse:
    return HttpResponse(asked["count"], headers={"Cache-Control": "no-store"})


urlpatterns = [
    path("books/<path:title>", book),
    path("export", export),
    path("news", news),
    path("note", note),
    path("editor/books/<path:title>", edit),
    path("editor/author", rename),
    path("count", count),
]

if __name__ == "__main__":
    with contextlib.closing(connection), connection.cursor() as table:
        table.execute("CREATE TABLE notes (text)")
        table.execute("INSERT INTO notes VALUES ('0')")
    application = get_asgi_application()
    mounted = application if PROXY else CacheMiddleware(application)
    uvicorn.run(mounted, port=PORT, log_level="warning", lifespan="off")
