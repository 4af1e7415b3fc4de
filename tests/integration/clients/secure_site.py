"""A Django project that is served by https alone, with univocal's middleware mounted: an ASGI module.

It is meant for any ASGI server behind a TLS proxy on its machine. TRUSTED and FORWARDED in the environment
are the middleware's `trusted_proxies` (one, or none) and `forwarded`.
"""

import os

import django
from django.conf import settings

settings.configure(
    SECRET_KEY="only a test's",
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    MIDDLEWARE=["django.middleware.security.SecurityMiddleware"],
    SECURE_SSL_REDIRECT=True,
    SECURE_PROXY_SSL_HEADER=("HTTP_X_FORWARDED_PROTO", "https"),
)
django.setup()

from django.core.asgi import get_asgi_application  # noqa: E402
from django.core.handlers.asgi import ASGIRequest  # noqa: E402
from django.http import HttpRequest, HttpResponse, JsonResponse  # noqa: E402
from django.urls import path  # noqa: E402
from django.views.decorators.cache import cache_control  # noqa: E402

from univocal import CacheMiddleware  # noqa: E402

TOLD = ("X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded", "X-Real-Ip")


@cache_control(no_store=True)
def who(request: ASGIRequest) -> HttpResponse:
    """Tell who asks; Django takes "secure" from a field, and others take it from the scope's scheme."""
    told = {name.lower(): request.headers[name] for name in TOLD if name in request.headers}
    sender = {"secure": request.is_secure(), "scheme": request.scope["scheme"]}
    return JsonResponse({**sender, "client": request.META.get("REMOTE_ADDR"), "told": told})


@cache_control(public=True, max_age=3600)
def page(request: HttpRequest) -> HttpResponse:
    return HttpResponse("page", "text/plain")


urlpatterns = [path("who", who), path("page", page)]

application = CacheMiddleware(
    get_asgi_application(),
    trusted_proxies=os.environ["TRUSTED"].split(),
    forwarded=os.environ["FORWARDED"],  # type: ignore[arg-type]
)
