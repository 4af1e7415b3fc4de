"""What frameworks do around a response goes on working behind the cache."""

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from univocal import CacheMiddleware
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
