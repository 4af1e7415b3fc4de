"""A Werkzeug application on its own server, whose routes tell what they are given. Usage: SOCKET"""

import json
import logging
import sys

from werkzeug.exceptions import HTTPException
from werkzeug.routing import Map, Rule
from werkzeug.serving import WSGIRequestHandler, run_simple
from werkzeug.wrappers import Request, Response

RULES = Map(
    [
        Rule("/", endpoint="root"),
        Rule("/admin", endpoint="admin"),
        Rule("/admin/<path:rest>", endpoint="admin"),
        Rule("/foo/", endpoint="foo"),
        Rule("/foo/<name>", endpoint="name"),
        Rule("/foo/<name>/<other>", endpoint="names"),
        Rule("/a/<int:number>", endpoint="number"),
        Rule("/<path:rest>", endpoint="rest"),
    ]
)


@Request.application
def application(request: Request) -> Response:
    """The endpoint, what it is given, and the parameters."""
    try:
        endpoint, given = RULES.bind_to_environ(request.environ).match()
    except HTTPException as problem:
        return problem.get_response(request.environ)
    return Response(json.dumps([endpoint, request.path, given, list(request.args.items(multi=True))]))


class Handler(WSGIRequestHandler):
    """HTTP/1.1, so that connections are kept."""

    protocol_version = "HTTP/1.1"


if __name__ == "__main__":
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    run_simple(f"unix://{sys.argv[1]}", 0, application, request_handler=Handler, threaded=True)
