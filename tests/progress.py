"""Reports the progress of a run of the long tests."""

from __future__ import annotations

import time
from typing import Final

import pytest

CACHE_KEY: Final = "etagere/long-test-seconds"
SECONDS_BETWEEN_LINES: Final = 15.0
ANNOUNCED_SECONDS_MIN: Final = 30.0

_DEFAULT_SECONDS: Final = 1.0
_EXPECTED_SECONDS: Final = {
    "test_a_deadline_in_real_time_with_one_jump": 20.0,
    "test_killed_servers_and_consumers_are_explained_for_long": 160.0,
    "test_killed_servers_are_explained_for_long": 220.0,
    "test_bodies_match_the_reference_in_long_runs": 120.0,
    "test_engines_match_the_model_in_long_runs": 120.0,
    "test_many_mutated_requests": 60.0,
    "test_killed_under_load_repeatedly": 100.0,
    "test_one_racer_wins_in_long_runs": 30.0,
    "test_larger_downloads_during_overwrites": 30.0,
    "test_killed_under_load_often": 150.0,
    "test_many_kills": 900.0,
    "test_a_paused_machine_catches_up_and_keeps_lease_durations": 115.0,
}
"""The expected duration on two cores of tests that have not run here yet."""


class LongRunProgress:
    """A plugin that prints lines such as "12 of 257 done, 8 min elapsed, about 47 min left"."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._recorded: dict[str, float] = dict(config.cache.get(CACHE_KEY, {}))
        self._left: dict[str, float] = {}
        self._total = 0
        self._workers = 0
        self._began = self._shown = time.monotonic()
        self._took: dict[str, float] = {}
        self._failed: set[str] = set()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if session.items:
            self._start([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: object, ids: list[str]) -> None:
        """With workers, the main process collects nothing, and each worker all tests."""
        self._workers += 1
        if self._workers == 1:
            self._start(ids)

    def _start(self, nodeids: list[str]) -> None:
        self._left = {nodeid: self._expected(nodeid) for nodeid in nodeids}
        self._total = len(self._left)
        self._began = self._shown = time.monotonic()
        self._tell(f"{self._total} long tests, about {minutes(sum(self._left.values()))} in all")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        expected = self._left.get(nodeid, 0.0)
        if expected >= ANNOUNCED_SECONDS_MIN:
            self._show(f"{nodeid} takes about {minutes(expected)}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._took[report.nodeid] = self._took.get(report.nodeid, 0.0) + report.duration
        if not report.passed:
            self._failed.add(report.nodeid)
        if report.when != "teardown":
            return
        self._left.pop(report.nodeid, None)
        if report.nodeid not in self._failed:
            self._recorded[report.nodeid] = round(self._took[report.nodeid], 1)
        if time.monotonic() - self._shown >= SECONDS_BETWEEN_LINES:
            self._show("")

    def pytest_sessionfinish(self) -> None:
        if self._took:
            self._config.cache.set(CACHE_KEY, self._recorded)

    def _expected(self, nodeid: str) -> float:
        return self._recorded.get(nodeid, expected_seconds(nodeid))

    def _show(self, more: str) -> None:
        self._shown = time.monotonic()
        done = self._total - len(self._left)
        self._tell(
            f"{done} of {self._total} done, {minutes(self._shown - self._began)} elapsed, "
            f"about {minutes(self._left_seconds())} left{'; ' if more else ''}{more}"
        )

    def _left_seconds(self) -> float:
        return sum(self._left.values()) / max(1, self._workers)

    def _tell(self, line: str) -> None:
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.ensure_newline()
            reporter.write_line(line)
            reporter.flush()


def expected_seconds(nodeid: str) -> float:
    function = nodeid.rpartition("::")[2].partition("[")[0]
    return _EXPECTED_SECONDS.get(function, _DEFAULT_SECONDS)


def minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
