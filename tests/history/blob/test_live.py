"""Histories of a live server that is killed while clients use it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.history.blob.events import ONLY_ETAG_NAMES, READS, WRITES, Done, Verb
from tests.history.blob.service import SERVICE
from tests.history.blob.workloads import WORKLOADS
from tests.history.events import Unknown
from tests.history.live import Plan, run_and_check

SURE_TO_SUCCEED = (WRITES - ONLY_ETAG_NAMES) | {Verb.GET, Verb.HEAD, Verb.ACQUIRE, Verb.BREAK}
"""Verbs that succeed sooner or later, whatever the other clients do."""
OF_APPENDS_AND_PAGES = ONLY_ETAG_NAMES | READS | {Verb.SNAPSHOT, Verb.GET_SNAPSHOT}
SELDOM = {Verb.SEAL, Verb.RESIZE}
"""Verbs that may not be chosen within a few seconds on a slow machine."""


def test_killed_servers_are_explained(tmp_path: Path) -> None:
    plan = Plan(seed=2, seconds=7.0, workers=2, operations_min=600)
    history = run_and_check(tmp_path, plan, SERVICE)
    assert len(history.kills) > 2  # the last one comes when the clients are done
    assert any(isinstance(each.outcome, Unknown) for each in history.operations)
    done = [each.request for each in history.operations if isinstance(each.outcome, Done)]
    assert {request.verb for request in done} >= SURE_TO_SUCCEED
    counts = Counter(request.blob for request in done)
    assert min(counts[blob] for blob in WORKLOADS) >= 3, counts


def test_appends_and_pages_are_explained(tmp_path: Path) -> None:
    plan = Plan(3, 5.0, 2, ("appends", "pages"), operations_min=300)
    history = run_and_check(tmp_path, plan, SERVICE)
    assert len(history.kills) > 1
    done = {each.request.verb for each in history.operations if isinstance(each.outcome, Done)}
    assert done >= OF_APPENDS_AND_PAGES - SELDOM


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 103))
@pytest.mark.parametrize("workers", [1, 2])
def test_killed_servers_are_explained_for_long(tmp_path: Path, workers: int, seed: int) -> None:
    """Long enough for leases to end by themselves."""
    history = run_and_check(tmp_path, Plan(seed, 180.0, workers), SERVICE)
    done = {each.request.verb for each in history.operations if isinstance(each.outcome, Done)}
    assert done >= OF_APPENDS_AND_PAGES
    seen = [each.outcome.seen for each in history.operations if isinstance(each.outcome, Done)]
    assert {each.lease for each in seen} >= {"available", "leased", "breaking", "broken", "expired"}
