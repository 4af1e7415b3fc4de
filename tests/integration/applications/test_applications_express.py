"""Express with cors() and compression(): its 304s name less in Vary than the 200s before them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_port
from tests.started import need, node, until_it_listens

PACKAGES = {"express": "5.3.0", "cors": "2.8.6", "compression": "1.8.2"}
CLIENTS = [
    (coding, origin)
    for coding in ("gzip", "identity")
    for origin in ("http://a.example", "http://b.example", "")
]


@pytest.fixture(scope="module")
def upstream(run: Any) -> str:
    command, port = node(Path(__file__).with_name("express.mjs"), "express-middleware", PACKAGES), free_port()
    until_it_listens(run(*command, str(port)), port)
    return f"http://127.0.0.1:{port}"


@pytest.fixture(params=["memory", "file", "redis"])
def store(request: Any, directory: Path, run: Any) -> Iterator[str]:
    if request.param == "redis":
        need("redis-server", "redis-server")
        port = free_port()
        redis = run("redis-server", "--port", str(port), "--save", "", "--dir", str(directory))
        until_it_listens(redis, port)
        yield f"redis://127.0.0.1:{port}"
    else:
        yield f"file://{directory}/store" if request.param == "file" else "memory"


def test_a_304_with_a_shorter_vary_mixes_no_variants(
    upstream: str, store: str, serve: Callable[[str], int], place: Any
) -> None:
    """The 304 has `Vary: Origin`, since compression() never sees its content."""
    sites = f'[[sites]]\nhosts = ["*"]\nprofile = "express"\nupstream = "{upstream}"\n'
    site = place(serve(f'[cache]\nstore = "{store}"\n{sites}'), "a.example")
    seen = set()
    for _ in range(4):
        for coding, origin in CLIENTS:
            fields = {"Origin": origin} if origin else {}
            answer = site.ask("/page", Accept_Encoding=coding, **fields)
            assert answer.status == 200
            assert answer.fields.get("content-encoding", "identity") == coding
            assert answer.fields.get("access-control-allow-origin", "") == origin
            names = {name.strip().lower() for name in answer.fields["vary"].split(",")}
            assert names == {"origin", "accept-encoding"}
            assert coding == "gzip" or answer.text == "page " * 500
            seen.add(answer.fields["cache-status"].partition(";")[2].split(";")[0].strip())
    assert seen == {"fwd=uri-miss", "fwd=vary-miss", "fwd=stale"}
