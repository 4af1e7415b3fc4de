"""The figures of a process are those that prometheus_client would read."""

import pytest
from prometheus_client.process_collector import ProcessCollector

from univocal_app.observe.families import CPU, FAMILIES
from univocal_app.observe.figures import process_figures


def test_the_figures_are_those_of_prometheus_client():
    ours = process_figures()
    theirs = {family.name: family.samples[0].value for family in ProcessCollector(registry=None).collect()}
    assert ours.keys() == theirs.keys() <= FAMILIES.keys()
    assert ours == pytest.approx(theirs, rel=0.01, abs=0.05)
    assert ours[CPU] > 0
