"""Law 3 with Tomcat as the judge: what has one key goes to one servlet, with one path and parameters."""

import itertools
import json
import re
import socket
import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote_to_bytes

import pytest

from examples import LONG, cases, examples
from tests.started import end_input
from tests.started import tomcat as tomcat_command
from univocal.http.errors import ProfileError
from univocal.uri.target import Rejected, canonical_target

pytestmark = pytest.mark.long

HERE = Path(__file__).parent
CONNECTORS = ("plain", "strict", "passthrough", "decoding")  # as Origin.java makes and prints them
TIMEOUT = 60

EXAMPLES = json.loads((HERE.parents[1] / "uri" / "vectors" / "servlet.json").read_text())

PLAIN = ""
LENIENT = "[reject]\nsequences = []\n"
KEPT = '[path]\nparameters = "keep"\n'
DECODING = """[path]
decode = ": @ ! $ & ' ( ) * + , = /"
"""
NOT_MERGING = "[path]\nmerge_slashes = false\n"
QUERY_RING = '[query]\nring = "{}"\n'

# Bytes that Tomcat takes bare nowhere in a target (RFC 9112 §3.2 does not, either); we respell them.
NEVER_BARE = re.compile(rb'[\x80-\xff"<>\[\]\\^`{|}]')
STRAY = re.compile(rb"%(?![0-9A-Fa-f]{2})")


@pytest.fixture(scope="module")
def tomcat(new_directory, client_at):
    """Tomcat 10.1 from Debian's jars with the applications of Origin.java: a client of each connector."""
    command = tomcat_command(HERE / "Origin.java")
    base = new_directory()
    with (base / "log").open("wb") as errors:
        process = subprocess.Popen(
            [*command, str(base)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
        )
    try:
        ports = printed(process, base / "log")
        clients = [client_at(socket.AF_INET, ("127.0.0.1", port)) for port in ports]
        yield SimpleNamespace(**dict(zip(CONNECTORS, clients, strict=True)))
    finally:
        end_input(process)


def printed(process, log):
    """The ports that the program prints when it listens."""
    watchdog = threading.Timer(TIMEOUT, process.kill)
    watchdog.start()
    line = process.stdout.readline()
    watchdog.cancel()
    assert re.fullmatch(rb"(?:\d+ ){4}\n", line), f"it does not start: {log.read_text()}"
    return [int(port) for port in line.split()]


def seen(answer):
    """The servlet, its application and path, and the parameters; or where Tomcat redirects to."""
    if answer.status == 302:
        path, mark, query = answer.location.partition(b"?")
        return re.sub(b";[^/]*", b"", path), mark, unquote_to_bytes(query.replace(b"+", b" "))
    assert answer.status == 200, answer
    name, *told = answer.body.split(b"\n")
    context, servlet_path, path_info, parameters, _ = (
        None if text == b"-" else bytes.fromhex(text.decode()) for text in told
    )
    return name, context, servlet_path, path_info, parameters


@pytest.fixture(scope="module")
def taken(generated):
    """The targets of `generated` without those that Tomcat never takes, as a test below says."""
    return lambda seed, number: [each for each in generated(seed, number) if not NEVER_BARE.search(each)]


def readable(target):
    """Tell whether Tomcat reads the parameters as all others do; it drops one with a stray "%"."""
    return not STRAY.search(target.partition(b"?")[2])


def path_only(seen):
    return seen[:-1]


@pytest.fixture(scope="session")
def without(built_in):
    """The `[reject]` table of the servlet profile but for one reason."""

    def without(reason):
        listed = [name for name in built_in["servlet"].sequences if name != reason]
        assert len(listed) < len(built_in["servlet"].sequences)
        return f"[reject]\nsequences = {json.dumps(listed)}\n"

    return without


@cases(
    "connector, settings",
    ("plain", PLAIN),
    ("strict", PLAIN),
    ("plain", KEPT),
    ("plain", LENIENT),
    ("plain", KEPT + LENIENT),
    ("decoding", DECODING + LENIENT),
    ("plain", QUERY_RING.format("rfc3986")),
    ("plain", QUERY_RING.format("nginx-uri-component")),
    ("plain", QUERY_RING.format("ngx-lua")),
)
def test_urls_with_one_key_are_one_to_tomcat(tomcat, taken, judge, derived, connector, settings):
    """Conversely, URLs that are one to Tomcat have one key, unless parameters are kept."""
    judged = judge(taken(1, 4000), derived("servlet", settings))
    answers = getattr(tomcat, connector).ask(judged.both)
    keys = {}
    for received, canonical in judged.accepted.items():
        if answers[received].refused:
            continue
        reads = seen if readable(received) else lambda answer: path_only(seen(answer))
        assert reads(answers[received]) == reads(answers[canonical]), (received, canonical)
        key = keys.setdefault(path_only(seen(answers[received])), canonical.partition(b"?")[0])
        if KEPT not in settings:
            assert key == canonical.partition(b"?")[0], (received, canonical)
    assert len(keys) > examples(300)
    assert len(judged.accepted) > 1.5 * len(set(judged.accepted.values()))


@pytest.mark.parametrize("settings", [PLAIN, KEPT, LENIENT, KEPT + LENIENT])
def test_urls_with_one_key_are_one_with_encoded_slashes(tomcat, taken, judge, derived, without, settings):
    """Tomcat lets %2f and %2F through as they come, and tells them apart; no specification does."""
    allowed = "" if LENIENT in settings else without("encoded-slash")
    judged = judge(taken(1, 4000), derived("servlet", settings + allowed))
    answers = tomcat.passthrough.ask(judged.both)
    slashes = 0

    def reads(answer):
        return [re.sub(b"%2f", b"%2F", text or b"-") for text in path_only(seen(answer))]

    for received, canonical in judged.accepted.items():
        if not answers[received].refused:
            assert reads(answers[received]) == reads(answers[canonical]), (received, canonical)
            slashes += b"%2F" in canonical
    assert slashes > 500


@cases(
    "connector, parameters",
    ("plain", "strip"),
    ("plain", "keep"),
    ("passthrough", "strip"),
    ("passthrough", "keep"),
    ("decoding", "strip"),
)
def test_every_ring_fits_that_leaves_delimiters_alone(
    tomcat, taken, judge, derived, drawn, connector, parameters
):
    """A ring that would make data of a delimiter or the reverse is refused when it is loaded."""
    targets, fitting = taken(2, 600)[::4], 0
    for ring in drawn(1, 20, "/" if connector == "decoding" else ""):
        try:
            profile = derived("servlet", f'{ring}parameters = "{parameters}"\n{LENIENT}')
        except ProfileError:
            continue
        fitting += 1
        judged = judge(targets, profile)
        answers = getattr(tomcat, connector).ask(judged.both)
        for received, canonical in judged.accepted.items():
            if not answers[received].refused and not answers[canonical].refused:
                paths = [path_only(seen(answers[each])) for each in (received, canonical)]
                one, other = ([re.sub(b"%2f", b"%2F", text or b"-") for text in path] for path in paths)
                assert one == other, (ring, received, canonical)
    assert fitting > 5


def test_decoded_slashes_do_not_come_out_of_parameters(tomcat, derived):
    """Tomcat takes this for a parameter of the root; without the parameter it would be /admin."""
    assert path_only(seen(tomcat.decoding.one(b"/;%2fadmin"))) == (b"default", b"", b"/", None)
    stripping = derived("servlet", DECODING + LENIENT)
    assert canonical_target(b"/;%2fadmin", stripping) == b"/"
    with pytest.raises(ProfileError, match="'/'"):
        derived("servlet", DECODING + 'parameters = "keep"\n' + LENIENT)


@cases("settings, received", (NOT_MERGING, b"/foo//."), ('[path]\ndot_segments = "rfc3986"\n', b"/foo/x/.."))
def test_a_profile_that_does_not_fit_is_found_out(tomcat, derived, settings, received):
    """Tomcat merges slashes whatever it is told, and leaves no slash where a dot segment was last."""
    canonical = canonical_target(received, derived("servlet", settings))
    assert seen(tomcat.plain.one(received)) != seen(tomcat.plain.one(canonical))


def test_nothing_canonical_is_refused_that_was_not_when_received(tomcat, taken, judge, built_in):
    judged = judge(taken(1, 4000), built_in["servlet"])
    for client in (tomcat.plain, tomcat.strict):
        answers = client.ask(judged.both)
        for received, canonical in judged.accepted.items():
            assert answers[received].refused or not answers[canonical].refused, (received, canonical)


# Differences between the two.


def test_tomcat_refuses_only_what_no_target_may_hold_bare(tomcat, generated, judge, built_in):
    judged = judge(generated(1, 4000), built_in["servlet"])
    answers = tomcat.plain.ask(judged.both)
    for received, canonical in judged.accepted.items():
        assert answers[received].refused == bool(NEVER_BARE.search(received)), received
        assert not answers[canonical].refused or NEVER_BARE.search(canonical.partition(b"?")[2]), canonical


def test_the_examples_of_the_specification(tomcat, built_in):
    """Tomcat dispatches every accepted example of the 84 as the specification says, if it takes it."""
    refused = set()
    for target, decoded, reasons in EXAMPLES:
        answer = tomcat.plain.one(target.encode())
        result = canonical_target(target.encode(), built_in["servlet"])
        assert isinstance(result, Rejected) == bool(reasons)
        if reasons:
            continue
        if answer.refused:
            refused.add(target)
            answer = tomcat.plain.one(result)
        _, context, servlet_path, path_info, _ = seen(answer)
        assert (context + servlet_path + (path_info or b"")).decode() == decoded, target
    assert refused == {"/foo/pass:[...]/bar"}


LAXER = {
    "control-character": (b"/foo/a%01", b"/a\x01"),
    "encoded-slash": (b"/foo/a;%2f", b"/a"),
    "backslash": (b"/foo/a;%5c", b"/a"),
    "empty-segment-parameter": (b"/;/foo/a", b"/a"),
    "encoded-dot-segment": (b"/x/%2e%2e/foo/a", b"/a"),
    "dot-segment-parameter": (b"/x/..;/foo/a", b"/a"),
    "bad-escape": (b"/foo/a;%2", b"/a"),
    "bad-utf-8": (b"/foo/a;%c0%ae", b"/a"),
    "dot-dot-after-empty-segment": (b"/x//../foo/a", b"/a"),
}
STRICTLY = {"bad-escape", "backslash", "bad-utf-8"}  # rejectSuspiciousURIs lets these pass still


@pytest.mark.parametrize("reason", LAXER)
def test_tomcat_accepts_some_targets_that_the_profile_refuses(tomcat, derived, reason):
    target, path_info = LAXER[reason]
    settings = NOT_MERGING if reason == "dot-dot-after-empty-segment" else PLAIN
    result = canonical_target(target, derived("servlet", settings))
    assert isinstance(result, Rejected)
    assert result.reasons == (reason,)
    assert path_only(seen(tomcat.plain.one(target))) == (b"foo", b"", b"/foo", path_info)
    merged = reason == "dot-dot-after-empty-segment"
    assert tomcat.strict.one(target).refused == (reason not in STRICTLY and not merged)


def test_tomcat_is_laxer_in_nothing_else(tomcat, generated, judge, built_in):
    targets = generated(1, 4000)[:: 1 if LONG else 4]
    judged = judge([*targets, b"/foo/..,a", *(target for target, _ in LAXER.values())], built_in["servlet"])
    plain, strict = tomcat.plain.ask(judged.refused), tomcat.strict.ask(judged.refused)
    by_commas = {"dot-segment-parameter"}  # parameters begin with ";" alone there
    for answers, laxer in (
        (plain, set(LAXER) - {"dot-dot-after-empty-segment"}),
        (strict, STRICTLY | by_commas),
    ):
        reasons = [result.reasons for target, result in judged.refused.items() if not answers[target].refused]
        assert set(itertools.chain(*reasons)) == laxer


@pytest.mark.parametrize("target", [b"/foo/...;", b"/foo/..%2e", b"/foo/.%2e%2E/"])
def test_rejecting_suspicious_sequences_is_stricter_than_the_specification(tomcat, built_in, target):
    """Three dots are no dot segment."""
    assert isinstance(canonical_target(target, built_in["servlet"]), bytes)
    assert tomcat.strict.one(target).refused
    assert not tomcat.plain.one(target).refused


def test_tomcat_drops_a_parameter_with_a_stray_percent_sign(tomcat, built_in):
    """Its canonical spelling has a value: the one that other readers see."""
    assert canonical_target(b"/foo?a=1&b=%zz", built_in["servlet"]) == b"/foo?a=1&b=%25zz"
    assert seen(tomcat.plain.one(b"/foo?a=1&b=%zz"))[-1] == b"a=1\n"
    assert seen(tomcat.plain.one(b"/foo?a=1&b=%25zz"))[-1] == b"a=1\nb=%zz\n"


@cases("target", b"/shop/..;/admin/x", b"/shop/%2e%2e/admin/x", b"/shop/x;/../..;a=b/admin/x")
def test_the_way_into_another_application_is_closed(tomcat, built_in, target):
    assert seen(tomcat.plain.one(target))[:2] == (b"admin", b"")
    assert isinstance(canonical_target(target, built_in["servlet"]), Rejected)
