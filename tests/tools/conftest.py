"""Helpers of the tests of tools."""

import importlib.util
import sys

import pytest


@pytest.fixture(scope="module")
def fuzzer(request):
    """The fuzzer at the `SOURCE` of the tests, as a module."""
    source = request.module.SOURCE
    spec = importlib.util.spec_from_file_location(f"fuzz_{source.stem}", source)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]
