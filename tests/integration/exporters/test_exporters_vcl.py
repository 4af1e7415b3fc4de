"""Profiles exported to VCL: Varnish canonicalizes as univocal does."""

import ast
import os
import re
import shutil
import subprocess
from http.client import HTTPConnection
from pathlib import Path

import pytest

from examples import examples
from tests.integration.exporters.conftest import PROFILES, answers_at, drawn, judged
from tests.ports import free_port
from tests.started import running
from univocal.http.errors import ProfileError
from univocal.uri.profile import Profile, parse
from univocal_learn.exporters.vectors import vectors
from univocal_learn.exporters.writing import Target, exported

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "cdn.md"
VARNISHD = shutil.which("varnishd", path=f"{os.environ['PATH']}:/usr/sbin")

REFUSED = {"shop", "sessions", "moved"}
# Trailing slashes are what turns of a target are for; the others that need some are refused.
SLASHES = {
    "adding": 'extends = "mediawiki"\n[path]\ntrailing_slash = "add"\n[query]\nring = "ngx-lua"\n',
    "removing": 'extends = "servlet"\n[path]\ntrailing_slash = "remove"\nraw = "refuse"\n',
}

VCL = """\
vcl 4.1;
backend default none;
{includes}
C{{
static int digit(char octet) {{ return octet <= '9' ? octet - '0' : octet - 'a' + 10; }}
}}C
sub vcl_recv {{
  C{{
    static const struct gethdr_s header = {{ HDR_REQ, "\\011X-Target:" }};
    const char *at = VRT_GetHdr(ctx, &header);
    if (at) {{
      char target[4096], *to = target;
      for (; at[0] && at[1]; at += 2) *to++ = (char)(digit(at[0]) * 16 + digit(at[1]));
      *to = 0;
      VRT_l_req_url(ctx, NULL, TOSTRAND(target));
    }}
  }}C
{calls}
  return (synth(200));
}}
sub vcl_synth {{
  if (req.http.Univocal-Reason) {{ synthetic(req.http.Univocal-Reason); }}
  else {{ synthetic("=" + req.url); }}
  return (deliver);
}}
"""


@pytest.fixture(scope="module")
def accepted():
    """The profiles that VCL can have."""
    return {name: each for name, each in PROFILES.items() if name not in REFUSED} | parse(SLASHES, PROFILES)


@pytest.fixture(scope="module")
def varnish(accepted, tmp_path_factory):
    if VARNISHD is None:
        pytest.skip("needs varnishd (Debian package varnish)")
    base, port = tmp_path_factory.mktemp("varnish"), free_port()
    base.chmod(0o755)
    for name, profile in accepted.items():
        (base / f"{name}.vcl").write_text(exported(profile, Target.VCL), "utf-8")
    includes = "\n".join(f'include "{base}/{name}.vcl";' for name in accepted)
    calls = "\n".join(
        f'  if (req.http.X-Profile == "{name}") {{ call univocal_{name.replace("-", "_")}; }}'
        for name in accepted
    )
    (base / "main.vcl").write_text(VCL.format(includes=includes, calls=calls))
    command = [VARNISHD, "-F", "-a", f"127.0.0.1:{port}", "-f", f"{base}/main.vcl", "-n", f"{base}/run"]
    command += ["-p", "vcc_allow_inline_c=on", "-s", "malloc,16m", "-j", "none"]
    command += ["-p", "cc_command=exec cc -O0 -w -pthread -fpic -shared -o %o %s"]  # optimizing takes seconds
    with running(command, port, base / "log"):
        yield port


@pytest.mark.parametrize("name", [*sorted({*PROFILES} - REFUSED), *SLASHES])
def test_varnish_canonicalizes_as_univocal_does(name, accepted, varnish):
    """Targets with NUL, and empty ones, are left out: no request for Varnish has them."""
    profile = accepted[name]
    targets = [*(each.target for each in vectors(profile)), *drawn(13)]
    cases = judged(profile, [target for target in targets if target and b"\0" not in target])
    assert len(cases) > examples(2000)
    heads = [f"Host: a\r\nX-Profile: {name}\r\nX-Target: {target.hex()}" for target, _, _ in cases]
    for (target, canonical, reason), answer in zip(cases, answers_at(varnish, heads), strict=True):
        assert answer == (reason.encode() if reason else b"=" + canonical), target


def test_varnish_canonicalizes_the_target_of_a_request(varnish):
    client = HTTPConnection("127.0.0.1", varnish, timeout=30)
    for target, expected in (("/%61%2fb?x", b"=/a/b?x"), ("/%00", b"control-character")):
        headers = {"X-Profile": "mediawiki", "Univocal-Reason": "a client's word"}
        client.request("GET", target, headers=headers)
        assert client.getresponse().read() == expected
    client.close()


def test_varnish_takes_the_vcl_of_the_page(accepted, varnish, tmp_path):
    block = PAGE.read_text("utf-8").split("```vcl\n")[1].split("```")[0]
    assert "/etc/varnish/mediawiki.vcl" in block
    (tmp_path / "mediawiki.vcl").write_text(exported(accepted["mediawiki"], Target.VCL), "utf-8")
    (tmp_path / "page.vcl").write_text(block.replace("/etc/varnish", str(tmp_path)), "utf-8")
    command = [VARNISHD, "-j", "none", "-C", "-f", f"{tmp_path}/page.vcl", "-p", "vcc_allow_inline_c=on"]
    compiled = subprocess.run(command, capture_output=True, text=True, check=False)
    assert compiled.returncode == 0, compiled.stderr[-2000:]


def test_the_vectors_are_comments_at_the_end_of_the_vcl(accepted):
    text = exported(accepted["mediawiki"], Target.VCL)
    rows = re.findall(r'(?m)^#   (".*?(?<!\\)"|"")  (".*"|-)  (".*"|-)$', text)
    written = [tuple(None if each == "-" else ast.literal_eval(f"b{each}") for each in row) for row in rows]
    assert written == [
        (target, canonical, reason.encode() if reason else None)
        for target, canonical, reason in vectors(accepted["mediawiki"])
    ]


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ('[[rewrite]]\nfrom = "/story_"\nto = "/story?id="\n', "rewrite"),
        ('[path]\nindex_names = ["index.html"]\n', "path.index_names"),
        ('[query]\ndrop = ["utm_*"]\n', "query.drop"),
        ('[query]\nallow = ["id"]\n', "query.allow"),
        ("[query]\ndefaults = {page = 1}\n", "query.defaults"),
        ("[query]\ndrop_empty = true\n", "query.drop_empty"),
        ("[query]\nsort = true\n", "query.sort"),
    ],
)
def test_vcl_refuses_an_unsupported_setting_by_name(settings, word):
    with pytest.raises(ProfileError, match=rf"{word}.*vcl"):
        exported(Profile.load(settings), Target.VCL)
    assert exported(Profile.load(settings), Target.JS)
