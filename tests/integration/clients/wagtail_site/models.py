"""A page of plain text, which caches may keep for an hour."""

from django.db import models
from django.http import HttpRequest, HttpResponse
from django.utils.cache import patch_cache_control
from wagtail.models import Page


class Article(Page):
    text = models.TextField(default="")

    def serve(self, request: HttpRequest) -> HttpResponse:
        response = HttpResponse(self.text, content_type="text/plain")
        patch_cache_control(response, public=True, s_maxage=3600)
        return response
