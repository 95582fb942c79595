"""Histories of real servers that are killed under their clients."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.history.events import ONLY_ETAG_NAMES, READS, WRITES, Done, History, Unknown, Verb
from tests.history.judge import judge
from tests.history.live import WORKLOADS, Plan, run

SURE_TO_SUCCEED = (WRITES - ONLY_ETAG_NAMES) | {Verb.GET, Verb.HEAD, Verb.ACQUIRE, Verb.BREAK}
"""Sooner or later, whatever the others do."""
OF_APPENDS_AND_PAGES = ONLY_ETAG_NAMES | READS | {Verb.SNAPSHOT, Verb.GET_SNAPSHOT}
SELDOM = {Verb.SEAL, Verb.RESIZE}
"""A slow machine may not come to them in a few seconds."""


def require_explained(directory: Path, plan: Plan) -> History:
    recorded = run(directory, plan)
    findings = "\n".join(map(str, judge(recorded.history)))
    assert not findings, f"{findings}\npython -m tests.history replay {recorded.path}"
    return recorded.history


@pytest.mark.parametrize("workers", [1, 2])
def test_killed_servers_are_explained(tmp_path: Path, workers: int) -> None:
    history = require_explained(tmp_path, Plan(seed=workers, seconds=7.0, workers=workers))
    assert len(history.deaths) > 2  # the last one comes when the clients are done
    assert any(isinstance(each.outcome, Unknown) for each in history.operations)
    done = [each.request for each in history.operations if isinstance(each.outcome, Done)]
    assert {request.verb for request in done} >= SURE_TO_SUCCEED
    counts = Counter(request.blob for request in done)
    assert min(counts[blob] for blob in WORKLOADS) >= 10, counts


def test_appends_and_pages_are_explained(tmp_path: Path) -> None:
    workloads = {name: WORKLOADS[name] for name in ("appends", "pages")}
    history = require_explained(tmp_path, Plan(3, 5.0, 2, workloads))
    assert len(history.deaths) > 1
    done = {each.request.verb for each in history.operations if isinstance(each.outcome, Done)}
    assert done >= OF_APPENDS_AND_PAGES - SELDOM


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 103))
@pytest.mark.parametrize("workers", [1, 2])
def test_killed_servers_are_explained_for_long(tmp_path: Path, workers: int, seed: int) -> None:
    """Long enough for leases to end by themselves."""
    history = require_explained(tmp_path, Plan(seed, 180.0, workers))
    done = {each.request.verb for each in history.operations if isinstance(each.outcome, Done)}
    assert done >= OF_APPENDS_AND_PAGES
    seen = [each.outcome.seen for each in history.operations if isinstance(each.outcome, Done)]
    assert {each.lease for each in seen} >= {"available", "leased", "breaking", "broken", "expired"}
