"""The URL of a shared store: what leads to one, and what is shown of it."""

import pytest

from examples import cases
from univocal.http.errors import ConfigurationError
from univocal.store.address import redis_tier
from univocal.store.memory import MemoryStore
from univocal.store.redis.url import check, masked
from univocal_app.config.tables import validate


@cases(
    "url",
    *("redis://127.0.0.1:6379/0", "redis://h", "redis://h/", "redis://[::1]:6379/15"),
    *("redis://:p%40ss%2Fw@h:1/0", "redis://user:p@ss@h:1/0"),
    "redis://h/0?username=u&password=p%40",
    "redis://h?db=3",
    "rediss://h:1/0",
    "rediss://h:1/0?ssl_cert_reqs=none&ssl_check_hostname=false",
    f"rediss://h?ssl_ca_certs={__file__}&ssl_certfile={__file__}&ssl_keyfile={__file__}&ssl_password=p",
    "rediss://h?ssl_ca_path=/",
    "redis+sentinel://h/primary",
    "redis+sentinel://user:p%40ss@h:26379,[::1]:26380,c/my-primary.1?db=2",
    "rediss+sentinel://h/primary?ssl_cert_reqs=none&sentinel_password=s",
    "redis+cluster://h",
    "redis+cluster://user:p@h:7000,h:7001/",
    f"rediss+cluster://h:7000?ssl_ca_certs={__file__}",
    "unix:///run/redis.sock",
    "unix://user:password@/run/redis.sock?db=0",
    "unix:///run/redis.sock?db=3&password=secret",
)
def test_valid_urls_of_stores_are_accepted(url):
    check(url)
    table = {"cache": {"store": url}, "sites": [{"hosts": ["a"], "upstream": "http://b"}]}
    assert validate(table, "file").cache.store == url
    redis_tier(url, MemoryStore(), lambda: 0.0)


@cases(
    "url, said",
    ("", "redis://HOST"),
    ("memcached://h", "redis://HOST"),
    ("REDIS://h", "lower case"),
    ("redis://h /0", "ASCII"),
    ("redis://é/0", "ASCII"),
    ("redis:///0", "one host"),
    ("redis://h:0/0", "port"),
    ("redis://h:99999/0", "port"),
    ("redis://h:x/0", "port"),
    ("redis://a:1,b:2/0", "port"),
    ("redis+sentinel://h", "its path is the name"),
    ("redis+sentinel://h/", "its path is the name"),
    ("redis+sentinel://h,/primary", "each host"),
    ("redis+sentinel://h:0/primary", "each host"),
    ("redis+sentinel://h/primary?ssl_cert_reqs=none", "options"),
    ("redis+cluster://h/1", "no other database than 0"),
    ("redis+cluster://h?db=1", "options"),
    ("redis+cluster://h?sentinel_password=1", "options"),
    ("redis+other://h", "lower case"),
    ("redis://h/notadb", "database is a number"),
    ("redis://h/0/1", "database is a number"),
    ("redis://h?db=x", "db is"),
    ("redis://h/0?foo=bar", "options"),
    ("redis://h/0?protocol=3", "options"),
    ("redis://h/0?decode_responses=true", "options"),
    ("redis://h/0?ssl_cert_reqs=none", "options"),
    ("redis://h?db=1&db=2", "each once"),
    ("redis://user:se/cret@h:1/0", "%2F"),
    ("redis://user:se#cret@h:1/0", "%23"),
    ("redis://user:se?cret@h:1/0", "%3F"),
    ("redis://h/0#x", "%23"),
    ("rediss://h?ssl_ca_certs=/nonexistent", "file that exists"),
    ("rediss://h?ssl_keyfile=/", "file that exists"),
    ("rediss://h?ssl_ca_path=/nonexistent", "directory"),
    ("rediss://h?ssl_cert_reqs=maybe", "none|optional|required"),
    ("rediss://h?ssl_check_hostname=maybe", "true|false"),
    ("unix://relative.sock", "from the root"),
    ("unix:///", "from the root"),
)
def test_invalid_urls_of_stores_are_refused(url, said):
    table = {"cache": {"store": url}, "sites": [{"hosts": ["a"], "upstream": "http://b"}]}
    for refuse in (lambda: validate(table, "file"), lambda: redis_tier(url, MemoryStore(), lambda: 0.0)):
        with pytest.raises(ConfigurationError) as refused:
            refuse()
        assert said in refused.value.allowed
        assert "cret" not in str(refused.value)


@cases(
    "url, shown",
    ("redis://h:1/0", "redis://h:1/0"),
    ("redis://:secret@h:1/0", "redis://***@h:1/0"),
    ("redis://user:se/cret@h:1/0", "redis://***@h:1/0"),
    ("redis://user:se#cret@h:1/0", "redis://***@h:1/0"),
    ("redis://user:se?cr@et@h:1/0", "redis://***@h:1/0"),
    ("redis://user:se\ncret@h", "redis://***@h"),
    ("user:secret@h", "user:***@h"),
    ("redis:/user:secret@h", "redis:/***@h"),
    ("redis://h/0?password=sec@ret&db=1", "redis://h/0?password=***&db=1"),
    ("rediss://h/0?db=1&ssl_password=secret", "rediss://h/0?db=1&ssl_password=***"),
)
def test_no_password_is_shown(url, shown):
    assert masked(url) == shown
