"""`profiles export` writes or refuses; tests/integration/exporters/ tests that its files are right."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from examples import cases
from univocal.http.errors import ConfigurationError, ProfileError
from univocal.judge.profiles import builtin_profiles
from univocal.uri.profile import Profile
from univocal_app.commands.cli import app
from univocal_learn.exporters.description import function_of
from univocal_learn.exporters.writing import LANGUAGES, Target, exported


def export(*arguments: str) -> str:
    """The standard output of `univocal profiles export`."""
    result = CliRunner().invoke(app, ["profiles", "export", *arguments], catch_exceptions=False)
    if result.exception is not None:
        raise result.exception
    return result.output


@pytest.mark.parametrize("target", Target)
def test_an_export_is_written_to_standard_output_or_a_file(target, tmp_path):
    file = tmp_path / "wiki"
    written = export("mediawiki", "--to", target)
    assert export("mediawiki", "--to", target, "--output", str(file)) == ""
    assert file.read_text("utf-8") == written
    assert written == exported(builtin_profiles()["mediawiki"], target)


def test_a_profile_of_ones_own_is_exported_from_its_file(tmp_path):
    file = tmp_path / "shop.toml"
    file.write_text('extends = "mediawiki"\n[query]\ndrop = ["utm_*"]\n', "utf-8")
    module = {}
    exec(export(str(file), "--to", "python"), module)
    canonicalize = module["canonicalize"]
    assert callable(canonicalize)
    assert canonicalize(b"/%61?utm_x=1&b") == (b"/a?b", None)


@pytest.mark.parametrize("target", Target)
@cases(
    "settings, words",
    ('[charset]\npath = "windows-1251"', "charset"),
    ("[charset]\ntrust_encoding_fields = true", "charset"),
    ('[reject]\nmode = "observe"', "reject.mode"),
    ("[path]\nunicode_escapes = true", "path.unicode_escapes"),
    ('[query]\nsemicolon = "separates"\nsort = true', "query.semicolon"),
)
def test_a_setting_that_no_export_has_is_refused_by_name(target, settings, words):
    with pytest.raises(ProfileError, match=words):
        exported(Profile.load(settings), target)


@pytest.mark.pure("sources are read")
def test_each_step_of_the_pipeline_is_exported_or_refused():
    """A KeyError would not tell what an export lacks."""
    folder = Path(__file__).parents[2] / "middleware" / "univocal" / "uri"
    texts = [(folder / name).read_text("utf-8") for name in ("target.py", "query.py")]
    steps = {step for text in texts for step in re.findall(r' yield "([a-z-]+)"', text)}
    of_charsets = {"charset", "query-charset"}  # which are refused
    assert of_charsets < steps
    assert all(function_of(step, builtin_profiles()["mediawiki"]) for step in steps - of_charsets)


def test_a_name_of_no_profile_is_refused():
    with pytest.raises(ConfigurationError, match=r"'mediawki'.*univocal profiles"):
        export("mediawki", "--to", "js")


def test_an_output_that_cannot_be_written_is_an_error(tmp_path):
    with pytest.raises(ConfigurationError, match="a file that can be written"):
        export("rfc3986", "--to", "js", "--output", str(tmp_path / "none" / "x.mjs"))


def test_a_profiles_name_writes_no_code(tmp_path):
    file = tmp_path / 'x"""\nraise SystemExit\n.toml'
    file.write_text("", "utf-8")
    module = {}
    exec(export(str(file), "--to", "python"), module)
    assert "canonicalize" in module


@pytest.mark.parametrize("target", Target)
def test_an_export_has_only_needed_sections(target):
    text = exported(builtin_profiles()["rfc3986"], target).lower()
    assert "trailing" not in text
    assert "rules" not in text
    assert "@" not in {line[:1] for line in text.splitlines()}
    assert set(LANGUAGES) == set(Target)
