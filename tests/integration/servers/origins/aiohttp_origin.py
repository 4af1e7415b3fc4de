"""An aiohttp application, whose routes tell what they are given. Usage: SOCKET"""

import sys

from aiohttp import web

PATHS = {
    "root": "/",
    "admin": "/admin/{rest:.*}",
    "foo": "/foo/",
    "name": "/foo/{name}",
    "names": "/foo/{name}/{other}",
    "rest": "/{rest:.*}",
}


async def tell(request: web.Request) -> web.Response:
    """The route, what it is given, and the parameters."""
    told = [
        request.match_info.route.name,
        request.path,
        dict(request.match_info),
        list(request.query.items()),
    ]
    return web.json_response(told)


if __name__ == "__main__":
    application = web.Application()
    application.add_routes([web.get(path, tell, name=name) for name, path in PATHS.items()])
    web.run_app(application, path=sys.argv[1], print=None, access_log=None)
