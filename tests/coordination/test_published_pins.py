"""Pins that are published now and then: what readers need is never removed, and the rest is."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etagere.coordination.pins import CountedPin
from etagere.coordination.postgres import published
from etagere.coordination.postgres.published import (
    PublishedPins,
    SharedPins,
    StartedPinRounds,
    decode,
    encode,
    pinned_segments,
)


@given(st.sets(st.integers(1, 1 << 62)))
def test_segments_are_encoded(segments: set[int]) -> None:
    assert decode(encode(segments)) == sorted(segments)


def test_neighbours_take_a_byte_each() -> None:
    assert len(encode(range(100_000, 101_000))) == 3 + 999


def test_a_process_with_too_many_segments_keeps_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published, "ENCODED_BYTES_MAX", 10)
    pins, started = SharedPins(), StartedPinRounds()
    started.add(5, 50)
    pins.last_pin_round = 6
    pins.pin().narrow(range(1, 12))
    assert pinned_segments([pins.capture()], started).keeps(99, 1)


def test_pins_are_dated_by_the_last_own_round_before_them() -> None:
    started = StartedPinRounds()
    for number in range(10, 5_000, 10):
        started.add(number, 1_000 + number)
    assert started.time_of(4_990) == started.time_of(4_999) == 5_990
    assert started.time_of(4_989) == 5_980
    # Rounds that are forgotten, and those of others before the first.
    assert started.time_of(9) == 0


# A cluster in one process, whose steps happen in any order


@dataclass
class Reader:
    """A download: it pins, takes a snapshot, narrows its pin and reads segment by segment."""

    pin: CountedPin
    snapshot: frozenset[int] | None = None
    plan: list[int] | None = None


@dataclass
class Process:
    """A process, with the message to the database or from it that is under way."""

    pins: SharedPins = field(default_factory=SharedPins)
    readers: list[Reader] = field(default_factory=list)
    sending: tuple[int, PublishedPins] | None = None
    receiving: int | None = None
    clock: int = 0
    started: StartedPinRounds = field(default_factory=StartedPinRounds)
    pin_round: int | None = None
    retired_at: dict[int, int] = field(default_factory=dict)
    is_alive: bool = True
    """False once it knows that it has expired. Until then, it also collects."""


class Cluster:
    """Processes that read, two of which also collect, and their database."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.live = set(range(1, 8))
        self.next_segment = 8
        self.retired: set[int] = set()
        self.last_pin_round = 1
        self.rows: dict[int, tuple[int, PublishedPins]] = {}
        # The clocks of the machines have nothing in common.
        self.processes = [Process(clock=self.random.randrange(10**6)) for _ in range(4)]
        for number in range(len(self.processes)):
            self.rows[number] = 0, PublishedPins(None, b"")
        self.removed: set[int] = set()

    def check(self) -> None:
        """No reader of a process that has not expired needs a segment that was removed."""
        for number in self.rows:
            for reader in self.processes[number].readers:
                needed = reader.snapshot if reader.plan is None else set(reader.plan)
                assert not self.removed & (needed or set())

    def step(self) -> None:
        number = self.random.randrange(len(self.processes))
        process = self.processes[number]
        if not process.is_alive:
            return
        process.clock += self.random.randrange(5)
        steps = [self.send, self.deliver, self.receive, self.read, self.read, self.read]
        if number < 2:
            steps += [self.retire, self.start_round, self.remove]
        self.random.choice(steps)(number, process)
        self.check()

    # Heartbeats

    def send(self, _: int, process: Process) -> None:
        if process.sending is None and process.receiving is None:
            process.sending = process.pins.last_pin_round, process.pins.capture()

    def deliver(self, number: int, process: Process) -> None:
        if process.sending is not None:
            if number in self.rows:
                self.rows[number] = process.sending
            process.sending, process.receiving = None, self.last_pin_round

    def receive(self, number: int, process: Process) -> None:
        if process.receiving is not None:
            process.pins.last_pin_round, process.receiving = process.receiving, None
            process.is_alive = number in self.rows

    def expire(self, number: int) -> None:
        self.rows.pop(number, None)

    # Readers

    def read(self, _: int, process: Process) -> None:
        readers = process.readers
        if len(readers) < 3 and self.random.random() < 0.4:
            readers.append(Reader(process.pins.pin()))
            return
        if not readers:
            return
        reader = self.random.choice(readers)
        if reader.snapshot is None:
            reader.snapshot = frozenset(self.live)
        elif reader.plan is None:
            if self.random.random() < 0.9:
                return  # the lookup takes its time
            count = self.random.randint(1, min(3, len(reader.snapshot)))
            reader.plan = self.random.sample(sorted(reader.snapshot), count)
            reader.pin.narrow(reader.plan)
        elif reader.plan:
            reader.pin.release(reader.plan.pop())
        else:
            reader.pin.close()
            readers.remove(reader)

    # Collectors

    def retire(self, _: int, process: Process) -> None:
        segment = self.random.choice(sorted(self.live))
        self.live.remove(segment)
        self.live.add(self.next_segment)
        self.next_segment += 1
        self.retired.add(segment)
        process.retired_at[segment] = process.clock

    def start_round(self, _: int, process: Process) -> None:
        for segment in self.retired - self.removed:
            process.retired_at.setdefault(segment, process.clock)
        process.clock += 1
        started_at = process.clock
        process.clock += self.random.randrange(5)
        self.last_pin_round += 1
        process.pin_round = self.last_pin_round
        process.started.add(process.pin_round, started_at)

    def remove(self, number: int, process: Process) -> None:
        rows = {other: row for other, row in self.rows.items() if other != number}
        pin_round = process.pin_round
        if pin_round is None or any(last < pin_round for last, _ in rows.values()):
            return
        process.pin_round = None
        pinned = pinned_segments(
            [process.pins.capture(), *(pins for _, pins in rows.values())], process.started
        )
        for segment in list(process.retired_at):
            if not pinned.keeps(segment, process.retired_at[segment]):
                del process.retired_at[segment]
                self.removed.add(segment)


@given(st.integers(0, 1 << 32), st.integers(0, 3))
@settings(max_examples=100)
def test_no_reader_loses_a_segment(seed: int, expiring: int) -> None:
    """Whatever the order of events, and although a process expires, which others then ignore. When
    readers come and go, all that is retired is removed."""
    cluster = Cluster(seed)
    for step in range(1_500):
        if step == 700:
            cluster.expire(expiring)
        cluster.step()
    for process in cluster.processes:
        for reader in process.readers:
            reader.pin.close()
        process.readers.clear()
    left = cluster.retired - cluster.removed
    collector = cluster.processes[0 if expiring != 0 else 1]
    number = cluster.processes.index(collector)
    # New readers must not keep what was retired before them: two rounds suffice.
    for _ in range(2):
        collector.clock += 1
        cluster.start_round(number, collector)
        for other, process in enumerate(cluster.processes):
            for _ in range(2):
                cluster.send(other, process)
                cluster.deliver(other, process)
                cluster.receive(other, process)
            process.readers.append(Reader(process.pins.pin(), frozenset(cluster.live)))
        for other, process in enumerate(cluster.processes):
            cluster.send(other, process)
            cluster.deliver(other, process)
            cluster.receive(other, process)
        collector.clock += 1
        cluster.remove(number, collector)
        cluster.check()
    assert left <= cluster.removed
