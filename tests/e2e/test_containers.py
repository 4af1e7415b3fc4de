"""The container files hang together: what they name exists, and the proxy takes its configuration."""

import re
import shutil
import subprocess
import tomllib
from ipaddress import ip_address, ip_network

import pytest

from univocal_app.config.files import parsed
from univocal_app.config.tables import validate
from univocal_app.run.configured import runtime_of


def load(file):
    return validate(parsed(file), str(file))


@pytest.fixture(scope="module")
def configuration(root):
    """The configuration of both proxies."""
    return load(root / "deploy" / "compose" / "univocal.toml")


@pytest.fixture(scope="module")
def compose(root):
    """The compose file."""
    return (root / "docker-compose.yml").read_text("utf-8")


@pytest.fixture(scope="module")
def services(compose):
    """The text of each service."""
    text = compose[compose.index("\nservices:\n") : compose.index("\nnetworks:\n")]
    _, *parts = re.split(r"(?m)^  ([a-z]+):", text)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_the_stack_has_a_configuration_that_is_accepted(configuration):
    runtime_of(configuration)
    assert [str(each) for each in configuration.server.listen] == ["0.0.0.0:8080"]


def test_every_upstream_is_a_service(compose, configuration):
    services = set(re.findall(r"(?m)^  ([a-z]+):", compose))
    urls = [url for site in configuration.sites for url in site.upstream.urls]
    assert {re.split("[:/]+", url)[1] for url in urls} <= services


def test_mounted_files_and_built_directories_exist(root, compose):
    named = re.findall(r"\"\./([^:\"]+):", compose) + re.findall(r"build: (\S+)", compose)
    assert len(named) >= 4
    assert all((root / name).exists() for name in named)


def test_published_on_loopback_alone(services):
    lists = {name: re.findall(r"ports: \[(.*)\]", text) for name, text in services.items()}
    published = {name: re.findall(r'"([^"]+)"', each[0]) for name, each in lists.items() if each}
    assert published.keys() == {"proxy", "second", "tomcat", "prometheus", "grafana"}
    ports = [port for each in published.values() for port in each]
    assert all(re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port) for port in ports)
    assert len({port.split(":")[1] for port in ports}) == len(ports)


def test_an_edit_of_pages_or_settings_compiles_nothing_again(root):
    """The wheel is made from what .dockerignore lets through."""
    ignored = (root / ".dockerignore").read_text("utf-8").splitlines()
    context = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    assert "*" in ignored
    assert not {"README.md", "deploy", "deploy/compose"} & context
    wheel = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"][
        "wheel"
    ]
    for needed in wheel["only-include"]:
        assert any(f"{needed}/".startswith(f"{each}/") for each in context), needed


PINNED = ("tools/wheel/build.txt", "tools/wheel/image.txt")


@pytest.mark.parametrize("name", ["Dockerfile", "deploy/compose/app/Dockerfile"])
def test_images_are_built_from_exact_versions(root, name):
    text = (root / name).read_text("utf-8")
    assert all(
        re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+", each) for each in re.findall(r"(?m)^FROM (\S+)", text)
    )
    if "--constraint" not in text:
        assert not re.findall(r"'[a-z]+[<>~]", text)
    if "pip wheel" in text:
        assert re.findall(r'PIP_CONSTRAINT="(.*)"\n', text) == [" ".join(f"/src/{each}" for each in PINNED)]
    packages = re.findall(r"apt-get install(?: --\S+)* ([^;]*)", text)
    assert all("=" in package for line in packages for package in line.split())
    for file in PINNED:
        versions = (root / file).read_text("utf-8").splitlines()[1:]
        assert all(re.fullmatch(r"[a-z0-9-]+==[\w.]+", line) for line in versions)


def test_build_requirements_of_the_wheel_have_exact_versions(root):
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    hook = project["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
    pinned = re.findall(r"(?m)^([a-z0-9-]+)==", (root / PINNED[0]).read_text("utf-8"))
    required = [*project["build-system"]["requires"], *hook["dependencies"]]
    assert {re.split("[<>=]", each)[0] for each in required} <= {*pinned}


def test_the_image_has_the_extras_that_its_page_names(root):
    (extras,) = re.findall(r"\.whl\)\[([\w,]+)\]", (root / "Dockerfile").read_text("utf-8"))
    assert {"proxy", "auth", "compress", "http2", "redis"} <= set(extras.split(","))
    page = (root / "docs" / "how-to" / "production.md").read_text("utf-8")
    (named,) = re.findall(r"It has the \[extras\]\(\S+\)[^;]*", page.replace("\n", " "))
    assert set(re.findall(r"`(\w+)`", named)) == set(extras.split(","))


def test_no_health_check_starts_an_interpreter(root, compose):
    checks = re.findall(r"test: (\[.*\])", compose)
    checks += re.findall(r"(?s)HEALTHCHECK.*?\]", (root / "Dockerfile").read_text("utf-8"))
    assert len(checks) >= 8
    assert [check for check in checks if "python" in check] == []


def test_no_volume_without_a_name_stays_behind(services):
    for name, folder in (("redis", "/data"), ("prometheus", "/prometheus")):
        assert re.search(rf'tmpfs: \[.*"{folder}"', services[name])


def test_each_application_has_a_port_of_its_own(configuration):
    urls = [url for site in configuration.sites for url in site.upstream.urls]
    ports = [url.rpartition(":")[2] for url in urls]
    assert len(set(ports)) == len(ports)


def test_each_site_has_one_key_at_both_proxies(configuration):
    sites = runtime_of(configuration).sites
    for name in ("app", "files", "wiki", "shop"):
        one, other = (sites.canonicalize(f"http://{name}.localhost:{port}/a") for port in (8080, 8082))
        assert one == other == f"http://{name}.localhost:8080/a"


def test_images_are_pinned(services):
    images = {name: re.findall(r"(?m)^    image: (\S+)$", text) for name, text in services.items()}
    built = {name for name, text in services.items() if "    build: " in text}
    assert {name for name, each in images.items() if not each} == built | {"second"}
    for image in (image for each in images.values() for image in each):
        assert re.fullmatch(r"[a-z/]+:v?\d+\.\d+\.\d+(-[a-z0-9-]+)?", image)


def test_every_service_is_contained_and_has_a_health_check(services, compose):
    (contained,) = re.findall(r"(?ms)^x-contained: &contained.*?\n\n", compose)
    assert "read_only: true" in contained
    assert "cap_drop: [ALL]" in contained
    assert "no-new-privileges:true" in contained
    assert not re.search(r"privileged:|cap_add:|network_mode:|pid:|docker\.sock", compose)
    for name, text in services.items():
        if name == "second":
            assert "    <<: *proxy\n" in text
        else:
            assert "    <<: *contained\n" in text, name
            assert re.search(r"(?m)^    healthcheck:\n      <<: \*patience\n      test: \[\"CMD\"", text), (
                name
            )
            assert "    build: " in text or re.search(r'(?m)^    user: "[1-9]', text) or name == "grafana"


def test_purge_allow_lists_the_host_and_prometheus_alone(compose, services, configuration):
    gateway = re.findall(r"gateway: (\S+)", compose)
    prometheus = re.findall(r"ipv4_address: (\S+?)[ }]", services["prometheus"])
    assert re.findall(r"ipv4_address: (\S+?)[ }]", compose) == prometheus
    allowed = configuration.purge.allow
    assert sorted(map(str, allowed)) == sorted(
        ["127.0.0.0/8", *(f"{each}/32" for each in gateway + prometheus)]
    )
    (given,) = re.findall(r"ip_range: (\S+)", compose)
    assert not any(ip_address(each) in ip_network(given) for each in gateway + prometheus)


def test_no_token_that_everybody_knows(compose):
    assert re.findall(r"UNIVOCAL_PURGE_TOKEN: (\S+)", compose) == ["${UNIVOCAL_PURGE_TOKEN:-}"]


def test_prometheus_asks_both_proxies_by_names_that_they_answer_to(root, services, configuration):
    text = (root / "deploy" / "compose" / "prometheus.yml").read_text("utf-8")
    targets = re.findall(r'"([a-z]+):8081"', text)
    assert targets == ["proxy", "second"]
    assert set(targets) <= set(configuration.server.admin_hosts) & services.keys()
    assert [each.port for each in configuration.server.admin] == [8081]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool (Debian package prometheus)")
def test_promtool_takes_the_configuration(root):
    command = ["promtool", "check", "config", str(root / "deploy" / "compose" / "prometheus.yml")]
    assert subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0


def test_grafana_is_given_the_dashboard(root, services):
    text = services["grafana"]
    assert "profiles: [grafana]" in text
    folder = re.findall(r"path: (\S+) ", (root / "deploy/compose/grafana/dashboards.yml").read_text("utf-8"))[
        0
    ]
    assert f"./deploy/grafana/univocal.json:{folder}/univocal.json:ro" in text
    assert "url: http://prometheus:9090\n" in (root / "deploy/compose/grafana/datasources.yml").read_text(
        "utf-8"
    )


def test_the_tour_asks_what_is_there(root, compose, configuration):
    tour = (root / "docs" / "tour.md").read_text("utf-8")
    assert [int(number) for number in re.findall(r"(?m)^## (\d+)\. ", tour)] == list(range(1, 11))
    sites = runtime_of(configuration).sites
    published = set(re.findall(r"127\.0\.0\.1:(\d+):", compose))
    asked = re.findall(r"http://([a-z]+\.localhost|127\.0\.0\.1):(\d+)(/[^\s\'`]*)?", tour)
    assert {port for _, port, _ in asked} <= published
    named = {f"{host}:{port}" for host, port, _ in asked if host.endswith("localhost")}
    assert len(named) >= 6
    for name in named:
        host, _, port = name.partition(":")
        found = sites.locate(host.encode(), int(port))
        assert found is not None, name
        assert found[1][1] == 8080  # one key at both proxies


@pytest.mark.parametrize(
    ("url", "told"),
    [
        (
            "http://wiki.localhost:8082/wiki/Steve_Fuller_%28sociologist)",
            "http://wiki.localhost:8080/wiki/Steve_Fuller_(sociologist)",
        ),
        ("http://wiki.localhost:8082/wiki/AC%2FDC", "http://wiki.localhost:8080/wiki/AC/DC"),
        (
            "http://files.localhost:8082/notes/first%20(draft).txt",
            "http://files.localhost:8080/notes/first%20(draft).txt",
        ),
        ("http://shop.localhost:8080/shop/..;/admin", "dot-segment-parameter"),
    ],
)
def test_the_tours_urls_become_what_it_says(root, univocal_inside, url, told):
    assert url in (root / "docs" / "tour.md").read_text("utf-8")
    result = univocal_inside("explain", "--config", str(root / "deploy" / "compose" / "univocal.toml"), url)
    assert told in result.stdout + result.stderr


def test_the_proxies_share_a_service_that_is_there(root, compose, configuration):
    store = configuration.cache.store
    assert re.split("[:/]+", store)[:2] == ["redis", "redis"]
    assert re.search(r"(?m)^  redis:$", compose)
    assert "redis" in re.findall(r"\*\.whl\)\[(.*)\]", (root / "Dockerfile").read_text("utf-8"))[0].split(",")


@pytest.mark.pure("an image is built of the sources")
@pytest.mark.parametrize("folder", [".", "deploy/compose/app"])
def test_images(root, folder):
    text = (root / folder / "Dockerfile").read_text("utf-8")
    users = re.findall(r"(?m)^USER (\S+)", text)
    assert users
    assert users[-1] not in {"root", "0"}
    assert f" {users[-1]}\n" in text
    for sources in re.findall(r"(?m)^COPY (?:--chmod=\d+ )?(.*) \S+$", text):
        assert all((root / folder / source).exists() for source in sources.split())


def test_files_that_an_image_copies_are_not_ignored(root):
    kept = {
        line[1:] for line in (root / ".dockerignore").read_text("utf-8").splitlines() if line.startswith("!")
    }
    copied = re.findall(r"(?m)^COPY (.*) \S+$", (root / "Dockerfile").read_text("utf-8"))
    assert {source for sources in copied for source in sources.split()} <= kept
