"""The checker finds every planted bug, and nothing if there is none."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest

from tests.history.command_line import main
from tests.history.events import (
    NANOSECONDS,
    Refused,
    Run,
    ServerKill,
    Unknown,
    in_order,
)
from tests.history.queue.checker import (
    COUNTS,
    DELETED,
    EXPIRED,
    LOST,
    RECEIPTS,
    TEXTS,
    WINDOWS,
    check_history,
)
from tests.history.queue.events import LOG, Done, History, Operation, Outcome, Request, Seen, Verb
from tests.history.queue.fake import Bug
from tests.history.queue.scheduler import Simulation
from tests.history.queue.service import SERVICE
from tests.history.texts import text_of, token_in

SEEDS = range(8)

FOUND_BY: dict[Bug, set[str]] = {
    Bug.LOST_BY_KILL: {LOST},
    Bug.LOST_WHEN_DELIVERED: {LOST},
    Bug.NOT_HIDDEN: {WINDOWS},
    Bug.SHOWN_TOO_SOON: {WINDOWS},
    Bug.NOT_HIDDEN_FROM_START: {WINDOWS},
    Bug.DELETE_UNDONE: {DELETED},
    Bug.COUNTS_RESET: {COUNTS},
    Bug.COUNT_SKIPPED: {COUNTS},
    Bug.RECEIPT_KEPT: {RECEIPTS},
    Bug.RECEIPT_USED_TWICE: {RECEIPTS},
    Bug.RECEIPT_WORTHLESS: {RECEIPTS},
    Bug.EXPIRED_DELIVERED: {EXPIRED},
    Bug.TEXT_NOT_CHANGED: {TEXTS},
    Bug.TEXT_MIXED_UP: {TEXTS},
    Bug.PUT_TWICE: {TEXTS},
}


def checks_that_find(bug: Bug | None, seed: int) -> set[str]:
    history = Simulation(seed, operations=600, bug=bug).run()
    return {finding.check for finding in check_history(history)}


@pytest.mark.parametrize("bug", Bug)
def test_a_planted_bug_is_found(bug: Bug) -> None:
    found = [checks_that_find(bug, seed) for seed in SEEDS]
    assert set().union(*found) >= FOUND_BY[bug]
    assert sum(map(bool, found)) >= 2


def test_no_findings_without_bugs() -> None:
    for seed in range(60):
        assert checks_that_find(None, seed) == set()


# Handwritten histories, with times in seconds


def operation(began: float, ended: float, request: Request, outcome: Outcome) -> Operation:
    return Operation(0, request, int(began * NANOSECONDS), int(ended * NANOSECONDS), outcome)


def put(
    began: float, ended: float, *, hidden: int = 0, lives: int | None = None, known: bool = True
) -> Operation:
    request = Request(Verb.PUT, "a", hidden_seconds=hidden, ttl_seconds=lives)
    outcome: Outcome = Done((Seen("id", "r0"),)) if known else Unknown()
    return operation(began, ended, request, outcome)


def get(began: float, ended: float, count: int, *, hidden: int = 10, token: str = "a") -> Operation:
    seen = Seen("id", f"r{count}", token, count)
    return operation(began, ended, Request(Verb.GET, hidden_seconds=hidden), Done((seen,)))


def lost_get(began: float, ended: float) -> Operation:
    return operation(began, ended, Request(Verb.GET, hidden_seconds=10), Unknown())


def update(
    began: float, ended: float, receipt: str, outcome: Outcome, *, hidden: int = 10, token: str = ""
) -> Operation:
    request = Request(Verb.UPDATE, token, "id", receipt, hidden_seconds=hidden)
    return operation(began, ended, request, outcome)


def delete(began: float, ended: float, receipt: str, outcome: Outcome) -> Operation:
    return operation(began, ended, Request(Verb.DELETE, message="id", receipt=receipt), outcome)


def found_by(*operations: Operation, kills: tuple[ServerKill, ...] = ()) -> set[str]:
    history = History(Run("hand", 0), in_order(operations), kills)
    return {finding.check for finding in check_history(history)}


NOT_FOUND = Refused("MessageNotFound")
UPDATED = Done((Seen("id", "new"),))


def test_an_acknowledged_or_seen_message_exists_until_it_is_deleted() -> None:
    assert found_by(put(0, 1)) == {LOST}
    assert not found_by(put(0, 1, known=False))
    assert found_by(put(0, 1, known=False), get(2, 3, 1)) == {LOST}
    assert not found_by(put(0, 1), get(2, 3, 1), delete(4, 5, "r1", Done()))
    assert not found_by(put(0, 1), get(2, 3, 1), delete(4, 5, "r1", Unknown()))
    assert found_by(put(0, 1), get(2, 3, 1), delete(20, 21, "r1", NOT_FOUND)) == {LOST}
    assert not found_by(put(0, 1, lives=5))


def test_a_visibility_timeout_is_not_too_short() -> None:
    """Taken between 2 and 3, it is shown again between 12 and 13."""
    end = delete(40, 41, "r2", Done())
    assert not found_by(put(0, 1), get(2, 3, 1), get(11.5, 12.1, 2), end)
    assert found_by(put(0, 1), get(2, 3, 1), get(11.5, 11.9, 2), end) == {WINDOWS}
    hidden = put(0, 1, hidden=10)
    assert found_by(hidden, get(8, 9, 1), delete(9, 9.5, "r1", Done())) == {WINDOWS}


def test_an_update_changes_the_visibility_timeout() -> None:
    delivered, end = (put(0, 1), get(2, 3, 1)), delete(40, 41, "r2", Done())
    shows = update(4, 5, "r1", UPDATED, hidden=0)
    assert not found_by(*delivered, shows, get(5.5, 6, 2), end)
    prolongs = update(4, 5, "r1", UPDATED, hidden=20)
    assert found_by(*delivered, prolongs, get(22, 23, 2), end) == {WINDOWS}
    assert not found_by(*delivered, prolongs, get(24.5, 25, 2), end)
    assert not found_by(*delivered, update(4, 5, "r1", Unknown(), hidden=0), get(5.5, 6, 2), end)


def test_a_delivery_increments_the_dequeue_count() -> None:
    first, end = (put(0, 1), get(2, 3, 1)), delete(40, 41, "r3", Done())
    assert found_by(*first, get(20, 21, 3), end) == {COUNTS}
    assert not found_by(*first, lost_get(15, 16), get(30, 31, 3), end)
    # A get that was lost after the delivery has not been counted by it.
    assert found_by(*first, get(20, 21, 3), lost_get(22, 23), end) == {COUNTS}
    assert found_by(*first, get(20, 21, 1), delete(22, 23, "r1", Done())) == {COUNTS}


def test_a_killed_server_delivers_nothing() -> None:
    first, end = (put(0, 1), get(4, 5, 1)), delete(40, 41, "r3", Done())
    early = lost_get(2, 3)
    assert not found_by(*first, early, get(20, 21, 3), end)
    kill = ServerKill(int(3.5 * NANOSECONDS), int(3.6 * NANOSECONDS))
    assert found_by(*first, early, get(20, 21, 3), end, kills=(kill,)) == {COUNTS}


def test_a_deleted_message_is_not_delivered() -> None:
    delivered, deleted = (put(0, 1), get(2, 3, 1, hidden=1)), delete(4, 6, "r1", Done())
    assert not found_by(*delivered, deleted, get(5, 7, 2))
    assert found_by(*delivered, deleted, get(6.5, 7, 2)) == {DELETED}


def test_only_the_last_receipt_is_valid() -> None:
    delivered = put(0, 1), get(2, 3, 1), get(20, 21, 2)
    assert found_by(*delivered, delete(22, 23, "r1", Done())) == {RECEIPTS}
    # The requests were concurrent: the delete may have come first.
    assert not found_by(*delivered[:2], get(20, 23, 2), delete(22, 23, "r1", Done()))
    both = update(22, 23, "r2", UPDATED), delete(24, 25, "r2", Done())
    assert found_by(*delivered, *both) == {RECEIPTS}
    deleted = delete(60, 61, "r2", Done())
    assert found_by(*delivered, deleted, delete(62, 63, "r2", Done())) == {RECEIPTS}


def test_the_last_receipt_is_valid_while_the_message_is_hidden() -> None:
    delivered, end = (put(0, 1), get(2, 3, 1)), delete(30, 31, "r1", Done())
    assert found_by(*delivered, update(4, 5, "r1", NOT_FOUND), end) == {RECEIPTS}
    assert not found_by(*delivered, update(4, 12.1, "r1", NOT_FOUND), end)
    assert not found_by(
        *delivered, delete(3.5, 3.9, "r1", Unknown()), update(4, 5, "r1", NOT_FOUND)
    )
    short = put(0, 1, lives=4), get(2, 3, 1)
    assert not found_by(*short, delete(3.5, 4.5, "r1", NOT_FOUND))


def test_an_expired_message_is_not_delivered() -> None:
    short = put(0, 1, lives=5)
    assert not found_by(short, get(5.9, 6.5, 1))
    assert found_by(short, get(6.1, 6.5, 1)) == {EXPIRED}


def test_a_text_is_that_of_the_put_or_of_the_last_update() -> None:
    delivered, end = (put(0, 1), get(2, 3, 1)), delete(40, 41, "r2", Done())
    new = update(4, 5, "r1", UPDATED, token="a/1")
    assert not found_by(*delivered, new, get(20, 21, 2, token="a/1"), end)
    assert found_by(*delivered, new, get(20, 21, 2), end) == {TEXTS}
    perhaps = update(4, 5, "r1", Unknown(), token="a/1")
    assert not found_by(*delivered, perhaps, get(20, 21, 2, token="a/1"), end)
    assert not found_by(*delivered, perhaps, get(20, 21, 2), end)
    assert TEXTS in found_by(*delivered, get(20, 21, 2, token="b"), end)


# Texts and files


def test_a_damaged_text_is_detected() -> None:
    texts = [text_of(f"1-{number}") for number in range(20)]
    assert [token_in(text) for text in texts] == [f"1-{number}" for number in range(20)]
    assert all("damaged" in token_in(text[:-1]) for text in texts)
    assert max(map(len, texts)) > 1_024 > min(map(len, texts))


def test_replay(tmp_path: Path) -> None:
    for bug, status in ((None, 0), (Bug.COUNT_SKIPPED, 1)):
        history = Simulation(1, bug=bug).run()
        path = tmp_path / "history.jsonl"
        LOG.write_history(path, history)
        assert LOG.read_history(path) == history
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            assert main(SERVICE, ["replay", str(path)]) == status
        assert ("violation (counts) of message" in printed.getvalue()) == bool(status)


def test_a_seed_makes_the_same_choices() -> None:
    one, same, other = (Simulation(seed).run() for seed in (1, 1, 2))
    assert one == same
    assert one.operations != other.operations
