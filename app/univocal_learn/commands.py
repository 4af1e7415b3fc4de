"""`univocal probe`, `discover`, `replay`, `audit`: what is learned is shown, nothing is applied."""

from __future__ import annotations

import gc
import hashlib
import json
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Annotated, Final, NoReturn
from urllib.parse import urlsplit

import typer

from univocal.http.grammar import parse_authority
from univocal.http.settings import size
from univocal.judge.profiles import profile_at
from univocal.uri.sites import Sites
from univocal_app.commands.progress import progress
from univocal_app.commands.settings import argument, flag, option, usage_errors
from univocal_app.config import COMMAND_LINE
from univocal_app.observe.log_reader import COUNTED, LogError, entries, host_of, seconds
from univocal_app.terminal import printable, table
from univocal_learn.asking import Asker, OriginError, Remembered, remembering
from univocal_learn.corpus import Corpus, read
from univocal_learn.discover import Discovery, discover, measured, validated
from univocal_learn.names import namesake
from univocal_learn.probe import ProbePlan, Report, plan, probe
from univocal_learn.questions import Pair, questions, risks
from univocal_learn.replaying import Replay, sites_of
from univocal_learn.sample import Sample, read_sample
from univocal_learn.telling import compared, discovered, verdict_on
from univocal_learn.verdicts import Judge

Logs = Annotated[
    list[str], argument("LOG…", "Access logs or lists of URLs, also .gz and .zst; - is standard input.")
]
Form = Annotated[
    str,
    option(
        "auto|alb|combined|counted|haproxy|json|proxy-manager|urls",
        "The format of LOG; counted, lines of `uniq -c`, is for discover.",
        "--format",
    ),
]
MaxBytes = Annotated[str, option("SIZE", "The size of the simulated cache.")]
Ttl = Annotated[float | None, option("SECONDS", "The lifetime of responses. Default: unlimited.", min=0.001)]
AsJson = Annotated[bool, flag("--json", "Print JSON.")]
Out = Annotated[Path | None, option("FILE.toml", "Write the profile to this file.")]
Rate = Annotated[float, option("N", "Send at most this many requests a second.", min=0.01, max=10_000)]


_SHOWN: Final = 160  # bytes of a line
_KNOWN: Final = (
    "The formats: combined (Apache httpd, nginx; also behind a host, or docker compose's service), "
    "JSON (univocal, nginx, Caddy, Traefik), HAProxy's httplog, AWS's load balancer, Nginx Proxy Manager, "
    "plain URLs"
)


def probe_command(
    origin: Annotated[str, argument("ORIGIN", "The origin server: http:// or https:// and a host.")],
    *,
    sample: Annotated[
        str, option("FILE", "Real URLs: a list, a sitemap or an access log; - is standard input.")
    ],
    out: Out = None,
    as_json: AsJson = False,
    rate: Rate = 20.0,
    dry_run: Annotated[bool, flag("--dry-run", "Show the requests without sending them.")] = False,
    resume: Annotated[Path | None, option("FILE", "Save answers in this file, and continue from it.")] = None,
) -> None:
    """Ask an origin server which spellings are one URL, and make its profile.

    Exit status: 0 a question decided, 1 none decided or no answer, 2 usage error.
    """
    base = _origin(origin)
    with usage_errors(LogError):
        pages = read_sample(sample, urlsplit(base).netloc.encode())
    if not pages.targets:
        _end(f"{sample}: no URL of this origin server in the sample")
    if dry_run:
        planned = plan(base, pages.targets)
        typer.echo(planned.as_json() if as_json else _planned(planned))
        return
    report = _probed(base, pages, rate, resume, quiet=as_json)
    if out is not None:
        _write(out, report.profile)
    typer.echo(report.as_json() if as_json else _reported(report, pages))
    raise typer.Exit(0 if report.decided else 1)


def _origin(text: str) -> str:
    """The origin's scheme and authority."""
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or parse_authority(parts.netloc.encode()) is None:
        raise typer.BadParameter(f"ORIGIN {text!r} must be http:// or https:// and a host")
    if parts.path not in {"", "/"} or parts.query or parts.fragment:
        raise typer.BadParameter(f"ORIGIN {text!r} must not have a path, query or fragment")
    return f"{parts.scheme}://{parts.netloc}"


def _probed(base: str, sample: Sample, rate: float, resume: Path | None, *, quiet: bool) -> Report:
    digest = hashlib.sha256(b"\n".join(sample.targets)).hexdigest()[:16]
    number = sum(1 for _ in [*questions(sample.targets), *risks()]) + (namesake(base) is not None)
    with ExitStack() as stack:
        asker = stack.enter_context(closing(Asker(base, rate)))
        with usage_errors(OriginError, OSError, of="--resume: "):
            kept = Remembered(resume, f"{base} {digest}") if resume is not None else None
        if kept is not None:
            stack.callback(kept.close)
        tell = stack.enter_context(progress("asking", number, quiet=quiet))
        try:
            asker.read_robots()
            other = _under_its_other_name(asker, base)
            return probe(
                base,
                sample.targets,
                remembering(asker.get, kept),
                lambda: asker.asked + (other.asked if other else 0),
                tell,
                remembering(other.get) if other else None,
            )
        except OriginError as error:
            _end(str(error))


def _under_its_other_name(asker: Asker, base: str) -> Asker | None:
    """An asker of the same server with "www." before its host or without it; None if there may be none."""
    if (name := namesake(base)) is None:
        return None
    other = asker.named(name)
    try:
        other.read_robots()
    except OriginError:
        return None
    return other


def _planned(planned: ProbePlan) -> str:
    rows = [("question", "pairs", "for example")]
    for name, pairs in planned.pairs.items():
        example = _spellings(pairs[0]) if pairs else "no target of the sample offers one"
        rows.append((name, str(len(pairs)), example))
    count = sum(map(len, planned.pairs.values()))
    return f"{table(rows)}\n\n{count} pairs, each with a control; nothing was asked"


def _spellings(pair: Pair) -> str:
    return f"{pair.a.decode('latin-1')}  {pair.b.decode('latin-1')}"


def _reported(report: Report, sample: Sample) -> str:
    rows = [("question", "verdict", "sure", "shown by")]
    for finding in report.findings:
        example = next((each for each in finding.evidence if each.verdict == finding.verdict), None)
        why = f"{_spellings(example.pair)}  {example.why}" if example else ""
        sure = f"{min(finding.confidence, 0.999):.3f}" if finding.verdict != "unknown" else ""
        rows.append((finding.name, finding.verdict, sure, why))
    targets, plain, learned = report.gains()
    lines = [
        table(rows),
        "",
        *(f"Risk, {risk.name}: {_RISKS[risk.name]}" for risk in report.risks),
        f"{report.requests} requests. The sample's {targets} targets have {plain} keys by RFC 3986 alone, "
        f"{learned} by the learned profile.",
    ]
    if sample.foreign:
        lines.append(f"{sample.foreign} URLs of other hosts were left out.")
    return "\n".join([*lines, "", report.profile])


_RISKS = {
    "dot-segment-parameter": "it reads /..;/ as /../, as few proxies do: refuse dot-segment-parameter",
    "double-decoding": "the origin decodes twice: %252F may pass a check as %2F and arrive as a slash.",
    "any-suffix": "the origin has a page for any suffix: what is private may be stored as /account/x.css.",
    "escape-case": "the origin tells %2f from %2F, which every cache that follows RFC 3986 takes for one. "
    'If it redirects from one to the other, set forward = "received" should clients go in circles.',
    "unreserved": "the origin tells %41 from A, which every cache that follows RFC 3986 takes for one. "
    'If it redirects from one to the other, set forward = "received" should clients go in circles.',
}


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise typer.BadParameter(f"--out {path}: {error.strerror}") from None


def discover_command(
    logs: Logs,
    *,
    form: Form = "auto",
    origin: Annotated[str | None, option("URL", "Test each rule at this origin server.")] = None,
    out: Out = None,
    as_json: AsJson = False,
    rate: Rate = 20.0,
) -> None:
    """Find URLs in a log that mean the same, and the rules behind them.

    Exit status: 0 rules found, 1 no rules found, 2 usage error.
    """
    gc.disable()  # there are a million objects and no circles among them
    corpus = _corpus(logs, form)
    if not corpus.requests:
        _nothing_in(logs, as_json=as_json)
    discovery = discover(corpus)
    if origin is not None and discovery.decided:
        discovery = _validated(discovery, _origin(origin), rate, quiet=as_json)
    before, after = measured(corpus, discovery)
    if out is not None:
        _write(out, discovery.toml())
    typer.echo(discovery.as_json(before, after) if as_json else discovered(discovery, before, after))
    raise typer.Exit(0 if discovery.decided else 1)


def _corpus(logs: list[str], form: str) -> Corpus:
    with usage_errors(LogError):
        return read(entries(logs, form))


def _nothing_in(logs: list[str], *, as_json: bool) -> None:
    """Say that a log has nothing to go by, and end; a program gets the figures of nothing."""
    typer.echo(f"univocal: {', '.join(logs)}: no answered GET in this log", err=True)
    if not as_json:
        raise typer.Exit(1)


def _validated(discovery: Discovery, base: str, rate: float, *, quiet: bool) -> Discovery:
    asker = Asker(base, rate)
    with closing(asker), progress("asking", len(discovery.seen) + len(discovery.rules), quiet=quiet) as tell:
        judge = Judge(remembering(asker.get), base, discovery.urls.targets)
        try:
            asker.read_robots()
            return validated(discovery, judge.between, tell, host_of(urlsplit(base).netloc.encode()))
        except OriginError as error:
            _end(str(error))


def replay_command(
    logs: Logs,
    *,
    profile: Annotated[list[str], option("NAME|FILE", "A profile to compare. Repeatable.")],
    max_bytes: MaxBytes = "256 MiB",
    ttl: Ttl = None,
    form: Form = "auto",
    as_json: AsJson = False,
) -> None:
    """Replay a log under several profiles, and compare hits, bytes and rejections."""
    replays = [
        Replay(name, sites_of(profile_at(name, COMMAND_LINE, "--profile")), ttl, _size(max_bytes))
        for name in profile
    ]
    skipped = _fed(logs, form, replays, Unread(), as_json=as_json)
    outcomes = [replay.outcome() for replay in replays]
    if as_json:
        typer.echo(json.dumps([outcome.told() for outcome in outcomes], indent=2))
    else:
        typer.echo(compared(outcomes, skipped))
    raise typer.Exit(0 if outcomes[0].requests else 1)


def audit_command(
    logs: Logs,
    *,
    profile: Annotated[
        str | None, option("NAME|FILE", "The profile to use. Default: the rules that the log supports.")
    ] = None,
    max_bytes: MaxBytes = "256 MiB",
    ttl: Ttl = None,
    form: Form = "auto",
    as_json: AsJson = False,
) -> None:
    """Estimate from an access log what univocal would gain for a site."""
    if profile is None and "-" in logs:
        raise typer.BadParameter("--profile is needed with standard input, which is read once")
    if profile is not None:
        name, sites = profile, sites_of(profile_at(profile, COMMAND_LINE, "--profile"))
    else:
        name, sites = "learned from the log", _learned(logs, form)
    most = _size(max_bytes)
    replays = [Replay("as they came", None, ttl, most), Replay(name, sites, ttl, most)]
    unread = Unread()
    _fed(logs, form, replays, unread, as_json=as_json)
    if unread.count:
        typer.echo(f"univocal: {unread.told()}", err=True)
    before, after = (replay.outcome() for replay in replays)
    if as_json:
        typer.echo(json.dumps([before.told(), after.told()], indent=2))
    else:
        typer.echo(verdict_on(before, after))
    raise typer.Exit(0 if after.requests else 1)


def _learned(logs: list[str], form: str) -> Sites:
    """Sites by what the logs teach; what was read of these is not kept."""
    discovery = discover(_corpus(logs, form))
    return sites_of(discovery.profile, discovery.aliases)


def _fed(logs: list[str], form: str, replays: list[Replay], unread: Unread, *, as_json: bool) -> int:
    """Feed the GETs that were answered to each; how many lines were none that could be read."""
    if form == COUNTED:
        raise typer.BadParameter(f"--format {COUNTED}: the order of the requests is unknown")
    skipped = count = 0
    with usage_errors(LogError):
        for entry in entries(logs, form, unread.hear):
            unread.lines += 1
            if entry is None:
                skipped += 1
            elif entry.method == b"GET" and 200 <= entry.status < 600 and entry.status != 499:
                count += 1
                now = (seconds(entry.time) if entry.time else None) or 0.0
                for replay in replays:
                    replay.add(entry.host.lower(), entry.target, entry.status, entry.size, now, entry.client)
    if not count:
        if unread.count:
            typer.echo(f"univocal: {unread.told()}", err=True)
        _nothing_in(logs, as_json=as_json)
        unread.count = 0
    return skipped


class Unread:
    """The lines of logs that no format reads."""

    def __init__(self) -> None:
        self.lines = self.count = 0
        self.first = b""

    def hear(self, line: bytes) -> None:
        """Count such a line."""
        self.first = self.first or line
        self.count += 1

    def told(self) -> str:
        """The number of these lines, the first of them, and the known formats."""
        first = printable(self.first[:_SHOWN]) + ("…" if len(self.first) > _SHOWN else "")
        return f"{self.count:,} of {self.lines:,} lines could not be read, the first: {first}\n{_KNOWN}"


def _size(text: str) -> int:
    with usage_errors(ValueError, of=f"--max-bytes: found {text!r}; "):
        return size(text)


def _end(message: str) -> NoReturn:
    """End the command without a result."""
    typer.echo(f"univocal: {message}", err=True)
    raise typer.Exit(1)
