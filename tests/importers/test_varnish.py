"""Decoder rings in C: what is read, which array is taken, and that no correction goes unsaid."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import cases
from univocal.http.errors import ConfigurationError
from univocal.judge.profiles import builtin_profiles
from univocal.uri.percent_encoding import DECODE, ENCODE, KEEP, RINGS, DecoderRing
from univocal.uri.profile import parse
from univocal_learn.importers.imported import NothingImportedError, Source, profile_text
from univocal_learn.importers.varnish import read

BUILT_IN = builtin_profiles()
GENERIC = RINGS["rfc3986"].forms

# Tables beside a ring in Wikimedia's normalize_path.inc.vcl.erb: flags of 256 octets, and their values.
HEX_FINDER = bytes(chr(octet) in "0123456789ABCDEFabcdef" for octet in range(256))
HEX_VALUES = bytes(int(chr(o), 16) if chr(o) in "0123456789ABCDEFabcdef" else 0 for o in range(256))


def array(forms, name="ring", write=str):
    rows = [", ".join(write(form) for form in forms[row : row + 32]) for row in range(0, 256, 32)]
    return f"static const size_t {name}[256] = {{\n    " + ",\n    ".join(rows) + "\n};\n"


def imported(text, pick=None):
    return read(Source("ring.vcl", text, pick))


def profile(result, name="mine"):
    return parse({name: profile_text(result, "ring.vcl", name)}, BUILT_IN)[name]


# A profile that reads paths as MediaWiki does, and leaves queries alone.
PLAIN = "[path]\nmerge_slashes = false\n[query]\ndrop_empty_mark = false\n"
RING = parse({"ring": f'extends = "mediawiki"\n{PLAIN}'}, BUILT_IN)["ring"]


@pytest.mark.parametrize("original", [*map(BUILT_IN.get, ("rfc3986", "restbase", "upload")), RING])
def test_a_built_in_profile_comes_back_with_its_digest(original):
    assert profile(imported(array(original.ring.forms))).digest == original.digest


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_built_in_ring_comes_back(name):
    result = imported(array(BUILT_IN[name].ring.forms))
    assert repr(profile(result).ring) == repr(DecoderRing(BUILT_IN[name].ring.forms))
    assert [note for note in result.notes if note.line] == []


def test_a_named_ring_is_named():
    assert imported(array(RINGS["nginx-args"].forms)).path == {"ring": "nginx-args"}
    assert imported(array(GENERIC)).path == {}


def test_a_ring_that_sets_cannot_say_is_256_numbers():
    forms = bytearray(GENERIC)
    forms[ord("<")] = KEEP
    result = imported(array(forms))
    assert result.path == {"ring": list(forms)}
    assert profile(result).ring.forms == bytes(forms)


LEGAL = st.builds(
    lambda custom, ugly: DecoderRing(bytes({**dict(enumerate(GENERIC)), **custom, **ugly}.values())),
    st.dictionaries(st.sampled_from(b":@[]!$&'()*+,;="), st.sampled_from([ENCODE, DECODE, KEEP])),
    st.dictionaries(st.sampled_from(b'<>|{}"\\^`'), st.sampled_from([ENCODE, DECODE, KEEP])),
)


@given(LEGAL, st.sampled_from([str, hex, "0{:o}".format, "{}U".format, '{} /* " */'.format, "\n{}".format]))
def test_any_ring_comes_back_however_its_numbers_are_written(ring, write):
    result = imported(array(ring.forms, write=write))
    assert repr(profile(result).ring) == repr(ring)
    assert [note for note in result.notes if note.line] == []


@given(st.binary(min_size=256, max_size=256).map(lambda octets: bytes(octet % 3 for octet in octets)))
def test_any_256_forms_make_a_table_with_reported_changes(forms):
    result = imported(array(forms))
    ring = profile(result).ring
    said = "\n".join(note.text for note in result.notes)
    changed = [octet for octet in range(256) if ring.forms[octet] != forms[octet]]
    assert bool(changed) == any(" there, " in note.text for note in result.notes)
    for octet in changed:
        if not (
            forms[octet - 1] != ring.forms[octet - 1]
            or forms[(octet + 1) % 256] != ring.forms[(octet + 1) % 256]
        ):
            assert (f"'{octet:c}'" if 0x20 < octet < 0x7F else f"0x{octet:02X}") in said


@cases(
    "octet, form, becomes, said",
    (0x25, DECODE, ENCODE, "'%': decoded there, encoded here: a decoded '%' would begin an escape"),
    (0x25, KEEP, ENCODE, "'%': kept as it comes there, encoded here"),
    (0x3F, DECODE, KEEP, "'?': decoded there, kept as it comes here: decoded, it would end the path"),
    (0x23, DECODE, KEEP, "'#': decoded there"),
    (0x2F, ENCODE, DECODE, "'/': encoded there, decoded here: '/' between segments is never encoded"),
    (0x41, ENCODE, DECODE, "'A': encoded there, decoded here: unreserved"),
    (0x7E, KEEP, DECODE, "'~': kept as it comes there, decoded here: unreserved"),
    (0x20, DECODE, ENCODE, "0x20: decoded there, encoded here: bare, it could end the request line"),
    (0x0A, KEEP, ENCODE, "0x0A: kept as it comes there, encoded here"),
    (0xC3, DECODE, ENCODE, "0xC3: decoded there, encoded here"),
)
def test_impossible_table_entries_are_corrected_and_reported_by_line(octet, form, becomes, said):
    forms = bytearray(GENERIC)
    forms[octet] = form
    result = imported("// one line\n" + array(forms), pick="ring")
    (note,) = [note for note in result.notes if note.line]
    assert profile(result).ring.forms[octet] == becomes
    assert note.text.startswith(said)
    assert note.line == 3 + octet // 32


def test_runs_of_bytes_are_said_once():
    forms = bytearray(GENERIC)
    forms[0x80:] = bytes([KEEP]) * 128
    (note,) = [note for note in imported(array(forms)).notes if note.line]
    assert note.text.startswith("0x80 to 0xFF: kept as it comes there, encoded here")


def test_comments_strings_and_characters_are_no_code():
    text = (
        "/* {" + "1," * 256 + "} */\n"
        "# {0, 1} it's a comment of VCL\n"
        'set req.http.X = "{0,1,2";\n'
        "static const char quote = '\"';\n" + array(GENERIC) + "/* never closed {1,2}\n"
    )
    assert profile(imported(text)).ring.forms == GENERIC


def test_designated_initializers_are_read_as_c_does():
    kept = "".join(f"[{octet}] = 2, " for octet in b":/?#[]@!$&'()*+,;=")
    text = (
        "int ring[256] = { ['a' ... 'z'] = 1, ['A' ... 'Z'] = 1, ['0' ... '9'] = 1, ['-'] = 1, ['.'] = 1,"
        f"['_'] = 1, ['~'] = 1, {kept} [255] = 0 }};"
    )
    assert profile(imported(text)).ring.forms == GENERIC


# The array that is taken for a ring.


def test_tables_of_hexadecimal_digits_are_not_taken_for_a_ring():
    text = array(GENERIC, "decoder_ring") + array(HEX_FINDER, "hex_finder") + array(HEX_VALUES, "hex_dec")
    result = imported(text)
    assert result.summary.endswith(": decoder_ring")
    assert [note.text for note in result.notes if "hex_" in note.text] == [
        "hex_finder: another array of 256; --pick hex_finder imports it"
    ]


def test_of_two_rings_one_is_picked():
    text = array(GENERIC, "generic") + array(BUILT_IN["mediawiki"].ring.forms, "wiki")
    with pytest.raises(
        ConfigurationError, match=r"2 arrays.*--pick with one of: generic \(line 1\), wiki \(line 11\)"
    ):
        imported(text)
    assert profile(imported(text, "wiki")).digest == RING.digest
    assert profile(imported(text, "line 11")).digest == RING.digest
    with pytest.raises(ConfigurationError, match=r"no array nope.*generic"):
        imported(text, "nope")


@cases(
    "text, found",
    ("", "no array of numbers"),
    ("sub vcl_recv { return (hash); }", "no array of numbers"),
    (array(HEX_VALUES, "hex_dec"), r"hex_dec \(line 1, 256 numbers, the largest 15\)"),
    (array(GENERIC).replace("0, 0, 0,", "0, 0,", 1), r"ring \(line 1, 255 numbers, the largest 2\)"),
    (array(GENERIC).replace("0, 0,", "0, ENCODE,", 1), "no array of numbers"),
    (array(GENERIC).replace("0, 0,", "0, -1,", 1), "no array of numbers"),
    (array(GENERIC).replace("0, 0,", "0, 08,", 1), "no array of numbers"),
    (array(GENERIC).replace("0, 0,", "0, 99999999999,", 1), "no array of numbers"),
    ("int ring[] = { [0 ... 99999] = 1 };", "no array of numbers"),
    ("int ring[] = { [9 ... 3] = 1 };", "no array of numbers"),
    ("int ring[] = {};", "no array of numbers"),
    ("{" * 3000, "no array of numbers"),
    ("\x00\x1b[2J\ufffd" * 300, "no array of numbers"),
)
def test_a_file_without_a_ring_is_refused_in_one_message(text, found):
    with pytest.raises(
        ConfigurationError, match=found + ".*an array of 256 numbers: 0 encode, 1 decode, 2 keep"
    ):
        imported(text)


@cases("unit", "/*", "//", '"', "'", "{", "[", "a[", "{1,", "a=", "{}", "= {1}", "[0 ... 255]=1,")
def test_no_text_takes_long(unit):
    """Much of what a pattern could try again from every place."""
    with pytest.raises(ConfigurationError):
        imported("{" + unit * (2**17 // len(unit)))


@given(st.text(alphabet="{}[]=,'\"/*#\\ \n012xuL.a", max_size=200))
def test_any_text_is_a_ring_or_a_message(text):
    with pytest.raises(ConfigurationError):
        imported(text)


def test_code_without_a_table_leads_to_its_pieces():
    with pytest.raises(NothingImportedError, match=r"VCL code is not read; docs/how-to/from-varnish\.md"):
        read(Source("default.vcl", "vcl 4.1;\nsub vcl_recv { return (pass); }\n"))


# A rule of a VCL, and what the note says of it. With such a rule no response is stored.
PASSED = r'''
sub vcl_hash { hash_data(req.http.Cookie); }  ->  hash_data(: univocal does not read
sub vcl_hash { hash_data(regsub(req.url, req.http.X, 1)); }  ->  hash_data(: univocal
sub vcl_recv { if (req.http.Cookie) { return (pass); } }  ->  return (pass: univocal
sub vcl_backend_response { return(hit_for_pass); }  ->  return(hit_for_pass: univocal
sub vcl_backend_response { set beresp.uncacheable = true; }  ->  .uncacheable: univocal
sub vcl_hash { set req.hash += req.http.X; }  ->  req.hash +=: univocal
include "guards.vcl";  ->  include: univocal
sub vcl_recv { return (vcl(private)); }  ->  return (vcl: univocal
sub vcl_backend_response { if (bereq.http.X) { set beresp.ttl = 0s; } }  ->  beresp.ttl = 0s: univ
sub vcl_backend_response { set beresp.http.Vary = bereq.http.X; }  ->  beresp.http.Vary =: univ
sub vcl_backend_response { header.append(beresp.http.Vary, bereq.http.X); }  ->  header.append(beresp
sub vcl_backend_response { header . copy(beresp.http.X, beresp.http.VARY); }  ->  header . copy(beresp
sub vcl_backend_response { set beresp.http.Vary += bereq.http.X; }  ->  beresp.http.Vary +=: univ
sub vcl_backend_response { set beresp.http."Vary" = "X"; }  ->  beresp.http. =: univ
sub vcl_recv { set req.http.host = req.http.X-Tenant; }  ->  req.http.host =: univ
sub vcl_recv { set req.url = req.url + cookie.get(a); }  ->  req.url =: univ
sub vcl_recv { if (req.http.X) { set req.url = req.url + x; } }  ->  set req.url =
sub a { if (req.http.X) { if (req.url ~ a) { set req.url = req.url + x; } } }  ->  set req.url
sub a { if (req.http.X) { std.log(a); } else { set req.url = req.url + x; } }  ->  set req.url
sub a { if (req.http.X) { if (b) { std.log(a); } set req.url = req.url + x; } }  ->  req.url =
sub a { if (req.http.X) { call y; } }  ->  call y: univ
sub a { if (req.http.host-x) { set req.url = req.url + x; } }  ->  set req.url
sub a { if (b) { std.log(a); } elif (req.http.X) { set req.url = req.url + x; } }  ->  set req.url
sub a { if (req.http.X) { std.log(a); } elif (req.url) { set req.url = req.url + x; } }  ->  set req.url
sub a { if (req.http.X) { return (hash); } } sub vcl_recv { set req.url = req.url + x; }  ->  set req.url
sub vcl_recv { if (req.http.X) { return (hash); } set req.url = req.url + x; }  ->  req.url =
sub vcl_hash { if (req.http.X) { hash_data(req.url); } }  ->  hash_data(req.url
sub vcl_hash { if (req.http.X) { return (lookup); } }  ->  return (lookup
sub a { if (remote.ip ~ b) { set req.url = req.url + x; } }  ->  set req.url =
sub a { if (req.url ~ b) { set req.url = "/x"; } }  ->  set req.url =: univ
sub vcl_synth { synthetic("""a " /*"""); return (pipe); }  ->  return (pipe): univ
sub vcl_backend_response { set beresp.http.Cache-Control = x; }  ->  Cache-Control = x: univ
sub vcl_backend_response { set beresp.http.Set-Cookie = x; }  ->  Set-Cookie = x: univ
sub vcl_recv { C{ VRT_handling(ctx, VCL_RET_PASS); }C }  ->  VRT_handling: univ
import waf as std;  ->  import waf as std: univ
sub vcl_recv { do something new; }  ->  do something new: univ
sub vcl_backend_response { set beresp.ttl = -1s; }  ->  beresp.ttl = -1s: univ
sub vcl_backend_response { set beresp.ttl -= 10y; }  ->  beresp.ttl -= 10y: univ
sub vcl_backend_response { set beresp.ttl *= 0; }  ->  beresp.ttl *= 0: univ
sub vcl_backend_response { set beresp.ttl = 1s * 0; }  ->  beresp.ttl = 1s * 0: univ
sub vcl_backend_response { set beresp . uncacheable = true; }  ->  . uncacheable: univ
'''
# These refuse requests in Varnish, and univocal does not.
REFUSED = r"""
sub vcl_recv { if (req.http.X) { return (synth(403, x)); } }  ->  synth(403: univocal
sub vcl_recv { error 403; }  ->  error 403: univocal
sub vcl_recv { return (fail); }  ->  return (fail: univocal
sub vcl_recv { return (synth(750)); }  ->  synth(750: univocal
sub vcl_backend_fetch { return (abandon); }  ->  return (abandon: univocal
sub vcl_recv { waf.check(); }  ->  waf.check(: univocal
sub a { if (client.ip !~ b) { return (synth(200, x)); } }  ->  synth(200
sub vcl_deliver { if (client.ip !~ b) { set resp.status = 302; } }  ->  resp.status = 302
acl a-C{ "192.0.2.1"; } sub a { if (b) { return (synth(403)); } }  ->  synth(403
sub a { if (client.ip !~ b) { return (restart); } }  ->  return (restart): univ
sub a { if (client.ip !~ b) { return (synth(302, x)); } }  ->  synth(302
acl PUBLIC{ "192.0.2.1"; } sub a { if (b) { return (synth(403)); } }  ->  synth(403
sub vcl_recv { if (req.url ~ "x") { set req.http.X-Forwarded-For = "\"; return (fail); } }  ->  fail
sub vcl_synth { synthetic({"a "*/* "}); set resp.status = 403; }  ->  set resp.status = 403: univ
sub vcl_recv { return (synth(200 + 203)); }  ->  return (synth(200 + 203)): univ
sub vcl_recv { set req.http.X-User = x; }  ->  set req.http.X-User = x: univ
backend none none;  ->  backend none none: univ
sub vcl_backend_response { return (error(403, x)); }  ->  return (error: univ
sub vcl_backend_response { set beresp.status = 403; }  ->  beresp.status =: univ
sub vcl_deliver { set resp . status = 403; }  ->  resp . status =: univ
sub vcl_recv { jwt . verify(req.http.A); }  ->  jwt . verify(: univ
sub vcl_recv { JWT.verify(req.http.A); }  ->  JWT.verify(: univ
"""
# Of these nothing is said.
KNOWN = r"""
sub vcl_recv { if (req.url) { return (hash); } set req.url = req.url + x; }
sub vcl_recv { if (req.http.X) { return (hash); } } sub vcl_hash { hash_data(req.url); }
sub a { if (req.url ~ b) { call c; } elsif (req.method == d) { call e; } }
sub vcl_recv { set req.url = std.querysort(req.url); }
sub vcl_recv { if (req.url ~ a) { set req.url = regsub(req.url, a, b); } }
sub vcl_backend_response { if (beresp.http.Vary ~ x) { unset beresp.http.Vary; } }
acl a { ! ; } backend b { .a = 1; } sub vcl_init { new a = b.c(); a.d(e); }
sub vcl_recv { C{ VRT_l_req_url(ctx, x); }C call b; return (hash); }
sub vcl_recv { std . log(req.url); }
sub vcl_synth { if (resp.status == 403) { set resp.status = 301; } }
sub vcl_hash { hash_data( req . url ); }
sub vcl_backend_response { set beresp.ttl = 0.5h; }
sub vcl_backend_response { set beresp.ttl = 1h; }
sub vcl_recv { std.log(req.url); return (synth(301)); }
sub vcl_hash { hash_data(req.url); hash_data(req.http.host); }
"""


@cases(
    "rule, is_passed",
    *((rule, rules is PASSED) for rules in (PASSED, REFUSED, KNOWN) for rule in rules.splitlines()[1:]),
    ("sub vcl_recv { # return (pass)\n}", False),
)
def test_rules_of_a_vcl_beside_a_table_keep_apart(rule, is_passed):
    rule, _, said = rule.partition("  ->  ")
    result = imported(f"vcl 4.1;\n{rule}\n{array(GENERIC)}")
    questions = [each for each in result.notes if each.is_open_question]
    assert [
        (each.line, [part for part in said.split(": ") if part not in each.text]) for each in questions
    ] == ([(2, [])] if said else [])
    assert ('[cache]\nbypass = ["*"]' in profile_text(result, "ring.vcl", "mine")) is is_passed
    assert profile(result).cache.get("bypass") == (["*"] if is_passed else None)
    # Varnish's built-in rules say so.
    assert profile(result).cache["bypass_cookies"] == ["*"]
