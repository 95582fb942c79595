"""Histories of a live server that is killed while clients change files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.history.events import Unknown
from tests.history.file.events import Done, Verb
from tests.history.file.service import SERVICE
from tests.history.file.workloads import WORKLOADS
from tests.history.live import Plan, run_and_check

SURE_TO_SUCCEED = {Verb.CREATE, Verb.PUT, Verb.GET, Verb.LIST, Verb.CREATE_DIRECTORY}
"""Verbs that succeed sooner or later, even on a busy machine."""


def test_killed_servers(tmp_path: Path) -> None:
    plan = Plan(seed=2, seconds=4.0, workers=2, operations_min=400)
    history = run_and_check(tmp_path, plan, SERVICE)
    assert len(history.kills) > 1  # the last one comes when the clients are done
    assert any(isinstance(each.outcome, Unknown) for each in history.operations)
    done = [each.request for each in history.operations if isinstance(each.outcome, Done)]
    assert {request.verb for request in done} >= SURE_TO_SUCCEED
    counts = Counter(request.share for request in done)
    assert min(counts[share] for share in WORKLOADS) > 1, counts


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 103))
@pytest.mark.parametrize("workers", [1, 2])
def test_killed_servers_for_long(tmp_path: Path, workers: int, seed: int) -> None:
    history = run_and_check(tmp_path, Plan(seed, 120.0, workers), SERVICE)
    assert len(history.kills) > 10
    done = {each.request.verb for each in history.operations if isinstance(each.outcome, Done)}
    assert done == set(Verb) - {Verb.CRASH}
