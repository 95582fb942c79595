"""What holds for all tests."""

from __future__ import annotations

import pytest

from tests.progress import LongRunProgress


def pytest_configure(config: pytest.Config) -> None:
    is_worker = hasattr(config, "workerinput")
    if config.getoption("markexpr") == "long" and not is_worker:
        config.pluginmanager.register(LongRunProgress(config), "long-run-progress")
