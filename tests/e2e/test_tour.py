"""Each step of docs/tour.md is taken, in order, and shows what the page says; so are the README's.

A process of this machine stands for each service of docker-compose.yml: Debian's Redis, nginx, Tomcat and
Prometheus with the files that the services are given, and two proxies with the stack's configuration. With
UNIVOCAL_TOUR=docker in the environment the stack itself comes up; its commands are the pages' to the letter.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import forking
from tests.ports import free_port
from tests.started import CACHE, end, until_it_listens

pytestmark = pytest.mark.long


ROOT = Path(__file__).parents[2]
TOUR = (ROOT / "docs" / "tour.md").read_text("utf-8")
README = (ROOT / "README.md").read_text("utf-8")
COMPOSE = ROOT / "deploy" / "compose"
PATIENCE = 90  # seconds
DOCKER = os.environ.get("UNIVOCAL_TOUR") == "docker"
UNTRIED = {
    "UNIVOCAL_TOUR=docker make test ARGS='-n0 tests/e2e/test_tour.py'"  # this, with the stack
}

# For each command that shows something, by step: what it shows.
EXPECTED = {
    1: [
        r"cache-status: univocal; fwd=uri-miss; stored[\s\S]*Rendering number 1 ",
        r"cache-status: univocal; hit; ttl=[\s\S]*Rendering number 1 ",
        r"cache-status: univocal; hit; ttl=\d+; detail=shared[\s\S]*Rendering number 1 ",
    ],
    2: [
        r'^\{"purged": 1, "key": "http://wiki\.localhost:\d+/wiki/Steve_Fuller_\(sociologist\)"\}$',
        r"cache-status: univocal; fwd=uri-miss; stored[\s\S]*Rendering number 2 ",
    ],
    3: [
        r"200[\s\S]*The administrator's page\.\nreceived /shop/\.\.;/admin\nread as  /admin",
        r"400 Bad Request[\s\S]*dot-segment-parameter",
    ],
    4: [r'"state":"up"(?s:.*"state":"up"){3}', r'"reason":"dot-segment-parameter"'],
    5: [
        r"authority +http://wiki\.localhost:\d+\nring +/wiki/AC/DC\n",
        r'"name": "authority"[\s\S]*"name": "ring"',
    ],
    6: [r"asked for most\n[\s\S]*spellings that became one\n[\s\S]*dot-segment-parameter  shop\.localhost"],
    7: [
        r"cache-status: univocal; fwd=uri-miss; stored",
        r'^\{"banned": true, ',
        r"cache-status: univocal; fwd=uri-miss",
    ],
    8: [
        r"cache-status: univocal; fwd=uri-miss; stored[\s\S]*This is one; answer number",
        r'^\{"softened": 1, ',
        r"cache-status: univocal; fwd=stale; detail=disconnected[\s\S]*This is one; answer number",
        r"50[24] [\s\S]*application/problem\+json",
        r'"failures":[1-9]',
        r"200 OK[\s\S]*cache-status: univocal; fwd=(stale|uri-miss); [\s\S]*This is one; answer number",
    ],
    9: [r"^sites\[1\]\.cache\.ttl$", r"^sites\[1\]\.cache\.ttl$"],
    10: [r'"cache":"hit","site":"wiki\.localhost:\d+"', r'"value":\[[0-9.]+,"1"\].*"value":\[[0-9.]+,"1"\]'],
}
SILENT = re.compile(r"sed |mv |docker compose (--profile grafana )?(up|down|stop)\b")


def commands():
    """The page's commands in order, each with its step's number; 0 before the first."""
    for part in re.split(r"(?m)^## ", TOUR):
        number = int(found[1]) if (found := re.match(r"(\d+)\. ", part)) else 0
        for block in re.findall(r"(?ms)^```sh\n(.*?)^```$", part):
            yield from ((number, line.strip()) for line in block.splitlines())


def needed(program, package):
    """The path of a program; the test is skipped if it is not installed."""
    found = shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin")
    if found is None:
        pytest.skip(f"needs {program} (Debian package {package})")
    return found


class Containers:
    """The stack itself."""

    def __init__(self):
        needed("docker", "docker-cli")

    def run(self, command):
        """Run a command of the page, and return its output."""
        plain = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
        text = command.replace("compose exec ", "compose exec -T ")  # nobody sits at a terminal
        if "--profile grafana up" in text:
            return ""  # its image is a large one, and nothing is asked of it
        ended = subprocess.run(
            ["sh", "-c", quiet(text)],
            capture_output=True, text=True, timeout=900, check=False, env=plain, cwd=ROOT,
        )  # fmt: skip
        assert ended.returncode == 0, f"{command}\n{ended.stdout}\n{ended.stderr}"
        return str(ended.stdout)

    def end(self):
        self.run("docker compose --profile grafana down")


class Stack:
    """A process of this machine for each service, and what `docker compose` would do with them."""

    def __init__(self, folder):
        self._folder = folder
        self._started = {}
        names = ("8080", "8081", "8082", "8083", "8084", "9090", "app", "files", "wiki", "redis", "tomcat")
        self._ports = {name: free_port() for name in names}
        self._ports["tomcat"] = self._ports["8084"]
        (folder / "deploy" / "compose").mkdir(parents=True)
        self._file = folder / "deploy" / "compose" / "univocal.toml"
        text = (COMPOSE / "univocal.toml").read_text("utf-8")
        for name in ("app", "files", "wiki", "redis", "tomcat"):
            text = re.sub(rf"//{name}:\d+", f"//127.0.0.1:{self._ports[name]}", text)
        self._file.write_text(self._here(text))

    def _here(self, text):
        """A text of the page's or of a file's, with the ports of this machine."""
        return re.sub(r":(808\d|9090)\b", lambda found: f":{self._ports[found[1]]}", text)

    # The services

    def up(self, *names):
        """Start these, or all, and wait until each takes connections."""
        makers = {
            "redis": self._redis,
            "app": self._app,
            "wiki": self._wiki,
            "files": self._nginx,
            "tomcat": self._tomcat,
            "proxy": lambda: self._proxy("8080", "8081"),
            "second": lambda: self._proxy("8082", "8083"),
            "prometheus": self._prometheus,
        }
        for name in names or makers:
            if name not in self._started:
                port, command, variables = makers[name]()
                log = (self._folder / f"{name}.log").open("wb")
                program = forking.Program if command[0] == sys.executable else subprocess.Popen
                with log:
                    self._started[name] = program(
                        command,
                        env={**os.environ, **variables},
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                    )
                until_it_listens(self._started[name], port, self._folder / f"{name}.log")

    def stop(self, name):
        """End one."""
        end(self._started.pop(name), PATIENCE)

    def end(self):
        """End those that run."""
        for name in reversed(list(self._started)):
            self.stop(name)

    def _redis(self):
        port = self._ports["redis"]
        program = needed("redis-server", "redis-server")
        return port, [program, "--port", str(port), "--bind", "127.0.0.1", "--save", ""], {}

    def _uvicorn(self, name, *arguments):
        port = self._ports[name]
        command = [sys.executable, "-m", "uvicorn", *arguments, "--port", str(port), "--no-access-log"]
        return port, command, {"PYTHONPATH": f"{ROOT}/app:{ROOT}/middleware"}

    def _app(self):
        return self._uvicorn("app", "--app-dir", str(COMPOSE / "app"), "application:app")

    def _wiki(self):
        return self._uvicorn("wiki", "--factory", "univocal_learn.demo.origins:Wiki")

    def _nginx(self):
        port, files = self._ports["files"], self._folder / "files"
        shutil.copytree(COMPOSE / "files", files)
        files.chmod(0o755)
        text = (COMPOSE / "nginx.conf").read_text("utf-8").replace("/tmp/", f"{self._folder}/")
        text = text.replace("/usr/share/nginx/html", str(files)).replace(
            "listen 9002", f"listen 127.0.0.1:{port}"
        )
        (self._folder / "nginx.conf").write_text(f"master_process off;\n{text}")
        options = ["-e", "stderr", "-c", str(self._folder / "nginx.conf"), "-g", "daemon off;"]
        return port, [needed("nginx", "nginx-light"), *options], {}

    def _tomcat(self):
        port, base, home = self._ports["tomcat"], self._folder / "tomcat", Path("/usr/share/tomcat10")
        if not (home / "bin" / "bootstrap.jar").exists() or not Path("/etc/tomcat10/web.xml").exists():
            pytest.skip("needs Tomcat (Debian package tomcat10)")
        for each in ("conf", "logs", "temp", "webapps"):
            (base / each).mkdir(parents=True)
        shutil.copytree(COMPOSE / "shop", base / "webapps" / "ROOT")
        # The pages are compiled once for all runs; they are found changed by their time.
        compiled = CACHE / f"shop-{max(each.stat().st_mtime_ns for each in COMPOSE.glob('shop/*/*.jsp'))}"
        shutil.copy("/etc/tomcat10/web.xml", base / "conf")
        (base / "conf" / "server.xml").write_text(
            '<Server port="-1"><Service name="Catalina">'
            f'<Connector port="{port}" address="127.0.0.1"/><Engine name="Catalina" defaultHost="localhost">'
            f'<Host name="localhost" appBase="webapps" workDir="{compiled}"/></Engine></Service></Server>\n'
        )
        jars = ":".join(str(home / "bin" / name) for name in ("bootstrap.jar", "tomcat-juli.jar"))
        places = [f"-Dcatalina.home={home}", f"-Dcatalina.base={base}", f"-Djava.io.tmpdir={base / 'temp'}"]
        frugal = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        command = [needed("java", "default-jre-headless"), *frugal, *places, "-cp", jars]
        return port, [*command, "org.apache.catalina.startup.Bootstrap", "start"], {}

    def _proxy(self, listen, admin):
        places = [
            "--listen",
            f"127.0.0.1:{self._ports[listen]}",
            "--admin",
            f"127.0.0.1:{self._ports[admin]}",
        ]
        command = [sys.executable, "-m", "univocal_app", "serve", "--config", str(self._file), *places]
        return self._ports[admin], command, {"PYTHONPATH": f"{ROOT}/app:{ROOT}/middleware"}

    def _prometheus(self):
        port, file = self._ports["9090"], self._folder / "prometheus.yml"
        text = (
            (COMPOSE / "prometheus.yml")
            .read_text("utf-8")
            .replace("scrape_interval: 5s", "scrape_interval: 1s")
        )
        for name, admin in (("proxy", "8081"), ("second", "8083")):
            text = text.replace(f'"{name}:8081"', f'"127.0.0.1:{self._ports[admin]}"')
        file.write_text(text)
        options = [f"--config.file={file}", f"--web.listen-address=127.0.0.1:{port}"]
        data = f"--storage.tsdb.path={self._folder / 'prometheus'}"
        return port, [needed("prometheus", "prometheus"), *options, data], {}

    # The commands

    def run(self, command):
        """Run a command of the page, and return its output."""
        words = shlex.split(command)
        if words[:2] == ["docker", "compose"]:
            return self._compose(words[2:])
        plain = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
        ended = subprocess.run(
            ["sh", "-c", quiet(self._here(command))],
            capture_output=True, text=True, timeout=PATIENCE, check=False, env=plain, cwd=self._folder,
        )  # fmt: skip
        assert ended.returncode == 0, f"{command}\n{ended.stdout}\n{ended.stderr}"
        return str(ended.stdout)

    def _compose(self, words):
        match words:
            case ["--profile", "grafana", *_] | ["down"]:
                return ""  # nothing is asked of Grafana; the fixture ends the others
            case ["up", *more]:
                self.up(*(word for word in more if not word.startswith("-")))
                return ""
            case ["stop", name]:
                self.stop(name)
                return ""
            case ["exec", "proxy" | "second" as name, "univocal", *arguments]:
                return self._univocal(name, arguments)
        raise AssertionError(f"docker compose {words}")

    def _univocal(self, name, arguments):
        told = [
            self._here(word).replace("/etc/univocal/univocal.toml", str(self._file)) for word in arguments
        ]
        if told[0] in {"top", "reload"}:  # in a container each has the usual address
            told += ["--admin", f"http://127.0.0.1:{self._ports['8081' if name == 'proxy' else '8083']}"]
        command = [sys.executable, "-m", "univocal_app", *told]
        ended = forking.run(command, timeout=PATIENCE, env={**os.environ, "NO_COLOR": "1"})
        assert ended.returncode == 0, f"{arguments}\n{ended.stdout}\n{ended.stderr}"
        return str(ended.stdout)


def quiet(command):
    """The command without curl's meter."""
    return re.sub(r"^curl ", "curl -sS ", command)


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    needed("curl", "curl")
    stack = Containers() if DOCKER else Stack(tmp_path_factory.mktemp("stack"))
    try:
        yield stack
    finally:
        stack.end()


def shows(said, wanted):
    """Tell whether an answer has what a page says."""
    return re.search(wanted, said.replace("\r\n", "\n"), re.MULTILINE | re.IGNORECASE) is not None


def test_every_step_shows_what_the_page_says(stack):
    expected = {step: list(each) for step, each in EXPECTED.items()}
    for step, command in commands():
        if command in UNTRIED:
            continue
        said = stack.run(command)
        if not SILENT.match(command):
            assert expected.get(step), f"step {step} has a command more: {command}"
            wanted, end = expected[step].pop(0), time.monotonic() + PATIENCE
            # Prometheus asks every few seconds: what it knows comes a little later.
            while step == 10 and not shows(said, wanted) and time.monotonic() < end:
                time.sleep(0.5)
                said = stack.run(command)
            assert shows(said, wanted), f"step {step}: {command}\n{said}"
    assert not any(expected.values()), f"there is more to see than is asked for: {expected}"


def test_the_readmes_stack_does_what_it_says(stack):
    (block,) = [each for each in re.findall(r"(?ms)^```sh\n(.*?)^```$", README) if "docker compose" in each]
    up, first, second, purge, down = block.splitlines()
    stack.run(up)
    assert shows(stack.run(first), r"cache-status: univocal; fwd=uri-miss; stored")
    assert shows(stack.run(second), r"cache-status: univocal; hit; ttl=\d+; detail=shared")
    assert shows(stack.run(purge), r'^\{"purged": 1, ')
    stack.run(down)
