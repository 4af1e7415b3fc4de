"""The rules of a log: what is found, what it would change, and a profile to paste."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from univocal.uri.profile import Profile
from univocal.uri.target import canonical_target
from univocal_app.terminal import printable
from univocal_learn.corpus import Corpus, Urls, sizes_tell
from univocal_learn.forms import Seen, host_aliases, path_settings, query_settings
from univocal_learn.replaying import Replay, Replayed, sites_of
from univocal_learn.substitutions import Substitution, marked, substitutions
from univocal_learn.verdicts import Verdict
from univocal_learn.written import Settings, is_accepted, loaded, plain, spelled, toml

Lesson = TypeVar("Lesson", bound=Seen)
Ask = Callable[[bytes, bytes], Verdict]
"""ask(one, other) is what the two targets are to the origin."""

BASE: Final = Settings(dot_segments="rfc3986", refused=("control-character", "fragment"))
"""RFC 3986 alone decides what is one before any log does."""

_KEYS: Final = {"alias": "", "drop": "query.drop", "default": "query.defaults", "sort": "query.sort"}
# The settings in each table of the JSON that is printed.
_TOLD: Final = {
    "path": ("merge_slashes", "parameters", "index_names", "trailing_slash", "decode"),
    "query": ("drop", "defaults", "sort"),
}
_ASKED: Final = 5  # pairs of a rule that the origin is asked for


@dataclass(frozen=True, slots=True)
class Validated:
    """The number of a rule's pairs that the origin takes for one, and of those that it tells apart."""

    same: int
    different: int

    @property
    def refuted(self) -> bool:
        """The origin server contradicts the rule, or does not support it."""
        return self.different > 0 or self.same == 0


@dataclass(frozen=True)
class Discovery:
    """The rules of a log; `urls` are those that RFC 3986 leaves, and pairs are numbers of theirs."""

    corpus: Corpus
    urls: Urls
    settings: Settings
    seen: tuple[Seen, ...]
    rules: tuple[Substitution, ...]
    aliases: Mapping[str, str]
    validated: Mapping[str, Validated]

    @property
    def decided(self) -> bool:
        """There is something to propose."""
        return bool(self.seen or self.rules)

    @property
    def profile(self) -> Profile:
        """The profile that the log supports."""
        return loaded(self.settings)

    def folded(self) -> tuple[int, int]:
        """The number of URLs that go, and of requests that were not for the spelling most asked for."""
        profile, most = self.profile, dict[bytes, int]()
        urls = self.urls
        for number, target in enumerate(urls.targets):
            host = urls.hosts[number].decode("latin-1")
            key = self.aliases.get(host, host).encode("latin-1") + spelled(target, profile)
            most[key] = max(most.get(key, 0), urls.count[number])
        return len(urls) - len(most), sum(urls.count) - sum(most.values())

    def toml(self) -> str:
        """The profile as a file, with the evidence for each setting."""
        requests, distinct = self.corpus.requests, len(self.corpus.urls)
        remarks: dict[str, list[str]] = {
            "": [
                f"Written by `univocal discover` after {requests} request{'s' * (requests != 1)} "
                f"for {distinct} URL{'s' * (distinct != 1)}.",
                "Read it before you use it: a log alone proves nothing. `discover --origin` asks the origin.",
                *(
                    f"Hosts: {alias} is {host}: an entry of `aliases`."
                    for alias, host in self.aliases.items()
                ),
            ]
        }
        for seen in self.seen:
            kind = seen.name.partition(" ")[0]
            remarks.setdefault(_KEYS.get(kind, f"path.{kind}"), []).append(self._remark(seen, seen.name))
        for number, rule in enumerate(self.rules):
            remarks[f"rewrite[{number}]"] = [self._remark(rule, "rule")]
        settings = replace(self.settings, rewrites=tuple(rule.rule for rule in self.rules))
        return toml(settings, "Learned from a log", remarks)

    def _remark(self, seen: Seen, name: str) -> str:
        example = ""
        if seen.pairs:
            one, other = (printable(self.urls.targets[number]) for number in seen.pairs[0])
            example = f"; {one} and {other}"
        check = self.validated.get(seen.name)
        remark = f"; the origin: {check.same} same, {check.different} different" if check else ""
        return f"{name}: {seen.support} pairs ({min(seen.confidence, 0.999):.3f}){example}{remark}"

    def as_json(self, before: Replayed, after: Replayed) -> str:
        """The object that `discover --json` prints."""
        settings, folded = self.settings, self.folded()
        document: dict[str, Any] = {
            "urls": len(self.corpus.urls),
            "requests": self.corpus.requests,
            "skipped": self.corpus.skipped,
            "sampled": self.corpus.share,
            "rules": [self._rule(rule) for rule in self.rules],
            **{table: {key: plain(settings, key) for key in keys} for table, keys in _TOLD.items()},
            "hosts": {"aliases": dict(self.aliases)},
            "folded": {"urls": folded[0], "requests": folded[1]},
            "hit_ratio": {"before": round(before.hit_ratio, 6), "after": round(after.hit_ratio, 6)},
            "profile": self.toml(),
        }
        return json.dumps(document, ensure_ascii=False, indent=2)

    def _rule(self, rule: Substitution) -> dict[str, object]:
        check = self.validated.get(rule.name)
        return {
            "from": rule.rule[0],
            "to": rule.rule[1],
            "at": rule.rule[2],
            "support": rule.support,
            "confidence": round(rule.confidence, 4),
            "validated": {"same": check.same, "different": check.different} if check else None,
        }


def folded_by(urls: Urls, profile: Profile) -> Urls:
    """The URLs with their targets canonical; what the profile refuses is left out."""
    result = Urls()
    for number, target in enumerate(urls.targets):
        canonical = canonical_target(target, profile)
        if isinstance(canonical, bytes):
            result.take(urls, number, canonical)
    return result


def discover(corpus: Corpus) -> Discovery:
    """The rules that the log alone supports."""
    base = folded_by(corpus.urls, loaded(BASE))
    if not sizes_tell(corpus.urls):
        base.forget_sizes()
    settings, seen = path_settings(base)
    smaller = folded_by(base, loaded(settings))
    settings, more = query_settings(smaller, settings)
    smallest = folded_by(smaller, loaded(settings))
    settings, rules = substitutions(smallest, settings)
    settings, others, marks = marked(smallest, settings)
    rules += others
    aliases, hosts = host_aliases(smallest)
    # Pairs are told in URLs as they were asked for, as far as one of that spelling was.
    renumbered = [_renumbered(each, smaller, base) for each in more]
    renumbered += [_renumbered(each, smallest, base) for each in (*marks, *hosts)]
    left = tuple(_renumbered(rule, smallest, base) for rule in rules)
    return Discovery(corpus, base, settings, (*seen, *renumbered), left, aliases, {})


def _estimated(discovery: Discovery) -> tuple[Replayed, Replayed]:
    """The outcomes where the order of requests is unknown, and all stays fresh: one miss for each key."""
    urls = discovery.urls
    requests, keys = sum(urls.count), len(urls)

    def outcome(name: str, keys: int) -> Replayed:
        return Replayed(name, requests, keys, requests - keys, held=0, evictions=0, refused={})

    return outcome("rfc3986", keys), outcome("learned", keys - discovery.folded()[0])


def _renumbered(lesson: Lesson, here: Urls, there: Urls) -> Lesson:
    """A lesson with its pairs as numbers of other URLs, as far as these have them."""
    moved = []
    for pair in lesson.pairs:
        one, other = (there.find(here.hosts[number], here.targets[number]) for number in pair)
        if one is not None and other is not None:
            moved.append((one, other))
    return replace(lesson, pairs=tuple(moved))


def measured(corpus: Corpus, discovery: Discovery) -> tuple[Replayed, Replayed]:
    """The outcomes with RFC 3986 alone, and with the discovery: of a replay, where the order is known."""
    if not corpus.ordered:
        return _estimated(discovery)
    before = _replayed(corpus, Replay("rfc3986", sites_of(loaded(BASE))))
    if not discovery.decided:
        return before, before
    return before, _replayed(corpus, Replay("learned", sites_of(discovery.profile, discovery.aliases)))


def _replayed(corpus: Corpus, replay: Replay) -> Replayed:
    urls = corpus.urls
    for number, status in zip(corpus.order, corpus.statuses, strict=True):
        replay.add(urls.hosts[number], urls.targets[number], status, urls.high[number], 0.0)
    return replay.outcome()


def validated(discovery: Discovery, ask: Ask, tell: Callable[[str], None], host: bytes = b"") -> Discovery:
    """The discovery that is left after the origin was asked about some pairs of each setting and rule.

    Where the log names `host`, the origin is asked about its URLs alone.
    """
    hosts, targets = discovery.urls.hosts, discovery.urls.targets
    named = host in set(hosts)
    results: dict[str, Validated] = {}
    for seen in (*discovery.seen, *discovery.rules):
        if seen.name.startswith("alias "):
            continue  # only one host is asked
        own = [pair for pair in seen.pairs if not named or hosts[pair[0]] == hosts[pair[1]] == host]
        verdicts = [ask(targets[one], targets[other]) for one, other in own[:_ASKED]]
        result = Validated(verdicts.count("same"), verdicts.count("different"))
        results[seen.name] = result
        remark = f"{result.same} same, {result.different} different"
        tell(f"{seen.name}: {remark}{', so it goes' if result.refuted else ''}")
    refuted = {name for name, result in results.items() if result.refuted}
    rules = tuple(rule for rule in discovery.rules if rule.name not in refuted)
    settings = _without(discovery.settings, refuted)
    settings = replace(settings, rewrites=tuple(rule.rule for rule in rules))
    if not is_accepted(settings):
        settings, rules = replace(settings, rewrites=()), ()
    left = tuple(each for each in discovery.seen if each.name not in refuted)
    return replace(discovery, settings=settings, seen=left, rules=rules, validated=results)


def _without(settings: Settings, names: set[str]) -> Settings:
    """The settings without those whose names the origin refuted."""
    dropped = {word for name in names if name.startswith("drop ") for word in name.split(" ")[1:]}
    given = (name.removeprefix("default ") for name in names if name.startswith("default "))
    defaults = {name.partition("=")[0] for name in given}
    return replace(
        settings,
        merge_slashes=settings.merge_slashes and "merge_slashes" not in names,
        parameters="keep" if "parameters" in names else settings.parameters,
        trailing_slash="keep" if "trailing_slash" in names else settings.trailing_slash,
        index_names=tuple(name for name in settings.index_names if f"index_names {name}" not in names),
        decode=bytes(octet for octet in settings.decode if f"decode {octet:c}" not in names),
        drop=tuple(name for name in settings.drop if name not in dropped),
        defaults={name: value for name, value in settings.defaults.items() if name not in defaults},
        sort=settings.sort and "sort" not in names,
    )
