"""A small application: every answer has a number, so that a cached one can be told."""

from itertools import count

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

answers = count(1)


async def page(request: Request) -> PlainTextResponse:
    name = request.path_params.get("name", "the front page")
    return PlainTextResponse(
        f"This is {name}; answer number {next(answers)} of the application.\n",
        headers={"cache-control": "public, max-age=60"},
    )


async def private(_: Request) -> PlainTextResponse:
    return PlainTextResponse(
        f"For you alone: answer number {next(answers)}.\n", headers={"cache-control": "private"}
    )


app = Starlette(routes=[Route("/", page), Route("/private", private), Route("/page/{name:path}", page)])
