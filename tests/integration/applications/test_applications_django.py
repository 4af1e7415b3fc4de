"""Law 3 with Django as the judge, under ASGI and under WSGI, for the profile `django`."""

import sys
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from examples import LONG
from tests.ports import free_port
from tests.started import until_it_listens
from univocal.judge.profiles import builtin_profiles
from univocal.uri.target import canonical_target

pytest.importorskip("django", reason="needs Django (univocal[clients])")

HERE = Path(__file__).parent
HOST = "django.example"


@pytest.fixture(scope="module")
def origins(run, place) -> Any:
    """The project under uvicorn, and under wsgiref."""
    asgi, wsgi = free_port(), free_port()
    process = run(sys.executable, str(HERE / "django_paths.py"), str(asgi), str(wsgi))
    for port in (asgi, wsgi):
        until_it_listens(process, port)
    return place(asgi, HOST), place(wsgi, HOST)


def spellings() -> list[str]:
    """Paths with each octet that may be read one way or the other, in its spellings; and queries.

    `make laws` has each query with each path.
    """
    found = []
    for octet in ":/[]@!$&'()*+,;=~ é":
        for path in (f"a{octet}b", f"a/{octet}{octet}/b", f"x{octet}"):
            lower = "".join(f"%{each:02x}" for each in octet.encode())
            found += [quote(path, safe="/:@!$&'()*+,;=~"), quote(path, safe=""), path.replace(octet, lower)]
    found = [path for path in found if path.isascii() and " " not in path]
    queries = ("", "?", "?a=1&b=%28", "?a=%31&b=%28")
    return [
        f"/{path}{query}"
        for number, path in enumerate(found)
        for query in queries[: 4 if LONG or number < 9 else 1]
    ]


def test_urls_with_one_key_are_one_to_django(origins) -> None:
    profile, keys, read = builtin_profiles()["django"], {}, {}
    for origin in origins:
        ask = cache(origin.ask)
        for target in spellings():
            canonical = canonical_target(target.encode(), profile)
            assert isinstance(canonical, bytes), target
            told = ask(target)
            assert (told.status, told.text) == (200, ask(canonical.decode()).text), (target, canonical)
            keys.setdefault((origin.port, canonical), set()).add(told.text)
            read.setdefault((origin.port, told.text, target.partition("?")[2]), set()).add(canonical)
    assert all(len(texts) == 1 for texts in keys.values())
    # Conversely, spellings that are one to Django have one key.
    assert all(len(canonicals) == 1 for canonicals in read.values())


def test_every_spelling_hits(origins, serve, place) -> None:
    sites = f'[[sites]]\nhosts = ["*"]\nprofile = "django"\nupstream = "http://127.0.0.1:{origins[0].port}"\n'
    front = place(serve(sites), HOST)
    answers = [front.ask(target) for target in ("/a(b)/c", "/a%28b%29%2Fc", "/a(b)/c?", "/%61(b)/c")]
    assert [answer.hit for answer in answers] == [False, True, True, True]
    assert {answer.text for answer in answers} == {'["a(b)/c", []]'}
    assert front.ask("/a/../b").status == 400
