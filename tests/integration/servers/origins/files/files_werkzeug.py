"""Files of a directory by a Werkzeug rule on its own server. Usage: DIRECTORY SOCKET"""

import logging
import sys

from werkzeug.exceptions import HTTPException
from werkzeug.routing import Map, Rule
from werkzeug.serving import run_simple
from werkzeug.utils import send_from_directory
from werkzeug.wrappers import Request, Response

RULES = Map([Rule("/<path:name>", endpoint="file")])


@Request.application
def application(request: Request) -> Response:
    """The file that a path names."""
    try:
        _, given = RULES.bind_to_environ(request.environ).match()
        return send_from_directory(sys.argv[1], given["name"], request.environ)
    except HTTPException as problem:
        return problem.get_response(request.environ)


if __name__ == "__main__":
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    run_simple(f"unix://{sys.argv[2]}", 0, application, threaded=True)
