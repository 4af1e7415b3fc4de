"""WordPress as Debian has it, behind `univocal serve` with the profile `wordpress`."""

import base64
import json
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.started import need, until_it_listens

HERE = Path(__file__).parent
ROOT = Path("/usr/share/wordpress")
HOST = "blog.example"

THEME = """<!DOCTYPE html><html><head><?php wp_head(); ?></head><body>
<?php while (have_posts()) { the_post(); the_title('<h1>', '</h1>'); the_content(); comments_template(); } ?>
<?php if (is_404()) echo 'nothing is here'; ?>
<?php wp_footer(); ?></body></html>
"""
CONFIGURATION = """<?php
define('DB_NAME', 'wordpress'); define('DB_USER', 'root'); define('DB_PASSWORD', '');
define('DB_HOST', 'localhost:{socket}'); define('DB_CHARSET', 'utf8mb4'); define('DB_COLLATE', '');
define('WP_HOME', 'http://{host}'); define('WP_SITEURL', 'http://{host}');
define('WP_HTTP_BLOCK_EXTERNAL', true);
define('WP_ACCESSIBLE_HOSTS', '127.0.0.1'); define('DISABLE_WP_CRON', true);
define('WP_ENVIRONMENT_TYPE', 'local');  // passwords of applications without https
$table_prefix = 'wp_';
require_once ABSPATH . 'wp-settings.php';
"""


@pytest.fixture(scope="module")
def database(directory, run) -> Path:
    """A MariaDB of the test's own; the socket that it listens on."""
    need("mariadb-server-core", "mariadbd", "mariadb-install-db")
    data, sock = directory / "data", directory / "db.sock"
    common = ["--no-defaults", f"--datadir={data}", "--user=root"]
    made = subprocess.run(
        ["mariadb-install-db", *common, "--auth-root-authentication-method=normal", "--skip-test-db"],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stdout + made.stderr
    (directory / "create.sql").write_text("CREATE DATABASE IF NOT EXISTS wordpress;\n")
    process = run(
        "/usr/sbin/mariadbd", *common, f"--socket={sock}", "--skip-networking", f"--pid-file={directory}/pid",
        "--innodb-flush-log-at-trx-commit=0", f"--init-file={directory}/create.sql",
    )  # fmt: skip
    until_it_listens(process, str(sock))
    return sock


@pytest.fixture(scope="module")
def blog(directory, php, serve, place, request) -> Any:
    """A blog: its own server, univocal before it, and what lets its owner in."""
    need("wordpress", ROOT / "wp-load.php", "php")
    need("php-mysql", php="mysqli")
    sock = request.getfixturevalue("database")
    own = directory / "blog"
    theme = own / "wp-content" / "themes" / "plain"
    theme.mkdir(parents=True)
    (theme / "style.css").write_text("/* Theme Name: Plain */")
    (theme / "index.php").write_text(THEME)
    for name in ("wp-includes", "wp-admin", "wp-settings.php"):
        (own / name).symlink_to(ROOT / name)
    (own / "wp-config.php").write_text(CONFIGURATION.format(socket=sock, host=HOST))
    installed = subprocess.run(
        ["php", str(HERE / "wordpress.php"), "install"], env={"PATH": "/usr/bin:/bin", "BLOG": str(own)},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    found = re.search(r"^PASSWORD (\w+)$", installed.stdout, re.MULTILINE)
    assert found, installed.stdout + installed.stderr
    origin = php(HERE / "wordpress.php", ROOT, BLOG=str(own))
    front = serve(
        f'[[sites]]\nhosts = ["{HOST}"]\nprofile = "wordpress"\nupstream = "http://127.0.0.1:{origin}"\n'
    )
    credentials = base64.b64encode(f"owner:{found[1]}".encode()).decode()
    return SimpleNamespace(
        front=place(front, HOST),
        origin=place(origin, HOST),
        owner={"Authorization": f"Basic {credentials}"},
        content=own / "wp-content",
        port=front,
    )


@pytest.fixture
def purging(blog) -> Any:
    """The blog with the file that the page on WordPress shows."""
    page = (Path(__file__).parents[3] / "docs/how-to/wordpress.md").read_text("utf-8")
    plugin, setting = re.findall(r"(?ms)^```php\n(.*?)^```$", page)
    folder = blog.content / "mu-plugins"
    folder.mkdir()
    setting = setting.replace("192.0.2.1:8080", f"127.0.0.1:{blog.port}")
    (folder / "univocal.php").write_text(plugin.replace("<?php\n", f"<?php\n{setting}", 1), "utf-8")
    yield blog
    shutil.rmtree(folder)


def changed(blog: Any, post: dict[str, Any], method: str, **told: str) -> Any:
    """Change a post as the block editor does."""
    answer = blog.front.ask(
        f"/wp-json/wp/v2/posts/{post['id']}", "POST", json.dumps(told),
        X_HTTP_Method_Override=method, Content_Type="application/json", **blog.owner,
    )  # fmt: skip
    assert answer.status == 200, answer.text
    return json.loads(answer.text)


def test_the_documented_plugin_removes_a_trashed_post_at_once(purging) -> None:
    post = publish(purging, "Soon trashed", "Read it now.")
    assert [purging.front.ask("/soon-trashed/").hit for _ in range(2)] == [False, True]
    assert "Read it now." in purging.front.ask("/").text
    assert changed(purging, post, "DELETE")["status"] == "trash"
    assert purging.front.ask("/soon-trashed/").status == 404
    assert "Read it now." not in purging.front.ask("/").text


def test_the_documented_plugin_shows_an_edit_to_the_next_reader(purging) -> None:
    post = publish(purging, "Soon edited", "The first words.")
    assert [purging.front.ask("/soon-edited/").hit for _ in range(2)] == [False, True]
    changed(purging, post, "PUT", content="Better words.")
    answer = purging.front.ask("/soon-edited/")
    assert (answer.hit, "Better words." in answer.text) == (False, True)


def publish(blog: Any, title: str, content: str) -> dict[str, Any]:
    """Write a post as the block editor does."""
    told = {"title": title, "content": content, "status": "publish"}
    answer = blog.front.ask(
        "/wp-json/wp/v2/posts", "POST", json.dumps(told), Content_Type="application/json", **blog.owner
    )
    assert answer.status == 201, answer.text
    return json.loads(answer.text)


def cookies_of(answer: Any) -> list[str]:
    """The cookies that an answer sets, as a browser sends them."""
    return [line.partition(";")[0] for line in answer.fields.get_all("set-cookie") or []]


SPELLINGS = ["/first-words/", "/first%2Dwords/", "/first-words/?"]


def test_a_post_is_one_resource_for_five_minutes(blog) -> None:
    publish(blog, "First words", "Here they are.")
    answers = [blog.front.ask(spelling) for spelling in SPELLINGS]
    assert all("Here they are." in answer.text for answer in answers)
    assert [answer.hit for answer in answers] == [False, True, True]
    left = re.search(r"ttl=(\d+)", answers[1].fields["cache-status"])
    assert left
    assert 0 < int(left[1]) <= 300


def test_analytics_cookies_make_no_misses(blog) -> None:
    publish(blog, "Popular", "Words.")
    answers = [blog.front.ask("/popular/", Cookie=f"_ga={number}; _fbp=x") for number in range(3)]
    assert [answer.hit for answer in answers] == [False, True, True]


def test_titles_in_other_letters_are_found_where_wordpress_links_to(blog) -> None:
    link = publish(blog, "Первые слова", "Вот они.")["link"]
    target = link.removeprefix(f"http://{HOST}")
    assert "%d0%bf" in target  # as WordPress writes escapes
    first, second = (blog.front.ask(spelling) for spelling in (target, target.replace("%d0", "%D0")))
    assert (first.status, "Вот они." in first.text, second.hit) == (200, True, True)


def test_pages_of_commenters_are_not_stored_for_others(blog) -> None:
    post = publish(blog, "Say something", "Please.")
    target = "/say-something/"
    form = urlencode({"comment": "A word of mine", "author": "Ursula", "email": "u@example.org",
                      "wp-comment-cookies-consent": "yes", "comment_post_ID": str(post["id"])})  # fmt: skip
    answer = blog.front.ask("/wp-comments-post.php", "POST", form)
    cookies = cookies_of(answer)
    assert any(cookie.startswith("comment_author_") for cookie in cookies), answer.text
    own = blog.front.ask(target, Cookie="; ".join(cookies))
    assert (own.hit, own.stored, 'value="Ursula"' in own.text) == (False, False, True)
    for _ in range(2):
        other = blog.front.ask(target)
        assert ("Ursula" in other.text, "A word of mine" in other.text) == (False, False)
    assert other.hit


def test_logged_in_users_get_pages_of_their_own(blog) -> None:
    form = urlencode({"log": "owner", "pwd": "a long enough one", "testcookie": "1"})
    answer = blog.front.ask("/wp-login.php", "POST", form, Cookie="wordpress_test_cookie=WP%20Cookie%20check")
    cookies = cookies_of(answer)
    assert any(cookie.startswith("wordpress_logged_in_") for cookie in cookies), answer.text
    blog.front.ask("/hello-world/")
    assert blog.front.ask("/hello-world/").hit
    own = blog.front.ask("/hello-world/", Cookie="; ".join(cookies))
    assert (own.hit, own.stored, "wp-admin-bar" in own.text) == (False, False, True)
    assert "wp-admin-bar" not in blog.front.ask("/hello-world/").text


def test_a_posts_password_opens_it_for_one_reader(blog) -> None:
    told = {"title": "Locked", "content": "The secret.", "status": "publish", "password": "sesame"}
    blog.front.ask(
        "/wp-json/wp/v2/posts", "POST", json.dumps(told), Content_Type="application/json", **blog.owner
    )
    form = urlencode({"post_password": "sesame"})
    answer = blog.front.ask("/wp-login.php?action=postpass", "POST", form)
    (cookie,) = (cookie for cookie in cookies_of(answer) if cookie.startswith("wp-postpass_"))
    assert "The secret." in blog.front.ask("/locked/", Cookie=cookie).text
    assert "The secret." not in blog.front.ask("/locked/").text
