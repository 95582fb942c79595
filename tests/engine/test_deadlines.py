"""Operations are not committed after their deadlines, which pass before a front end gives up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from etagere.clock import SystemClock
from etagere.config import Config
from etagere.engine import deadlines, ledger, wire
from etagere.engine.deadlines import AnswerTimer
from etagere.engine.direct import write_directly
from etagere.engine.groups import Writer
from etagere.engine.interface import C, Fault, FaultReason, T, WriteTxn, operation, registered
from etagere.engine.records import ENCODE
from etagere.engine.wire import Outcome
from etagere.engine.writer_client import raise_for
from etagere.model.base import Command
from tests.engine.samples import ITEMS, Key, count_up

_SECOND = 1_000_000_000


class CountSlowly(Command, frozen=True):
    key: str
    seconds: float
    scans: bool = False


@operation
def count_slowly(txn: WriteTxn, command: CountSlowly) -> int:
    """A scan makes it run in the transaction of PostgreSQL."""
    if command.scans:
        txn.scan(ITEMS, ITEMS.all(), 1)
    time.sleep(command.seconds)
    return count_up(txn, Key(command.key))


def expiring(run: Callable[[WriteTxn, C], T], command: C, seconds: float) -> wire.Request:
    """Returns a request whose deadline is so many seconds ahead."""
    deadline = deadlines.now() + int(seconds * _SECOND)
    payload = memoryview(ENCODE(command))
    return wire.Request(0, registered(run).wire_name, payload, deadline=deadline)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    # On a busy machine, too, a group is not cut.
    config = Config(durable=False, reserve_bytes=1 << 20, group_seconds_max=10.0)
    clock = SystemClock()
    ledger.create(tmp_path, config, clock)
    made = Writer(tmp_path, config, clock)
    yield made
    made.close()


def count(writer: Writer, key: str) -> int:
    """Counts up once more."""
    return write_directly(writer, count_up, Key(key))


def test_operations_in_time_are_committed(writer: Writer) -> None:
    group = [expiring(count_up, Key("key"), 60.0), expiring(count_up, Key("key"), 9.0)]
    assert [answer.outcome for answer in writer.run_group(group)] == [Outcome.RESULT] * 2
    assert count(writer, "key") == 3


def test_a_group_is_rolled_back_if_a_deadline_has_passed(writer: Writer) -> None:
    """The other operations run in the next group."""
    other = expiring(count_up, Key("other"), 60.0)
    late = expiring(count_slowly, CountSlowly("late", 0.3), 0.2)
    assert writer.run_group([other, late]) == []
    assert [answer.outcome for answer in writer.run_group([other])] == [Outcome.RESULT]
    assert count(writer, "other") == 2
    assert count(writer, "late") == 1


def test_deadlines_pass_before_a_front_end_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of requests that were sent long after the one that the writer did not answer."""
    now = 1_000 * _SECOND
    monkeypatch.setattr(deadlines, "now", lambda: now)
    timer = AnswerTimer(60.0)
    seen = [timer.deadline]
    for _ in range(3):
        now += 40 * _SECOND
        timer.restart()
        seen.append(timer.deadline)
    assert seen == sorted(seen)
    answered_at = now
    while not timer.is_over:
        assert timer.deadline == answered_at + 50 * _SECOND
        now += _SECOND
    assert now - answered_at == 61 * _SECOND


def test_a_request_keeps_its_deadline() -> None:
    frame = wire.encode_request(7, b"name", b"command", b"origin", 3, b"account", 2**63 + 1)
    (received,) = wire.FrameReader(1_000).feed(frame)
    assert wire.decode_request(received).deadline == 2**63 + 1
    (received,) = wire.FrameReader(1_000).feed(wire.encode_request(7, b"name", b"command"))
    assert wire.decode_request(received).deadline == wire.NO_DEADLINE


def test_on_a_full_disk_operations_are_not_late_either(writer: Writer) -> None:
    """They run one by one then."""
    writer._reserve.release()
    group = [
        expiring(free_slowly, CountSlowly("late", 0.2), 0.1),
        expiring(free, Key("other"), 60.0),
    ]
    late, other = writer.run_group(group)
    assert other.outcome is Outcome.RESULT
    with pytest.raises(Fault) as fault:
        raise_for(late.outcome, late.payload)
    assert fault.value.reason is FaultReason.UNAVAILABLE
    writer.restore_reserve()
    assert count(writer, "late") == 1
    assert count(writer, "other") == 2


@operation(reclaims=True)
def free(txn: WriteTxn, command: Key) -> int:
    return count_up(txn, command)


@operation(reclaims=True)
def free_slowly(txn: WriteTxn, command: CountSlowly) -> int:
    return count_slowly(txn, command)
