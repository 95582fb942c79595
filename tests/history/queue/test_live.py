"""Histories of a live server that is killed while producers and consumers use it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.history.events import Refused, Unknown
from tests.history.live import Plan, run_and_check
from tests.history.queue.events import Done, History, Verb
from tests.history.queue.service import CONSUMERS, PRODUCERS, SERVICE


def test_killed_servers_and_consumers_are_explained(tmp_path: Path) -> None:
    plan = Plan(seed=2, seconds=2.5, workers=2, operations_min=300)
    history = run_and_check(tmp_path, plan, SERVICE)
    assert len(history.kills) > 1  # the last one comes when the clients are done
    assert any(isinstance(each.outcome, Unknown) for each in history.operations)
    done = Counter(each.request.verb for each in history.operations if _is_done(each.outcome))
    assert min(done[verb] for verb in Verb) >= 5, done
    assert any(each.outcome == Refused("MessageNotFound") for each in history.operations)
    assert max(_counts(history)) > 1
    # Others have replaced those that were killed.
    assert len({each.client for each in history.operations}) > PRODUCERS + CONSUMERS + 1


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 103))
@pytest.mark.parametrize("workers", [1, 2])
def test_killed_servers_and_consumers_are_explained_for_long(
    tmp_path: Path, workers: int, seed: int
) -> None:
    history = run_and_check(tmp_path, Plan(seed, 120.0, workers), SERVICE)
    assert max(_counts(history)) > 3


def _is_done(outcome: object) -> bool:
    return isinstance(outcome, Done)


def _counts(history: History) -> list[int]:
    """Of all deliveries."""
    return [
        seen.count
        for each in history.operations
        if isinstance(each.outcome, Done)
        for seen in each.outcome.seen
    ]
