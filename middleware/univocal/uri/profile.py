"""A profile's text to a frozen Profile: how one family of origins reads paths and queries."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Final, NamedTuple, Protocol, TypeAlias

from univocal.http.errors import ConfigurationError, Objections, ProfileError, by_rank
from univocal.uri.charset import Charset, encoded
from univocal.uri.percent_encoding import DECODE, ENCODE, RINGS, DecoderRing
from univocal.uri.query import Query
from univocal.uri.rewrite import Rule, first_overlap
from univocal.uri.schema import CACHE, Tables, load, merged, with_defaults
from univocal.uri.suspicious import SUB_DELIMITERS

# Part of every digest: to be raised when the same settings come to mean something else, so that a shared
# store never answers with what an older univocal keyed.
_VERSION: Final = 2


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """The way in which one kind of application reads targets; equal `digest`s mean the same reading."""

    name: str
    summary: str
    settings: Tables = field(repr=False)  # the file's tables, merged with those of the profiles it extends
    ring: DecoderRing = field(repr=False)
    merge_slashes: bool | str  # or "leading"
    loose: tuple[str, ...]  # spellings that some server of the family takes for another path
    dot_segments: str
    parameters: str
    parameter_delimiters: bytes
    trailing_slash: str
    index_names: tuple[bytes, ...]
    raw: str
    query: Query
    charset: Charset
    rewrites: tuple[Rule, ...]
    tags: tuple[tuple[bytes, bytes], ...]
    sequences: tuple[str, ...]
    mode: str
    digest: bytes = field(init=False)

    def __post_init__(self) -> None:
        descriptive = {"name", "summary", "settings", "loose", "digest"}  # what changes no target
        facts = [
            (slot.name, getattr(self, slot.name)) for slot in fields(self) if slot.name not in descriptive
        ]
        digest = hashlib.sha256(repr((_VERSION, facts)).encode()).hexdigest()[:16]
        object.__setattr__(self, "digest", digest.encode())

    @classmethod
    def load(cls, text: str, name: str = "own", known: Mapping[str, Profile] | None = None) -> Profile:
        """The profile that a TOML `text` describes; it may extend one of the `known` or built-in profiles.

        Raises ProfileError with the key, the value and the allowed values.
        """
        return parse({name: text}, _shelf.built_in() if known is None else known)[name]

    @classmethod
    def from_file(cls, file: str | FileName, known: Mapping[str, Profile] | None = None) -> Profile:
        """The profile in a TOML file, named like the file; it may extend a `known` or built-in profile.

        Raises ProfileError, also for a file that cannot be read.
        """
        return _shelf.read(file, _shelf.built_in() if known is None else known)

    @property
    def cache(self) -> Tables:
        """The file's settings for the cache: defaults of those sites and routes that choose this profile."""
        settings: Tables = self.settings.get(CACHE, {})
        return settings

    @property
    def allowed(self) -> tuple[str, ...]:
        """The reasons that the profile takes from its parent's list, and a route's from its site's."""
        return tuple(self.settings.get("reject", {}).get("allow", ()))

    @property
    def reads_parameters(self) -> bool:
        """A segment's name ends where its parameters begin."""
        return self.parameters == "strip" or self.dot_segments == "servlet"


class FileName(Protocol):
    """A file's name: a `pathlib.Path`, or anything like one."""

    def __fspath__(self) -> str:
        """The name as a text."""
        ...


ProfileName: TypeAlias = str | FileName | Profile
"""A profile as users name it: a built-in profile's name, a file, or the profile itself."""


class Shelf(NamedTuple):
    """The built-in profiles by name, and the reader of a profile's file."""

    built_in: Callable[[], Mapping[str, Profile]]
    read: Callable[[str | FileName, Mapping[str, Profile]], Profile]


def _unread(file: str | FileName, _: Mapping[str, Profile]) -> Profile:
    raise ProfileError(str(file), "", "no reader of files", "import univocal")


_shelf = Shelf(dict, _unread)


def put_shelf(shelf: Shelf) -> None:
    """Register the reader of profiles: this room reads no files, the one above it does."""
    global _shelf  # noqa: PLW0603 - one for the process, set when the package is imported
    _shelf = shelf


def chosen_profile(profile: ProfileName | None, source: str, key: str = "profile") -> Profile:
    """The profile that a user names.

    Raises ConfigurationError with `source` and `key`; ProfileError for a file.
    """
    if isinstance(profile, Profile):
        return profile
    known = _shelf.built_in()
    if isinstance(profile, str) and profile in known:
        return known[profile]
    if profile is not None and not isinstance(profile, str) and hasattr(profile, "__fspath__"):
        return Profile.from_file(profile)
    allowed = ", ".join(sorted(known))
    if isinstance(profile, str) and (profile.endswith(".toml") or "/" in profile):
        allowed = f"for a file Path({profile!r}), or the name of a built-in profile: {allowed}"
    raise ConfigurationError(source, key, profile, allowed)


def parse(texts: Mapping[str, str], known: Mapping[str, Profile] = {}) -> dict[str, Profile]:
    """The profiles whose TOML `texts` these are, by name; they may extend one another and the `known` ones.

    Raises ProfileError with the profile, the dotted key, what was found and what is allowed, of each
    invalid profile.
    """
    parents = {name: profile.settings for name, profile in known.items()}
    objections = Objections()
    own, profiles = dict[str, Tables](), dict[str, Profile]()
    for name, text in texts.items():
        with objections:
            own[name] = load(f"profile {name}", text)
    objections.conclude()
    for name in own:
        with objections:
            profiles[name] = _build(name, merged(name, own, parents))
    objections.conclude()
    return profiles


def _build(name: str, tables: Tables) -> Profile:
    source = f"profile {name}"
    complete = with_defaults(tables)
    path = complete["path"]
    ring = _path_ring(source, path, tables.get("path", {}))
    ring = ring.with_unicode_escapes() if path["unicode_escapes"] else ring
    charset = Charset(**complete["charset"])
    transcode = charset.transcoder("path")
    profile = Profile(
        name=name,
        summary=tables.get("summary", ""),
        settings=tables,
        ring=ring,
        merge_slashes=path["merge_slashes"],
        loose=path["loose"],
        dot_segments=path["dot_segments"],
        parameters=path["parameters"],
        parameter_delimiters=path["parameter_delimiters"],
        trailing_slash=path["trailing_slash"],
        index_names=tuple(transcode(ring.canonical(name.encode())) for name in path["index_names"]),
        raw=path["raw"],
        query=_query(complete["query"], charset, unicode_escapes=path["unicode_escapes"]),
        charset=charset,
        rewrites=_rewrites(source, complete["rewrite"], ring),
        tags=_tags(source, complete["tags"]),
        sequences=by_rank({*complete["reject"]["sequences"]} - {*complete["reject"]["allow"]}),
        mode=complete["reject"]["mode"],
    )
    _check_delimiters(source, profile)
    _check_semicolon(source, profile)
    _check_charset(source, profile)
    return profile


def _path_ring(source: str, settings: Tables, written: Tables) -> DecoderRing:
    ring: DecoderRing | None = settings["ring"]
    sets = [key for key in ("decode", "encode") if written.get(key)]
    if ring and sets:
        allowed = 'nothing beside path.ring (or ring = "")'
        raise ProfileError(source, f"path.{sets[0]}", written[sets[0]], allowed)
    decode, encode, tried = settings["decode"], settings["encode"], "decode"
    try:
        DecoderRing.from_sets(decode, b"")
        tried = "encode"
        return ring or DecoderRing.from_sets(decode, encode)
    except ValueError as error:
        raise ProfileError(source, f"path.{tried}", written[tried], f"a table in which {error}") from None


_ASCII_OR_NOT: Final = re.compile(r"[\x00-\x7f]+|[^\x00-\x7f]+")


def _spelled(name: str, part: str, charset: Charset) -> bytes:
    """A name of the profile's in the bytes that targets have when it is compared with them: the origin's."""
    legacy = charset.path if part == "path" else charset.query
    if charset.origin == "legacy":
        for each in legacy:
            runs = [
                encoded(run, each) if run[0] >= "\x80" else run.encode()
                for run in _ASCII_OR_NOT.findall(name)
            ]
            if None not in runs:
                return b"".join(run for run in runs if run is not None)
    return name.encode()


def _query(settings: Tables, charset: Charset, *, unicode_escapes: bool) -> Query:
    ring, allow = settings["ring"], settings["allow"]
    ring = ring.with_unicode_escapes() if ring and unicode_escapes else ring

    def spelled(name: object) -> bytes:
        return _spelled(str(name), "query", charset)

    return Query(
        ring=ring and ring.for_queries(),
        allow=None if allow is None else tuple(map(spelled, allow)),
        drop=tuple(map(spelled, settings["drop"])),
        defaults=tuple((spelled(name), spelled(value)) for name, value in settings["defaults"].items()),
        drop_empty=settings["drop_empty"],
        sort=settings["sort"],
        drop_empty_mark=settings["drop_empty_mark"],
        semicolon=settings["semicolon"],
        unicode_escapes=unicode_escapes,
        decodes_unreserved=settings["unreserved"] == "decode",
    )


def _rewrites(source: str, rows: list[dict[str, str]], ring: DecoderRing) -> tuple[Rule, ...]:
    rules = tuple(Rule(row["from"].encode(), row["to"].encode(), row["at"]) for row in rows)
    for number, rule in enumerate(rules):
        if fault := _fault_of(rule, ring):
            part, allowed = fault
            raise ProfileError(source, f"rewrite[{number}].{part}", rows[number][part], allowed)
    overlap = first_overlap(rules)
    if overlap:
        writer, matcher = (rules.index(rule) for rule in overlap)
        allowed = (
            f"nothing that rewrite[{matcher}].from = {rows[matcher]['from']!r} could match, even in part"
        )
        raise ProfileError(source, f"rewrite[{writer}].to", rows[writer]["to"], allowed)
    return rules


_CANONICAL: Final = "a part of a target, in canonical spelling"


def _fault_of(rule: Rule, ring: DecoderRing) -> tuple[str, str] | None:
    """The key by which a rule cannot be, and what is allowed there; None for a rule that can."""
    if rule.at == "path" and (b"?" not in rule.output or b"?" in rule.pattern):
        return "at", "anywhere, where `to` begins no query in a path"
    if rule.at == "prefix":
        return _fault_of_prefix(rule, ring)
    if rule.at == "suffix":
        return _fault_of_suffix(rule, ring)
    spells = _spells(rule.pattern, ring)
    if not rule.pattern or b"#" in rule.pattern or spells is None:
        return "from", _CANONICAL
    if not rule.output or re.search(rb"[%\\#]|(?:^|/)\.\.?(?:/|$)", rule.output):
        return "to", "a string without '%', '#', '\\' and dot segments"
    if spells(rule.output) != rule.output:
        return "to", _CANONICAL
    if b"?" in rule.pattern and b"?" not in rule.output:
        return "to", "a '?', as there is one in `from`"
    return None


_PREFIX: Final = re.compile(rb"/(?:[^/?#%\\]|%[0-9A-F]{2})+(?:/(?:[^/?#%\\]|%[0-9A-F]{2})+)*/")


def _fault_of_prefix(rule: Rule, ring: DecoderRing) -> tuple[str, str] | None:
    """A prefix is whole segments, no more than one of them wild and not all; fewer come of it."""
    segments = rule.pattern[1:][:-1].split(b"/")
    spelled = ring.canonical(rule.pattern.replace(b"*", b"")) == rule.pattern.replace(b"*", b"")
    wild = rule.pattern.count(b"*")
    if not _PREFIX.fullmatch(rule.pattern) or wild > 1 or segments == [b"*"] or not spelled:
        return (
            "from",
            "whole segments in canonical spelling, as in '/en/', with at most one '*', but not '/*/'",
        )
    fewer = rule.output.count(b"/") < rule.pattern.count(b"/")
    whole = rule.output == b"/" or _PREFIX.fullmatch(rule.output) is not None
    plain = ring.canonical(rule.output) == rule.output and b"*" not in rule.output
    if not (fewer and whole and plain) or {b".", b".."} & set(rule.output.split(b"/")):
        return "to", "fewer whole segments, as in '/'"
    return None


# It begins with what no escape ends with.
_SUFFIX: Final = re.compile(rb"(?:\.|/[^./])(?:[^/?#%\\]|%[0-9A-F]{2})*[^/?#%\\.]")


def _fault_of_suffix(rule: Rule, ring: DecoderRing) -> tuple[str, str] | None:
    """A suffix is the end of a name, or a name of its own, and nothing comes of it."""
    if not _SUFFIX.fullmatch(rule.pattern) or ring.canonical(rule.pattern) != rule.pattern:
        return "from", "'.' or '/' and the end of a path, as in '.html', in canonical spelling"
    return ("to", "''") if rule.output else None


def _spells(pattern: bytes, ring: DecoderRing) -> Callable[[bytes], bytes] | None:
    """The spelling of the part of a target where `pattern` occurs: a path up to a "?", or a query only."""

    def from_path(text: bytes) -> bytes:
        path, mark, query = text.partition(b"?")
        return ring.canonical(path) + mark + in_query(query)

    in_query = RINGS["rfc3986"].canonical
    return next((spells for spells in (from_path, in_query) if spells(pattern) == pattern), None)


def _tags(source: str, rows: list[dict[str, str]]) -> tuple[tuple[bytes, bytes], ...]:
    for number, row in enumerate(rows):
        tried = "from"
        try:
            anything = re.compile(row["from"].encode() + b"|")
            tried = "to"
            anything.sub(row["to"].encode(), b"")  # raises for groups that there are not
        except (re.error, IndexError, OverflowError, RecursionError) as error:
            allowed = f"a regular expression, and groups of it as in \\1 ({error})"
            raise ProfileError(source, f"tags[{number}].{tried}", row[tried], allowed) from None
        for key in ("from", "to"):
            if not row[key]:
                raise ProfileError(source, f"tags[{number}].{key}", "", "a string that is not empty")
    return tuple((row["from"].encode(), row["to"].encode()) for row in rows)


def _check_delimiters(source: str, profile: Profile) -> None:
    """A delimiter that was data must not become one, nor one become data, where parameters are read."""
    key = "path.parameter_delimiters"
    delimiters = profile.settings.get("path", {}).get("parameter_delimiters", ";")
    if not profile.parameter_delimiters or set(profile.parameter_delimiters) - set(SUB_DELIMITERS):
        raise ProfileError(source, key, delimiters, "some of " + " ".join(SUB_DELIMITERS.decode()))
    if not profile.reads_parameters:
        return
    for octet in profile.parameter_delimiters:
        form = profile.ring.forms[octet]
        if form == DECODE or (form == ENCODE and profile.parameters == "keep"):
            mistake = f"'{octet:c}' {'decoded' if form == DECODE else 'encoded'}"
            allowed = "a table that keeps the delimiter of the parameters"
            raise ProfileError(source, key, mistake, allowed)
    # In a parameter that is kept, a slash that was data would begin a segment.
    slash = profile.ring.forms[0x2F] == DECODE and "encoded-slash" not in profile.sequences
    if profile.parameters == "keep" and slash:
        allowed = "strip, because this table decodes '/'; or list encoded-slash in reject.sequences"
        raise ProfileError(source, "path.parameters", "keep", allowed)


def _check_semicolon(source: str, profile: Profile) -> None:
    """Where a bare ";" begins the query, one that was data must not become bare."""
    if profile.query.semicolon == "begins" and profile.ring.forms[0x3B] != ENCODE:
        allowed = "a table that encodes ';'"
        raise ProfileError(source, "query.semicolon", "begins", allowed)


def _check_charset(source: str, profile: Profile) -> None:
    charset = profile.charset
    if charset.origin == "legacy":
        if not charset.path and not charset.query:
            raise ProfileError(
                source, "charset.origin", "legacy", "utf-8, or legacy with charset.path or charset.query"
            )
        if charset.path and "bad-utf-8" in profile.sequences:
            raise ProfileError(
                source, "reject.sequences", "bad-utf-8", "others, where the origin's paths are not UTF-8"
            )
