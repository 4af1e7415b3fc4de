"""The figures of a process are those that prometheus_client would read."""

import json
import subprocess
import sys

import pytest

from univocal_app.observe.families import CPU, FAMILIES

# In a process of its own: where other tests ran, collecting garbage closes files between the two readings.
BOTH = """
import json
from prometheus_client.process_collector import ProcessCollector
from univocal_app.observe.figures import process_figures
ours = process_figures()
theirs = {family.name: family.samples[0].value for family in ProcessCollector(registry=None).collect()}
print(json.dumps([ours, theirs]))
"""


def test_the_figures_are_those_of_prometheus_client():
    printed = subprocess.run([sys.executable, "-c", BOTH], capture_output=True, check=True).stdout
    ours, theirs = json.loads(printed)
    assert ours.keys() == theirs.keys() <= FAMILIES.keys()
    assert ours == pytest.approx(theirs, rel=0.01, abs=0.05)
    assert ours[CPU] > 0
