"""Histories of a live server that is killed while clients change entities."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.history.events import Unknown
from tests.history.live import Plan, run_and_check
from tests.history.table.events import Done, Verb
from tests.history.table.service import SERVICE


def test_killed_servers(tmp_path: Path) -> None:
    plan = Plan(seed=2, seconds=3.0, workers=2, operations_min=200)
    history = run_and_check(tmp_path, plan, SERVICE)
    assert len(history.kills) > 1  # the last one comes when the clients are done
    assert any(isinstance(each.outcome, Unknown) for each in history.operations)
    done = Counter(each.request.verb for each in history.operations if _is_done(each.outcome))
    assert set(done) == set(Verb), done


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 103))
@pytest.mark.parametrize("workers", [1, 2])
def test_killed_servers_for_long(tmp_path: Path, workers: int, seed: int) -> None:
    history = run_and_check(tmp_path, Plan(seed, 120.0, workers), SERVICE)
    assert len(history.kills) > 10


def _is_done(outcome: object) -> bool:
    return isinstance(outcome, Done)
