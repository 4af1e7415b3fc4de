"""What frameworks do around a response goes on working behind the cache."""

import pytest
from fastapi import FastAPI, Request
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from univocal import CacheMiddleware, Rules
from univocal.judge.profiles import builtin_profiles


@pytest.mark.parametrize(
    "target", ["/files/../secret", "/files/%2e%2e/secret", "/files/..%2fsecret", "/files/%00"]
)
@pytest.mark.parametrize("profile", sorted(builtin_profiles()))
async def test_no_spelling_leaves_a_directory_of_files(client_of, tmp_path, target, profile):
    (tmp_path / "files").mkdir()
    (tmp_path / "secret").write_text("secret")
    app = Starlette(routes=[Mount("/files", StaticFiles(directory=tmp_path / "files"))])
    app.add_middleware(CacheMiddleware, profile=profile)
    answer = await client_of(app)(target)
    assert answer.status in {400, 404}


async def test_a_page_of_one_client_goes_past_the_cache(client_of):
    app = FastAPI()
    app.add_middleware(CacheMiddleware, rules=Rules(ttl=60, bypass=("/me", "/admin/*")))
    asked = []

    @app.get("/{rest:path}")
    async def page(rest: str, request: Request) -> dict[str, str]:
        asked.append(rest)
        return {"client": request.client.host}

    client = client_of(app)
    for target in ("/me", "/%6De", "/admin/a", "/shop"):
        await client(target)
        await client(target)
    assert asked == ["me"] * 4 + ["admin/a"] * 2 + ["shop"]
