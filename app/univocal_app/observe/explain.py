"""A URL explained, stage by stage, by the same functions that requests go through."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from univocal.cache.rules import DEFAULTS, Rules
from univocal.http.grammar import DEFAULT_PORTS, parse_authority, split_absolute
from univocal.judge.access import Restriction
from univocal.uri.profile import Profile
from univocal.uri.sites import Sites, ascii_authority, declared_charsets, resolve_url
from univocal.uri.target import Canonical, Rejected, Stage, explain_target, origin_target, reference
from univocal_app.terminal import printable, table, written


@dataclass(frozen=True)
class Url:
    """A URL as it was typed, cut where a client cuts it; nothing else is done to its bytes."""

    scheme: bytes
    authority: bytes
    target: bytes  # with what follows a "#", which a client would keep to itself
    written: bytes = b""  # scheme and authority as they were typed

    @classmethod
    def parse(cls, text: str) -> Url:
        """Raises ValueError for what is no http or https URL. A host in other letters becomes A-labels."""
        typed = split_absolute(os.fsencode(text))
        if typed is None or typed.scheme.lower() not in DEFAULT_PORTS:
            raise ValueError(f"{text!r} is not a URL: write http:// or https:// and a host")
        scheme, authority, target = typed
        if not authority.isascii():
            labels = ascii_authority(authority)
            if labels is None:
                raise ValueError(f"{text!r} names no host")
            authority = labels
        return cls(scheme.lower(), authority, target, b"%b://%b" % (scheme, typed.authority))

    @property
    def absolute(self) -> bytes:
        """The URL as one text."""
        return b"%b://%b%b" % (self.scheme, self.authority, self.target)

    @property
    def origin_form(self) -> bytes:
        """The request target (RFC 9112 §3.2.1): an empty path is "/"."""
        return self.target if self.target.startswith(b"/") else b"/" + self.target


@dataclass(frozen=True)
class Explanation:
    """A URL, whose profile read it, the stages, and the result."""

    url: Url
    profile: Profile | None  # None: no site owns the host
    stages: list[Stage]
    resolved: Canonical | Rejected
    rules: Rules = DEFAULTS
    guards: tuple[str, ...] = ()  # the names of the bounds on access that hold for it

    @property
    def accepted(self) -> bool:
        """True if there is a canonical form."""
        return isinstance(self.resolved, Canonical)

    def as_json(self) -> str:
        """The object that `explain --json` prints."""
        resolved, names = self.resolved, ("name", "before", "after", "lossy")
        stages = ((one.name, printable(one.before), printable(one.after), one.lossy) for one in self.stages)
        document = {
            "canonical": printable(resolved.url) if isinstance(resolved, Canonical) else None,
            "rejected": resolved.reason if isinstance(resolved, Rejected) else None,
            "reasons": list(resolved.reasons if isinstance(resolved, Rejected) else resolved.observed),
            "key": printable(resolved.key) if isinstance(resolved, Canonical) else None,
            "stages": [dict(zip(names, each, strict=True)) for each in stages],
        }
        return json.dumps(document, ensure_ascii=False, indent=2)

    def as_text(self) -> str:
        """For a terminal: what each stage changed, then the verdict."""
        rows = [("received", printable(self.url.origin_form), "")]
        for stage in self.stages:
            changed = stage.after != stage.before
            note = "drops what an origin may read" if stage.lossy and changed else ""
            rows.append((stage.name, printable(stage.after) if changed else "unchanged", note))
        head = f"profile {self.profile.name}: {self.profile.summary}\n\n" if self.profile else ""
        return f"{head}{table(rows)}\n\n{table(self._verdict().items())}"

    def _verdict(self) -> dict[str, str]:
        match self.resolved:
            case Rejected(reasons=reasons):
                return {"rejected": ", ".join(reasons)}
            case Canonical(redirect=status) as canonical if status:
                return {"redirect": f"{status} to {printable(canonical.own_url)}"}
            case canonical:
                verdict = {"canonical": printable(canonical.url), "key": printable(canonical.key)}
                if canonical.respelled and canonical.site.canonical in {301, 308}:
                    verdict["a GET gets"] = f"{canonical.site.canonical} to {printable(reference(canonical))}"
                if (sent := origin_target(canonical)) != canonical.target:
                    verdict["origin gets"] = printable(sent)
                if changed := self.rules.changed():
                    verdict["cache"] = ", ".join(
                        f"{name} = {written(value)}" for name, value in changed.items()
                    )
                if self.guards:
                    verdict["guarded by"] = ", ".join(self.guards)
                if canonical.loose:
                    verdict["loose"] = f"not stored: a server may take it for {printable(canonical.plain)}"
                if observed := ", ".join(canonical.observed):
                    verdict["observed"] = f"{observed}: forwarded as received, past the cache"
                return verdict


def explain(
    text: str,
    sites: Sites,
    encodings: tuple[bytes, bytes] = (b"", b""),
    rules_of: Callable[[Canonical], Rules] = lambda _: DEFAULTS,
    guards_of: Callable[[Canonical], Sequence[Restriction]] = lambda _: (),
) -> Explanation:
    """Explain a URL by `sites`; `encodings` are the values of the fields that declare charsets.

    Raises ValueError for what is no URL.
    """
    url = Url.parse(text)
    resolved = resolve_url(url.absolute, sites, encodings=encodings)
    profile = resolved.route.profile if isinstance(resolved, Canonical) else _profile(url, sites)
    stages = []
    if profile:
        trusted = declared_charsets(encodings if profile.charset.trust_encoding_fields else (b"", b""))
        stages = explain_target(url.origin_form, profile, trusted)[0]
    if isinstance(resolved, Canonical):
        stages = [*_of_the_authority(url, resolved), *stages]
        stages += _of_readings(resolved)
        if (sent := origin_target(resolved)) != resolved.target:
            stages.append(Stage("upstream", resolved.target, sent, lossy=False))
        guards = tuple([each.name for each in guards_of(resolved)])
        if guards:
            stages.append(Stage("guards", resolved.target, ", ".join(guards).encode(), lossy=False))
        if resolved.loose:
            stages.append(Stage("loose", resolved.target, resolved.plain, lossy=False))
        return Explanation(url, profile, stages, resolved, rules_of(resolved), guards)
    return Explanation(url, profile, stages, resolved)


def _of_the_authority(url: Url, canonical: Canonical) -> list[Stage]:
    """The stage of scheme, host, port and an empty path; an alias and a unified scheme are lossy."""
    authority = b"%b://%b" % (canonical.scheme, canonical.authority)
    named, served = parse_authority(url.authority), parse_authority(canonical.authority)
    lossy = canonical.scheme != url.scheme or (named and named[0]) != (served and served[0])
    stages = [Stage("authority", url.written, authority, lossy)] if authority != url.written else []
    if url.origin_form != url.target:
        stages.append(Stage("empty-path", url.target, url.origin_form, lossy=False))
    return stages


def _of_readings(canonical: Canonical) -> list[Stage]:
    """A stage for each other path for which a server behind may take the canonical one."""
    path = canonical.target.partition(b"?")[0]
    found = canonical.readings
    if found.everywhere:
        return [Stage("readings", path, b"(any path)", lossy=False)]
    others = sorted(found.folded - {path.lower()})
    return [Stage("readings", path, reading, lossy=False) for reading in others]


def _profile(url: Url, sites: Sites) -> Profile | None:
    authority = parse_authority(url.authority)
    if authority is None:
        return None
    host, port = authority
    located = sites.locate(host, port or DEFAULT_PORTS[url.scheme])
    path = url.origin_form.partition(b"#")[0].partition(b"?")[0]
    return located[0].route_of(located[0].view(path)).profile if located else None
