"""The benchmarks' own arithmetic: what is read from wrk, what is compared, what is written."""

import xml.etree.ElementTree as ET

import h11
import pytest

from benchmarks import h2load, uri, wrk
from benchmarks.chart import SPACE, Bar, Group, draw
from benchmarks.content import KINDS, MEGABYTE, Costs
from benchmarks.contents import BROWSER, CONTENTS
from benchmarks.figures import Figure, by_clock, by_cpu, figure, number, ratio
from benchmarks.measuring import Results, Sample, Settings, participants
from benchmarks.pace import Responses, quantile
from benchmarks.plan import COMPARISONS, MEASUREMENTS, Comparison
from benchmarks.report import Circumstances, markdown, svg, table
from benchmarks.servers import PEERS, Place, nginx_says_hit, says_hit, varnish_says_hit
from examples import cases

PRINTED = """Running {seconds} test @ http://127.0.0.1:8000/hit
  1 threads and 32 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.73ms    2.03ms  26.86ms   88.43%
    Req/Sec    24.67k     7.07k   40.52k    70.00%
  {requests} requests in {seconds}, 61.27MB read
{troubles}Requests/sec:  {rate}
Transfer/sec:     30.49MB
"""
CIRCUMSTANCES = Circumstances(
    *("2026-11-22", "a machine", "0.00", "python -m benchmarks"),
    {"nginx proxy_cache": "nginx"},
    {"nginx": "1.22.1", "hishel": ""},
    Settings(3, 2, 2000),
)


@cases(
    "requests, seconds, rate, expected",
    ("49304", "2.01s", "24553.02", wrk.Run(49304, 2.01, 24553.02)),
    ("1", "900.50ms", "1.11", wrk.Run(1, 0.9005, 1.11)),
    ("6000000", "1.00m", "100000.00", wrk.Run(6_000_000, 60.0, 100_000.0)),
)
def test_a_report_of_wrk(requests, seconds, rate, expected):
    printed = PRINTED.format(requests=requests, seconds=seconds, rate=rate, troubles="")
    assert wrk.parse(printed) == expected


SECURE = """starting benchmark...
spawning thread #0: 32 total client(s). Timing-based test with 2s of warm-up time and 2s of main duration
TLS Protocol: TLSv1.3
Application protocol: {protocol}

finished in 2.00s, 19061.50 req/s, 20.31MB/s
requests: 38123 total, 38251 started, 38123 done, {succeeded} succeeded, {failed} failed, 0 errored, 0 timeout
status codes: 38123 2xx, 0 3xx, 0 4xx, 0 5xx
"""


def test_a_report_of_h2load():
    printed = SECURE.format(protocol="h2", succeeded=38123, failed=0)
    assert h2load.parse(printed) == wrk.Run(38123, 2.0, 19061.5)


@cases(
    "printed, error",
    (SECURE.format(protocol="h2", succeeded=38120, failed=3), wrk.UncleanRunError),
    (SECURE.format(protocol="http/1.1", succeeded=38123, failed=0), ValueError),
    ("", ValueError),
)
def test_a_failure_or_another_protocol_counts_for_nothing(printed, error):
    with pytest.raises(error):
        h2load.parse(printed)


@cases(
    "troubles", "  Non-2xx or 3xx responses: 12\n", "  Socket errors: connect 0, read 3, write 0, timeout 0\n"
)
def test_a_run_with_failures_counts_for_nothing(troubles):
    with pytest.raises(wrk.UncleanRunError):
        wrk.parse(PRINTED.format(requests="10", seconds="2.00s", rate="5.00", troubles=troubles))


def test_output_without_a_report_is_refused():
    with pytest.raises(ValueError, match="unable to connect"):
        wrk.parse("unable to connect to 127.0.0.1:8000 Connection refused\n")


def test_the_command_line_of_wrk():
    told = wrk.command("http://127.0.0.1:1/", 2, BROWSER, "zipf.lua", [10_000])
    assert told.count("-H") == 12
    assert told[-3:] == ["http://127.0.0.1:1/", "--", "10000"]


@cases(
    "value, told",
    (0, "0.00"),
    (0.0164, "0.0164"),
    (0.9996, "1.00"),
    (1.294, "1.29"),
    (12.94, "12.9"),
    (129.4, "129"),
    (12949, "12,900"),
    (1_234_567, "1,230,000"),
)
def test_a_figure_has_three_digits(value, told):
    assert number(value) == told


def test_a_figure_is_the_median_and_its_spread():
    assert figure([3.0, 1.0, 2.0]) == Figure(2.0, 1.0, 3.0)
    assert figure([]) is None


def test_a_ratio_is_of_the_same_round():
    results = Results()
    for turn, (ours, theirs) in enumerate([(10.0, 20.0), (30.0, 30.0), (50.0, 0.0)]):
        results.add("hits-1", "univocal", turn, Sample(ours, ours * 2))
        results.add("hits-1", "nginx", turn, Sample(theirs, theirs))
    results.add("hits-1", "univocal", 3, Sample(99.0))  # nginx has no such round
    comparison = Comparison("", "hits-1", "univocal", "nginx")
    assert ratio(results, comparison, by_clock) == Figure(0.75, 0.5, 1.0)
    assert ratio(results, comparison, by_cpu) == Figure(1.5, 1.0, 2.0)
    assert ratio(results, Comparison("", "hits-1", "univocal", "varnish"), by_clock) is None


def test_comparisons_are_of_what_is_measured():
    for each in COMPARISONS:
        assert each.server in participants(each.measurement), each
        assert each.against in participants(each.against_measurement or each.measurement), each
    assert {server for name in MEASUREMENTS for server in participants(name)} == PEERS.keys()


@pytest.mark.parametrize("share", [0.5, 0.99, 0.999, 1.0])
def test_quantiles_by_nearest_rank(share):
    assert quantile([float(each) for each in range(1, 1001)], share) == share * 1000


RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nwhat"


def test_a_response_is_whole_at_its_last_byte():
    responses = Responses(4)
    assert responses.feed(RESPONSE)
    assert [responses.feed(RESPONSE[at : at + 1]) for at in range(len(RESPONSE))] == [False] * (
        len(RESPONSE) - 1
    ) + [True]


@pytest.mark.parametrize("wrong", [RESPONSE + b"!", RESPONSE.replace(b"200", b"502")])
def test_a_response_that_is_no_200_or_too_long(wrong):
    with pytest.raises(ValueError, match="HTTP"):
        Responses(4).feed(wrong)


@cases(
    "claim, fields, expected",
    (says_hit, {"cache-status": "univocal; hit"}, True),
    (says_hit, {"cache-status": "univocal; fwd=uri-miss; stored"}, False),
    (says_hit, {}, False),
    (nginx_says_hit, {"x-cache": "HIT"}, True),
    (nginx_says_hit, {"x-cache": "MISS"}, False),
    (varnish_says_hit, {"x-varnish": "32770 3"}, True),
    (varnish_says_hit, {"x-varnish": "32770"}, False),
)
def test_each_cache_tells_a_hit_by_its_field(claim, fields, expected):
    assert claim(fields) is expected


def test_the_contents_have_the_sizes_that_are_claimed():
    assert [len(CONTENTS[path]) for path in ("/hit", "/hit64k", "/hit1m")] == [1 << 10, 1 << 16, 1 << 20]


def test_every_server_is_told_its_port(tmp_path):
    for name, peer in PEERS.items():
        place = Place(tmp_path / name, 8123, 9123)
        place.folder.mkdir()
        told = " ".join(peer.command(place)) + "".join(file.read_text() for file in place.folder.iterdir())
        assert "8123" in told, name
        has_origin = not peer.is_application and name != "caddy"  # which answers from a file
        assert ("9123" in told) is has_origin, name
        assert "@" not in told.replace("@ http", ""), name


def test_the_chart_is_xml_with_bars_to_scale():
    bars = [Bar("a <b> & c", Figure(10.0, 8.0, 20.0), own=True), Bar("d", Figure(5.0, 5.0, 5.0))]
    chart = ET.fromstring(draw("a & b", "one\ntwo", [Group("first", bars, base=5.0)]))
    name = "{http://www.w3.org/2000/svg}"
    paper, *drawn = chart.iter(f"{name}rect")
    assert [float(each.get("width", 0)) for each in drawn] == [SPACE / 2, SPACE / 4]
    texts = [each.text for each in chart.iter(f"{name}text")]
    assert texts == ["a & b", "one", "two", "first", "a <b> & c", "2.00 ×", "d", "1.00 ×"]
    assert float(paper.get("height", 0)) > max(float(each.get("y", 0)) for each in drawn)


def test_a_table_has_as_many_cells_in_each_line():
    assert table(["a", "b"], [["1", "2"]], "lr") == "| a | b |\n| --- | ---: |\n| 1 | 2 |\n"


def test_the_page_and_chart_show_existing_and_missing_servers():
    results = Results(rate=5000.0)
    for turn in range(3):
        for server, value in {"univocal": 100.0 + turn, "nginx": 200.0}.items():
            results.add("hits-1", server, turn, Sample(value, value, 0.5))
            results.add("latency", server, turn, Sample(value / 1e5))
    results.failures["hits-1", "hishel"] = "no hit"
    rows = [uri.Row("univocal", 0.5, 1.5), uri.Row("yarl", missing="not installed")]
    costs = [Costs("letters", 2.0, 1.0), Costs("chunks", 4.0, 3.0), Costs("empty lines", None)]
    page = markdown(results, rows, costs, CIRCUMSTANCES, "benchmarks.svg")
    assert "| chunks | 4.00 | 3.00 |" in page
    assert "| empty lines | ended | – |" in page
    assert "| the dearest over the cheapest | 2.00 | 3.00 |" in page
    assert "| Hits, 1 KiB, 1 field | nginx proxy_cache | 0.505 (0.500–0.510) |" in page
    assert "| univocal serve | 101 (100–102) | 101 (100–102) | 50% |" in page
    assert "| univocal serve | 1.01 (1.00–1.02) |" in page  # ms
    assert "Varnish" not in page.partition("## Every server")[2].partition("## Canon")[0]
    assert "Not installed, therefore not measured: hishel" in page
    assert "Not measured: hits-1 of hishel, uvicorn: no hit" in page
    assert "| yarl | not installed | not installed |" in page
    lines = [line for line in page.splitlines() if line.startswith("|")]
    assert all(line.endswith("|") for line in lines)
    chart = svg(results, CIRCUMSTANCES)
    assert "0.505 ×" in chart
    ET.fromstring(chart)
    for server in ("bare", "middleware"):
        results.add("hits-1", server, 0, Sample(50.0, 50.0, 0.5))
    long, short = (svg(results, CIRCUMSTANCES, short=short) for short in (False, True))
    assert all(told in long for told in ("bare application", "p99 at a fixed rate"))
    assert not any(told in short for told in ("bare application", "CacheMiddleware", "p99 at a fixed rate"))
    assert "0.505 ×" in short


@pytest.mark.parametrize("kind", KINDS)
def test_another_parser_reads_every_kind_of_content(kind):
    message = KINDS[kind]()
    assert MEGABYTE * 0.95 < len(message.wire) < MEGABYTE * 1.05
    parser = h11.Connection(h11.SERVER)
    parser.receive_data(b"POST / HTTP/1.1\r\nHost: en.example\r\n%b\r\n\r\n" % message.field)
    assert isinstance(parser.next_event(), h11.Request)
    parser.receive_data(message.wire)
    while isinstance(event := parser.next_event(), h11.Data):
        pass
    assert isinstance(event, h11.EndOfMessage)
    assert parser.trailing_data[0] == b""
