"""Files of a directory by aiohttp's static routes. Usage: DIRECTORY SOCKET"""

import sys

from aiohttp import web

app = web.Application()
app.router.add_static("/", sys.argv[1])
web.run_app(app, path=sys.argv[2], print=None, access_log=None)
