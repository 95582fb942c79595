"""Settings for all tests."""

from __future__ import annotations

import gc

import pytest
from hypothesis import HealthCheck, settings

from tests.progress import LongRunProgress

# Tests run in parallel, so the duration of an example means nothing.
settings.register_profile("etagere", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("etagere")


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # while tests are collected: nearly all that it makes stays
    is_worker = hasattr(config, "workerinput")
    if config.getoption("markexpr") == "long" and not is_worker:
        config.pluginmanager.register(LongRunProgress(config), "long-run-progress")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Freezes what collecting made. Each writer process is forked from this one, and its own
    collection of garbage would look at, and so copy, all of it."""
    gc.collect()
    gc.freeze()
    gc.enable()
