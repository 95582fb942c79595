"""Reads are noted without waiting, and recorded in batches."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from etagere.engine.interface import Fault, FaultReason
from etagere.engine.memory import MemoryEngine
from etagere.jobs.read_recording import Limits, ReadRecording
from etagere.model.blobs import BlobName, RecordReads
from etagere.model.containers import ContainerName

BOX = ContainerName("account", "box")
LIMITS = Limits(notes_max=10, batch_reads_max=4, close_seconds_max=0.05)


class Writes(MemoryEngine):
    """An engine that keeps the commands, and answers when it is let to."""

    def __init__(self) -> None:
        super().__init__()
        self.commands: list[RecordReads] = []
        self.answers = asyncio.Event()
        self.answers.set()
        self.fault: Fault | None = None

    async def write(self, _operation: Callable[..., Any], command: Any) -> Any:
        self.commands.append(command)
        await self.answers.wait()
        if self.fault is not None:
            raise self.fault
        return len(command.reads)

    @property
    def names(self) -> list[list[str]]:
        return [[read.blob.name for read in command.reads] for command in self.commands]


def run(test: Callable[[Writes, ReadRecording], Awaitable[None]]) -> None:
    async def main() -> None:
        engine = Writes()
        await asyncio.wait_for(test(engine, ReadRecording(engine, LIMITS)), 10)

    asyncio.run(main())


def note(recording: ReadRecording, *names: str, stamp: int = 1) -> None:
    for name in names:
        recording.note(BlobName(BOX, name), stamp)


def test_a_blob_that_is_read_often_is_written_once() -> None:
    async def body(engine: Writes, recording: ReadRecording) -> None:
        note(recording, *"aab")
        engine.answers.clear()
        round_ = asyncio.create_task(recording.record_noted())
        while not engine.commands:
            await asyncio.sleep(0)
        # While it is being written, too.
        note(recording, *"ab")
        engine.answers.set()
        await round_
        assert engine.names == [["a", "b"]]

    run(body)


def test_notes_are_bounded_and_written_in_batches() -> None:
    async def body(engine: Writes, recording: ReadRecording) -> None:
        note(recording, *"abcdefghijklmnop")
        await recording.record_noted()
        assert engine.names == [list("abcd"), list("efgh"), list("ij")]
        note(recording, "z")
        await recording.record_noted()
        assert engine.names[3:] == [["z"]]

    run(body)


def test_a_round_waits_for_a_note() -> None:
    async def body(engine: Writes, recording: ReadRecording) -> None:
        note(recording, "a")
        await recording.record_noted()
        waiting = asyncio.create_task(recording.record_noted())
        await asyncio.sleep(0.01)
        assert not waiting.done()
        note(recording, "b")
        await waiting
        assert engine.names == [["a"], ["b"]]

    run(body)


def test_what_could_not_be_written_is_forgotten() -> None:
    async def body(engine: Writes, recording: ReadRecording) -> None:
        engine.fault = Fault(FaultReason.DISK_FULL, "no room")
        note(recording, *"abcdef")
        with pytest.raises(Fault):
            await recording.record_noted()
        engine.fault = None
        await recording.record_noted()
        assert engine.names == [list("abcd"), ["e", "f"]]

    run(body)


def test_closing_writes_what_is_noted() -> None:
    async def body(engine: Writes, recording: ReadRecording) -> None:
        note(recording, *"abcde")
        await recording.close()
        assert engine.names == [list("abcd"), ["e"]]

    run(body)


@pytest.mark.parametrize("fault", [None, Fault(FaultReason.DISK_FULL, "no room")])
def test_closing_waits_for_nobody_long(fault: Fault | None) -> None:
    async def body(engine: Writes, recording: ReadRecording) -> None:
        if fault is None:
            engine.answers.clear()
        engine.fault = fault
        note(recording, "a")
        await recording.close()

    run(body)


def test_what_was_being_written_when_the_process_stopped_is_written_again() -> None:
    async def body(engine: Writes, recording: ReadRecording) -> None:
        note(recording, *"ab")
        engine.answers.clear()
        round_ = asyncio.create_task(recording.record_noted())
        while not engine.commands:
            await asyncio.sleep(0)
        round_.cancel()
        await asyncio.wait([round_])
        engine.answers.set()
        await recording.close()
        assert engine.names == [["a", "b"], ["a", "b"]]

    run(body)
