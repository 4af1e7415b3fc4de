"""Traffic Server as tests start it: one thread that stores nothing, for clients of this machine."""

import shutil
from pathlib import Path

from tests.started import need

PLUGINS = Path("/usr/lib/trafficserver/modules")

RECORDS = """\
CONFIG proxy.config.http.server_ports STRING {port}:ip-in=127.0.0.1
CONFIG proxy.config.http.cache.http INT 0
CONFIG proxy.config.exec_thread.autoconfig INT 0
CONFIG proxy.config.exec_thread.limit INT 1
CONFIG proxy.config.log.logging_enabled INT 0
CONFIG proxy.config.admin.user_id STRING #-1
"""
ALLOWED = "ip_allow:\n  - apply: in\n    ip_addrs: 127.0.0.1\n    action: allow\n    methods: ALL\n"


def with_rules(base: Path, port: int, rules: str) -> list[str]:
    """The command of a Traffic Server at this port, which has these remap rules and Lua."""
    need("trafficserver", "traffic_server", PLUGINS / "tslua.so")
    (base / "etc").mkdir(parents=True)
    ours = ("prefix", "datadir", "localstatedir", "runtimedir", "logdir", "cachedir")
    layout = {"bindir": "/usr/bin", "sbindir": "/usr/sbin", "libdir": "/usr/lib", "libexecdir": PLUGINS}
    layout |= {"exec_prefix": "/usr", "sysconfdir": base / "etc", **dict.fromkeys(ours, base)}
    files = {
        "runroot.yaml": "".join(f"{name}: {value}\n" for name, value in layout.items()),
        "etc/records.config": RECORDS.format(port=port),
        "etc/ip_allow.yaml": ALLOWED,
        "etc/remap.config": rules,
        "etc/plugin.config": "",
        "etc/storage.config": "",
    }
    for name, text in files.items():
        (base / name).write_text(text)
    return [shutil.which("traffic_server") or "", f"--run-root={base}/runroot.yaml"]
