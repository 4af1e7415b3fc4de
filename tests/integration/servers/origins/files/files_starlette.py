"""Files of a directory by Starlette's StaticFiles under uvicorn. Usage: DIRECTORY SOCKET"""

import sys

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

app = Starlette(routes=[Mount("/", StaticFiles(directory=sys.argv[1]))])
uvicorn.run(app, uds=sys.argv[2], log_level="error")
