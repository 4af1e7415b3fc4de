"""Wagtail's pages, and what stands for an editor at work."""

from django.http import HttpRequest, HttpResponse
from django.urls import include, path
from django.views.decorators.csrf import csrf_exempt
from wagtail import urls

from wagtail_site.models import Article


@csrf_exempt
def edit(request: HttpRequest, slug: str) -> HttpResponse:
    """Publish the page with a new text; without one, take it off."""
    page = Article.objects.get(slug=slug)
    page.text = request.body.decode()
    if page.text:
        page.save_revision().publish()
    else:
        page.unpublish()
    return HttpResponse(status=204)


urlpatterns = [path("editor/<slug>/", edit), path("", include(urls))]
