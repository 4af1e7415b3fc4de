"""Settings of `[origin]` reach the balance of each upstream."""

from examples import cases
from univocal_app.config.tables import validate
from univocal_app.run.origins import Ways

SITE = {"hosts": ["a.example"], "upstream": "http://app.example:9000"}


@cases(
    "settings, seconds",
    ({}, 5.0),
    ({"origin": {"resolve": "2s"}}, 2.0),
    ({"sites": [{**SITE, "origin": {"resolve": 7}}]}, 7.0),
)
def test_a_name_is_resolved_again_as_the_setting_says(settings, seconds):
    configuration = validate({"sites": [SITE], **settings}, "univocal.toml")
    (proxy,) = Ways.of(configuration).proxies.values()
    assert proxy.upstream.balance.settings.resolve == seconds
