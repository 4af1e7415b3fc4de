"""A Django project that tells what its views see: `django_paths.py ASGI_PORT WSGI_PORT`."""

import json
import sys
import threading
from wsgiref.simple_server import WSGIRequestHandler, make_server

import django
import uvicorn
from django.conf import settings

settings.configure(
    SECRET_KEY="only a test's",
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    MIDDLEWARE=["django.middleware.common.CommonMiddleware"],
)
django.setup()

from django.core.asgi import get_asgi_application  # noqa: E402
from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.http import HttpRequest, HttpResponse  # noqa: E402
from django.urls import path  # noqa: E402


def tell(request: HttpRequest, whole: str) -> HttpResponse:
    told = [whole, list(request.GET.lists())]
    return HttpResponse(json.dumps(told), headers={"Cache-Control": "max-age=60"})


urlpatterns = [path("<path:whole>", tell)]


class Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.0"

    def log_message(self, *_: object) -> None:
        """It is not read."""


if __name__ == "__main__":
    asgi, wsgi = map(int, sys.argv[1:])
    server = make_server("127.0.0.1", wsgi, get_wsgi_application(), handler_class=Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    uvicorn.run(get_asgi_application(), host="127.0.0.1", port=asgi, log_level="warning", lifespan="off")
