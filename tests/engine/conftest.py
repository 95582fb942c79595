"""Parametrizes tests over the engines."""

from __future__ import annotations

import importlib
import importlib.util

import pytest

# Imported before any engine starts: the writer process is forked and has the modules imported by
# then.
import tests.engine.samples  # noqa: F401
from tests.engine.harness import Start, start_memory


def _engines() -> dict[str, Start]:
    engines: dict[str, Start] = {"memory": start_memory}
    if importlib.util.find_spec("tests.engine.sqlite_harness") is not None:
        engines["sqlite"] = importlib.import_module("tests.engine.sqlite_harness").start
    if importlib.util.find_spec("psycopg") is not None:
        engines["postgresql"] = importlib.import_module("tests.engine.postgres_harness").start
    return engines


ENGINES = _engines()


@pytest.fixture(params=list(ENGINES))
def start(request: pytest.FixtureRequest) -> Start:
    """Starts one engine; tests that use it run with each."""
    return ENGINES[request.param]


@pytest.fixture
def starts() -> dict[str, Start]:
    """Starts any engine; for tests that use all of them at once."""
    return ENGINES
