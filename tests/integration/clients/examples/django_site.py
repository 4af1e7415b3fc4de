"""The examples of Django's documentation for ASGI, each kind once."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import django
from django.conf import settings

STATIC = Path(__file__).parent / "static"
settings.configure(
    SECRET_KEY="only a test's",
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates"}],
    LOGGING_CONFIG=None,
    MIDDLEWARE=[
        "django.middleware.security.SecurityMiddleware",
        "django.middleware.gzip.GZipMiddleware",
        "django.middleware.http.ConditionalGetMiddleware",
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.common.CommonMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
        f"{__name__}.hook",
    ],
)
django.setup()

from django.core.asgi import get_asgi_application  # noqa: E402
from django.http import (  # noqa: E402
    FileResponse,
    HttpRequest,
    HttpResponse,
    HttpResponseRedirect,
    JsonResponse,
    StreamingHttpResponse,
)
from django.template import engines  # noqa: E402
from django.urls import include, path  # noqa: E402
from django.utils.decorators import sync_and_async_middleware  # noqa: E402
from django.views import View  # noqa: E402
from django.views.decorators.cache import cache_control, never_cache  # noqa: E402
from django.views.decorators.csrf import csrf_exempt  # noqa: E402
from django.views.static import serve  # noqa: E402

from tests.integration.clients.noted import events  # noqa: E402


@sync_and_async_middleware
def hook(get_response: Any) -> Any:
    async def hooked(request: HttpRequest) -> HttpResponse:
        response: HttpResponse = await get_response(request)
        if request.path.startswith("/sub/"):
            response["X-Hooked"] = "yes"
        return response

    return hooked


@cache_control(max_age=60)
def page(request: HttpRequest) -> HttpResponse:
    template = engines["django"].from_string("<h1>{{ path }}</h1>")
    return HttpResponse(template.render({"path": request.path}))


class Item(View):
    async def get(self, request: HttpRequest, number: int) -> HttpResponse:
        return JsonResponse({"number": number, "page": int(request.GET.get("page", "1"))})

    async def put(self, request: HttpRequest, number: int) -> HttpResponse:
        return JsonResponse(json.loads(request.body))


async def stream(_: HttpRequest) -> HttpResponse:
    async def parts() -> AsyncIterator[str]:
        for number in range(5):
            yield f"{number} "

    return StreamingHttpResponse(parts(), content_type="text/plain")  # type: ignore[return-value]


async def server_sent(_: HttpRequest) -> HttpResponse:
    async def parts() -> AsyncIterator[str]:
        for number in range(3):
            yield f"data: {number}\n\n"

    return StreamingHttpResponse(parts(), content_type="text/event-stream")  # type: ignore[return-value]


async def file(_: HttpRequest) -> HttpResponse:
    return FileResponse((STATIC / "page.txt").open("rb"))  # type: ignore[return-value]


def large(_: HttpRequest) -> HttpResponse:
    return HttpResponse("0123456789abcdef" * 65536, "text/plain")


def form(request: HttpRequest) -> HttpResponse:
    return JsonResponse(request.POST.dict())


def upload(request: HttpRequest) -> HttpResponse:
    sent = request.FILES["file"]
    return JsonResponse([sent.name, sent.size], safe=False)


@never_cache
def task(_: HttpRequest) -> HttpResponse:
    response = HttpResponse("begun", "text/plain")
    response._resource_closers.append(lambda: events.append("task"))
    return response


def session(request: HttpRequest) -> HttpResponse:
    request.session["count"] = request.session.get("count", 0) + 1
    return HttpResponse(str(request.session["count"]))


def cookie(request: HttpRequest) -> HttpResponse:
    response = HttpResponse(request.COOKIES.get("basket", "none"))
    response.set_cookie("basket", "full", httponly=True)
    return response


def moved(_: HttpRequest) -> HttpResponse:
    return HttpResponseRedirect("/page")


def teapot(_: HttpRequest) -> HttpResponse:
    return HttpResponse("short and stout", status=418, headers={"X-Tea": "green"})


def sold_out(_: HttpRequest) -> HttpResponse:
    return JsonResponse({"error": "sold out"}, status=409)


def broken(_: HttpRequest) -> HttpResponse:
    raise LookupError


urlpatterns = [
    path("page", page),
    path("items/<int:number>", csrf_exempt(Item.as_view())),
    path("stream", stream),
    path("sse", server_sent),
    path("file", file),
    path("large", large),
    path("form", csrf_exempt(form)),
    path("guarded", form),
    path("upload", csrf_exempt(upload)),
    path("task", csrf_exempt(task)),
    path("session", session),
    path("cookie", cookie),
    path("moved", moved),
    path("teapot", teapot),
    path("sold-out", sold_out),
    path("broken", broken),
    path("static/<path:path>", serve, {"document_root": STATIC}),
    path("sub/", include([path("page", page)])),
]
application = get_asgi_application()
