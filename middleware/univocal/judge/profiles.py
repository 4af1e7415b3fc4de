"""Profiles by name and from files, with the rules that they bring; those that come with univocal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache, lru_cache
from pathlib import Path

from univocal.cache.rules import Rules
from univocal.http.errors import ConfigurationError, ProfileError
from univocal.uri.profile import FileName, Profile, ProfileName, Shelf, chosen_profile, parse, put_shelf
from univocal.uri.schema import load
from univocal.uri.sites import Sites


class BuiltInProfiles(Mapping[str, Profile]):
    """The profiles in the files of a directory, by name, in order of the names.

    Each is built when it is first asked for, with those that it extends: to build all takes 20 ms.
    """

    def __init__(self, directory: Path) -> None:
        self._files = {file.stem: file for file in sorted(directory.glob("*.toml"))}
        self._built = dict[str, Profile]()

    def __getitem__(self, name: str) -> Profile:
        if name not in self._built:
            text = self._files[name].read_text("utf-8")
            parent = load(f"profile {name}", text).get("extends")
            known = {parent: self[parent]} if parent else {}
            self._built[name] = parse({name: text}, known)[name]
        return self._built[name]

    def __contains__(self, name: object) -> bool:
        return name in self._files

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def profile_rules(profile: Profile) -> Rules:
    """The rules that a profile has as defaults. Raises ProfileError."""
    try:
        return Rules.read(profile.cache, f"profile {profile.name}")
    except ConfigurationError as error:
        raise ProfileError(error.source, error.key, error.found, error.allowed) from None


def read_profiles(directories: Iterable[Path], known: Mapping[str, Profile]) -> Mapping[str, Profile]:
    """The `known` profiles and those in every `*.toml` of `directories`. Raises ProfileError."""
    texts: dict[str, str] = {}
    for directory in directories:
        if not directory.is_dir():
            raise ProfileError(str(directory), "", "no directory", "a directory of profiles (*.toml)")
        try:
            files = sorted(file for file in directory.iterdir() if file.suffix == ".toml")
        except OSError as error:
            raise ProfileError(str(directory), "", error.strerror, "a readable directory") from None
        for file in files:
            texts[file.stem] = _text(file)
    if not texts:
        return known
    profiles = parse(texts, known)
    for profile in profiles.values():
        profile_rules(profile)
    return dict(known) | profiles


def _read_file(file: str | FileName, known: Mapping[str, Profile]) -> Profile:
    path = Path(file)
    profile = parse({path.stem: _text(path)}, known)[path.stem]
    profile_rules(profile)
    return profile


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(str(file), "", str(error), "a readable TOML file in UTF-8") from None


def profile_at(text: str, source: str, key: str) -> Profile:
    """The profile that a command line names: a built-in one, or that in a file.

    Raises ConfigurationError with `source` and `key`; ProfileError for a file.
    """
    known = built_in()
    if text in known:
        return known[text]
    if Path(text).is_file():
        return _read_file(text, known)
    near = get_close_matches(text, list(known), 1)
    hint = f" Did you mean `{near[0]}`?" if near else ""
    mistake = f"there is no profile {text!r}, and no such file.{hint} `univocal profiles` lists them."
    raise ConfigurationError(source, key, text, "a profile", mistake)


def builtin_profiles() -> dict[str, Profile]:
    """The profiles that come with univocal, by name."""
    return dict(built_in())


@cache
def built_in() -> Mapping[str, Profile]:
    """The same, each of them read once in a process, when it is first asked for."""
    library = Path(__file__).parents[1]
    packaged = library / "profiles"
    directory = packaged if packaged.is_dir() else library.parents[1] / "profiles"
    return BuiltInProfiles(directory)


def canonicalize(url: str | bytes, profile: ProfileName) -> str:
    """The canonical URL of an absolute `url`, for origin servers of this profile, percent-encoded.

    Hosts may be U-labels, and bytes beyond ASCII may stand bare, as in `Sites.canonicalize`. Raises
    RefusedError for a URL that is refused or has another scheme than http or https. Raises ConfigurationError
    for an unknown profile.
    """
    return _everywhere(chosen_profile(profile, "canonicalize")).canonicalize(url)


@lru_cache(maxsize=128)
def _everywhere(profile: Profile) -> Sites:
    return Sites.everywhere(profile)


put_shelf(Shelf(built_in, _read_file))
