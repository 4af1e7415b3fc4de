"""benchmarks/observe.py runs, and measures everything that it says."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROWS = [
    *("nothing", "log json", "log json, workers", "log combined", "log off", "figures", "figures, workers"),
    *("hit, one page", "hit, 1,000 pages"),
]


def test_the_cost_of_each_counter_is_measured():
    paths = os.pathsep.join(str(ROOT / source) for source in ("app", "middleware"))
    ended = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks/observe.py"), "--calls", "1000"],
        capture_output=True, text=True, timeout=300, check=False, env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert re.findall(r"(?m)^(\S.*?) +[0-9.]+ µs", ended.stdout) == ROWS
    assert len(re.findall(r"(?m)^hit, .* not counted [0-9.]+ µs$", ended.stdout)) == 2
