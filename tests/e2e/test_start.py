"""The modules that `univocal serve` has imported by its first answer."""

import re
import subprocess
import sys
import urllib.request

import pytest

from support import until

pytestmark = pytest.mark.pure("modules of the sources are counted")

LOCAL = "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"
# Libraries that a plain proxy does not use, though the tests' environment has them.
UNUSED = """
    argon2 bcrypt h2 h11 httpcore httpx markdown_it opentelemetry prometheus_client protego pygments redis
    rich sqlite3 univocal_app.run.worker univocal_app.run.worker_client univocal_app.run.workers
    univocal_learn websockets wsgiref
"""
ADDRESSES = re.compile(r"serving http://(\S+)/, admin listener http://(\S+)/")


def imported(text):
    """The modules that a line tells of."""
    return {line.rsplit("|", 1)[1].strip() for line in text.splitlines() if line.startswith("import time:")}


def test_serve_imports_little_before_its_first_answer(root, tmp_path):
    """The first scrape imports the module that writes metrics."""
    command = [sys.executable, "-X", "importtime", "-m", "univocal_app", "serve", *LOCAL]
    log = tmp_path / "stderr"
    with log.open("w") as stderr:
        serve = subprocess.Popen(
            [*command, "--upstream", "http://127.0.0.1:9"], cwd=root / "app", stderr=stderr
        )
    try:
        serves = until(lambda: ADDRESSES.search(log.read_text()))
        urllib.request.urlopen(f"http://{serves[2]}/-/health", timeout=20).close()
        modules = imported(log.read_text())
        urllib.request.urlopen(f"http://{serves[2]}/metrics", timeout=20).close()
        assert "prometheus_client" in imported(log.read_text()) - modules
    finally:
        serve.kill()
        serve.wait()
    assert [name for name in UNUSED.split() if name in modules] == []
    assert "univocal.engine.exchange" in modules
    assert len(modules) <= 690


def test_a_missing_library_is_named_at_start(root):
    code = """import sys
sys.modules["prometheus_client"] = None
sys.argv = ["univocal", "serve", "--upstream", "http://127.0.0.1:9"]
from univocal_app.__main__ import main
main()"""
    ended = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        cwd=root / "app",
    )
    assert ended.returncode == 1
    assert ended.stderr == "univocal: serve needs prometheus_client: pip install 'univocal[proxy]'\n"
