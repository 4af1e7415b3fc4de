"""The pictures of the page that the documentation shows are there, and tools/screenshots makes them anew."""

import os
import re
import shutil
import subprocess
import sys

import pytest


def size(picture):
    """The width and height of a PNG."""
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    return int.from_bytes(picture[16:20], "big"), int.from_bytes(picture[20:24], "big")


SIZES = {"page": (1280, 800), "explain": (1280, 430), "phone": (390, 844)}
PICTURES = {f"{name}-{scheme}.png": SIZES[name] for name in SIZES for scheme in ("light", "dark")}


def test_the_pictures_that_the_documentation_shows_are_there_and_small(root):
    assert {file.name: size(file.read_bytes()) for file in (root / "docs/pictures").iterdir()} == PICTURES
    assert all(file.stat().st_size < 200_000 for file in (root / "docs/pictures").iterdir())
    shown = {}
    for page in (root / "README.md", *(root / "docs").rglob("*.md")):
        for name in re.findall(r'(?:src|srcset)="([^"]*\.png)"', page.read_text()):
            shown[name.rpartition("/")[2]] = (page.parent / name).is_file()
    assert shown == dict.fromkeys(PICTURES, True)


@pytest.mark.long
def test_the_pictures_can_be_made_anew(root, tmp_path):
    if shutil.which("chromium") is None:
        pytest.skip("needs chromium (Debian package chromium)")
    command = [
        sys.executable,
        str(root / "tools/screenshots/take.py"),
        "--out",
        str(tmp_path),
        "--seconds",
        "3",
    ]
    command += ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
    paths = os.pathsep.join(str(root / source) for source in ("app", "middleware"))
    environment = {**os.environ, "PYTHONPATH": paths}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert ended.returncode == 0, ended.stderr
    assert {file.name: size(file.read_bytes()) for file in tmp_path.iterdir()} == PICTURES
