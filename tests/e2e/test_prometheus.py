"""Debian's prometheus scrapes a running univocal: what the dashboard asks of it has answers."""

import json
import re
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from support import until
from tests.ports import free_port
from tests.started import running
from univocal_app.observe.families import FAMILIES, written

ROOT = Path(__file__).parents[2]
DASHBOARD = json.loads((ROOT / "deploy/grafana/univocal.json").read_text("utf-8"))
# Grafana's variable is so long that a rate has what it needs: four scrapes at least.
EXPRESSIONS = [
    target["expr"].replace("$__rate_interval", "1m")
    for panel in DASHBOARD["panels"]
    for target in panel["targets"]
]

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="needs prometheus (Debian package prometheus)",
)

SCRAPED = 0.2
"""Seconds between two scrapes."""

NAMED = {
    "univocal_requests_total": {"site", "cache", "status"},
    "univocal_refused_total": {"site", "reason"},
    "univocal_failed_total": {"site", "reason"},
    "univocal_sent_bytes_total": {"site"},
    "univocal_request_seconds": {"cache"},
    "univocal_stored_responses": set(),
    "univocal_stored_bytes": set(),
    "univocal_evictions_total": set(),
    "univocal_purges_total": {"by"},
    "univocal_collapsed_total": {"site"},
    "univocal_origin_requests_total": {"site", "origin", "status"},
    "univocal_origin_errors_total": {"site", "origin", "reason"},
    "univocal_origin_seconds": {"site"},
    "univocal_origin_up": {"site", "origin"},
    "univocal_connections": {"side"},
    "univocal_build_info": {"version", "python"},
}


def test_the_names_are_these():
    told = {
        name + {"counter": "_total", "info": "_info"}.get(family.kind, ""): set(family.labels)
        for name, family in FAMILIES.items()
    }
    assert {name: told[name] for name in NAMED} == NAMED


def test_the_dashboard_asks_for_names_that_there_are():
    assert len(EXPRESSIONS) > 20
    for name in NAMED:
        assert any(name in expression for expression in EXPRESSIONS), name
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_each_panel_has_a_unit_description_and_place():
    taken = set[tuple[int, int]]()
    for panel in DASHBOARD["panels"]:
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["description"], panel["title"]
        assert all(target["legendFormat"] for target in panel["targets"]), panel["title"]
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells


@pytest.fixture
def program(start_with, origin, redis):
    """Two workers, and an origin server that is not there."""
    closed = free_port()
    return start_with(
        'workers = 2\naccess_log = "off"\n'
        f'[cache]\nstore = "{redis.url}"\nmax_bytes = "1 MiB"\nmax_object_bytes = "64 KiB"\n'
        f'[[sites]]\nhosts = ["en.example"]\nupstream = "{origin.url}"\n'
        f'[[sites]]\nhosts = ["gone.example"]\nupstream = "http://127.0.0.1:{closed}"\n'
    )


@pytest.fixture
def prometheus(program, tmp_path):
    """A client of a prometheus that scrapes the program five times a second."""
    port = free_port()
    host, admin = program.admin
    file = tmp_path / "prometheus.yml"
    file.write_text(
        f"global: {{scrape_interval: {1000 * SCRAPED:.0f}ms}}\n"
        f"scrape_configs: [{{job_name: univocal, static_configs: [{{targets: ['{host}:{admin}']}}]}}]\n"
    )
    options = [f"--config.file={file}", f"--web.listen-address=127.0.0.1:{port}"]
    with (
        running(["prometheus", *options, f"--storage.tsdb.path={tmp_path / 'data'}"]),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=20) as client,
    ):
        yield client


def numbers(prometheus, expression):
    """The values of an instant query that are numbers; none while prometheus does not answer."""
    try:
        answer = prometheus.get("/api/v1/query", params={"query": expression})
    except httpx.TransportError:
        return []
    if answer.status_code == 503:  # it begins
        return []
    assert answer.status_code == 200, f"{expression}: {answer.text}"
    values = [float(sample["value"][1]) for sample in answer.json()["data"]["result"]]
    return [value for value in values if value == value]


def make_traffic(ask, program, origin, round_):
    """Something of all that is counted: refusals, purges, evictions, errors, collapsed requests …"""
    origin.fields = "Cache-Control: max-age=60\r\nSurrogate-Key: news\r\nX-Fill: " + "x" * 15_000
    for number in range(40):
        ask(program.proxy, f"/{round_}/{number}", "en.example")
    for target in (f"/{round_}/39", f"/{round_}/%339", "/%00"):
        ask(program.proxy, target, "en.example")
    ask(program.proxy, "/", "gone.example")
    ask(program.proxy, f"/{round_}/39", "en.example", method="PURGE")
    ask(program.proxy, "/", "en.example", method="PURGE", fields="Surrogate-Key: none\r\n")
    with ThreadPoolExecutor(16) as pool:
        asked = pool.map(lambda _: ask(program.proxy, f"/{round_}/slow", "en.example"), range(16))
        assert {answer.status for answer in asked} == {200}


@needs_prometheus
def test_each_expression_of_the_dashboard_has_an_answer(program, prometheus, ask, origin):
    until(lambda: numbers(prometheus, "up"))  # it begins to scrape after five seconds
    missing, limit, round_ = EXPRESSIONS, time.monotonic() + 90, 0
    while missing:
        assert time.monotonic() < limit, missing
        round_ += 1
        make_traffic(ask, program, origin, round_)
        # Prometheus takes its time, and the program's log, which nobody reads here, has 64 KiB.
        time.sleep(SCRAPED)
        missing = [expression for expression in missing if not numbers(prometheus, expression)]
    # Nor does promtool object to anything.
    for accept in ("", "Accept: text/plain;version=0.0.4\r\n"):
        text = ask(program.admin, "/metrics", "localhost", fields=accept).body
        checked = subprocess.run(
            ["promtool", "check", "metrics"], input=text, capture_output=True, timeout=60, check=False
        )
        assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


@needs_prometheus
def test_the_alarms_of_the_page_are_rules(tmp_path):
    page = (ROOT / "docs/how-to/observing.md").read_text("utf-8")
    (rules,) = re.findall(r"```yaml\n(groups:.*?)```", page, re.DOTALL)
    file = tmp_path / "rules.yml"
    file.write_text(rules)
    checked = subprocess.run(
        ["promtool", "check", "rules", file], capture_output=True, text=True, timeout=60, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "4 rules found" in checked.stdout
    told = {name.split("{")[0] for name in map(written, FAMILIES)}
    assert set(re.findall(r"univocal_[a-z_]+", rules)) <= told


def test_openmetrics_by_negotiation(start, origin, ask):
    listeners = ("--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
    program = start("serve", "--upstream", origin.url, *listeners)
    fields = "Accept: application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5\r\n"
    answer = ask(program.admin, "/metrics", "localhost", fields=fields)
    assert answer.value("content-type").startswith("application/openmetrics-text; version=1.0.0")
    assert answer.body.endswith(b"# EOF\n")
    plain = ask(program.admin, "/metrics", "localhost")
    assert plain.value("content-type").startswith("text/plain; version=")
    assert plain.value("vary") == "Accept"
