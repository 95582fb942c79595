"""Bodies, the collector and two processes, compared with the reference model."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.model.consistency import require_empty
from tests.model.front_ends import SMALL, LocalFrontEnd, StoreCluster, noise
from tests.model.processes import HelperProcess
from tests.model.reference import Reference

PIECE, SEGMENT, INLINE = SMALL.piece_bytes_max, SMALL.segment_bytes_max, SMALL.inline_bytes_max

NAMES = st.sampled_from(["a", "b", "c", "d"])
SIDES = st.sampled_from(["local", "remote"])
SIZES = st.sampled_from(
    [
        *(0, 1, INLINE, INLINE + 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE),
        *(8 * PIECE, 8 * PIECE + 1, 9 * PIECE, SEGMENT - 1, SEGMENT + 1, 20 * PIECE),
    ]
)
BLOCK_SIZES = st.lists(st.sampled_from([1, 100, INLINE + 1, PIECE, PIECE + 1]), max_size=6)

RESTARTS_MAX = 3
WRITER_KILLS_MAX = 2
"""The delay before a restart grows with each further kill."""


class OpenTransfer:
    """An open reader or upload, and its bytes."""

    def __init__(self, side: str, handle: int, name: str, data: bytes) -> None:
        self.side = side
        self.handle = handle
        self.name = name
        self.data = data
        self.at = 0


class BodiesMachine(RuleBasedStateMachine):
    """After any change by either process, both see the objects of the reference model."""

    root: Path

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(dir=self.root))
        self.cluster = StoreCluster(self.directory)
        self.reference = Reference(PIECE)
        self.readers: list[OpenTransfer] = []
        self.uploads: list[OpenTransfer] = []
        self.written = 0
        self.writer_kills = 0
        self.restarts = 0

    @initialize()
    def start(self) -> None:
        """Starts with objects of every kind, so that most steps apply."""
        self.cluster.__enter__()
        self.put("local", "a", 20 * PIECE)
        self.put("remote", "b", 3 * PIECE)
        self.edit_blocks("local", "c", [PIECE, 1, 100, PIECE + 1], ())

    def front_end(self, side: str) -> LocalFrontEnd | HelperProcess:
        return self.cluster.local if side == "local" else self.cluster.remote

    def bytes_of(self, size: int) -> bytes:
        self.written += 1
        return noise(self.written, size)

    # Objects

    @rule(side=SIDES, name=NAMES, size=SIZES)
    def put(self, side: str, name: str, size: int) -> None:
        data = self.bytes_of(size)
        self.reference.put(name, data, self.front_end(side).call("put", name, data))

    @rule(side=SIDES, name=NAMES, size=SIZES, matches=st.booleans())
    def put_if_match(self, side: str, name: str, size: int, matches: bool) -> None:
        data = self.bytes_of(size)
        etag = self.reference.etag(name)
        etag_after = self.front_end(side).call("put", name, data, etag if matches else etag + 1)
        assert bool(etag_after) == matches
        if matches:
            self.reference.put(name, data, etag_after)

    @rule(side=SIDES, source=NAMES, copied_to=NAMES)
    def copy(self, side: str, source: str, copied_to: str) -> None:
        etag_after = self.front_end(side).call("copy", source, copied_to)
        assert bool(etag_after) == (source in self.reference.objects)
        if etag_after:
            self.reference.copy(source, copied_to, etag_after)

    @rule(side=SIDES, name=NAMES)
    def delete(self, side: str, name: str) -> None:
        assert self.front_end(side).call("delete", name) == (name in self.reference.objects)
        self.reference.objects.pop(name, None)

    @rule(side=SIDES, name=NAMES, sizes=BLOCK_SIZES)
    def stage(self, side: str, name: str, sizes: list[int]) -> None:
        blocks = [self.bytes_of(size) for size in sizes]
        self.front_end(side).call("stage", name, blocks)
        self.reference.stage(name, blocks)

    @rule(side=SIDES, name=NAMES, sizes=BLOCK_SIZES, places=st.lists(st.integers(0, 99)))
    def edit_blocks(self, side: str, name: str, sizes: list[int], places: Sequence[int]) -> None:
        """Keeps any of the blocks, in any order and any number of times, and adds to them."""
        self.stage(side, name, sizes)
        count = len(self.reference.blocks(name))
        keep = tuple(place % count for place in places) if count else ()
        etag_after = self.front_end(side).call("list_blocks", name, keep)
        self.reference.list_blocks(name, keep, etag_after)

    @rule(side=SIDES, name=NAMES, sizes=BLOCK_SIZES)
    def append_blocks(self, side: str, name: str, sizes: list[int]) -> None:
        self.edit_blocks(side, name, sizes, range(len(self.reference.blocks(name))))

    @rule(side=SIDES, name=NAMES)
    def get(self, side: str, name: str) -> None:
        assert self.front_end(side).call("get", name) == self.reference.data(name)

    # Long readers

    @precondition(lambda self: len(self.readers) < 4)
    @rule(side=SIDES, name=NAMES)
    def begin_read(self, side: str, name: str) -> None:
        handle = self.front_end(side).call("begin_read", name)
        data = self.reference.data(name)
        assert bool(handle) == (data is not None)
        if data is not None:
            self.readers.append(OpenTransfer(side, handle, name, data))

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def step_read(self, data: st.DataObject) -> None:
        reader = data.draw(st.sampled_from(self.readers))
        chunk = self.front_end(reader.side).call("step_read", reader.handle)
        assert chunk == reader.data[reader.at : reader.at + len(chunk)]
        reader.at += len(chunk)
        assert chunk or reader.at == len(reader.data)

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def finish_read(self, data: st.DataObject) -> None:
        self._finish(data.draw(st.sampled_from(self.readers)))

    def _finish(self, reader: OpenTransfer) -> None:
        self.readers.remove(reader)
        rest = self.front_end(reader.side).call("finish_read", reader.handle)
        assert rest == reader.data[reader.at :]

    # Uploads in flight

    @precondition(lambda self: len(self.uploads) < 3)
    @rule(side=SIDES, name=NAMES, size=SIZES)
    def begin_upload(self, side: str, name: str, size: int) -> None:
        data = self.bytes_of(size)
        handle = self.front_end(side).call("begin_upload", name, data)
        self.uploads.append(OpenTransfer(side, handle, name, data))

    @precondition(lambda self: self.uploads)
    @rule(data=st.data())
    def adopt_upload(self, data: st.DataObject) -> None:
        self._adopt(data.draw(st.sampled_from(self.uploads)))

    def _adopt(self, upload: OpenTransfer) -> None:
        self.uploads.remove(upload)
        etag_after = self.front_end(upload.side).call("adopt", upload.handle)
        self.reference.put(upload.name, upload.data, etag_after)

    @precondition(lambda self: self.uploads)
    @rule(data=st.data())
    def abandon_upload(self, data: st.DataObject) -> None:
        upload = data.draw(st.sampled_from(self.uploads))
        self.uploads.remove(upload)
        self.front_end(upload.side).call("abandon", upload.handle)

    # Maintenance

    @rule(side=SIDES)
    def collect(self, side: str) -> None:
        self.front_end(side).call("collect")

    @rule(side=SIDES, names=st.sets(NAMES), size=SIZES)
    def churn(self, side: str, names: set[str], size: int) -> None:
        """Replaces many objects, then runs maintenance everywhere: only what readers and uploads
        hold keeps its place."""
        for name in sorted(names):
            self.put(side, name, size)
        for front_end in (self.cluster.local, self.cluster.remote, self.cluster.local):
            front_end.call("tidy")

    @precondition(lambda self: self.restarts < RESTARTS_MAX)
    @rule()
    def restart_local(self) -> None:
        """Stops this process cleanly and starts another in its place."""
        self.restarts += 1
        for reader in [reader for reader in self.readers if reader.side == "local"]:
            self._finish(reader)
        self.uploads = [upload for upload in self.uploads if upload.side != "local"]
        self.cluster.reopen_local()

    @precondition(lambda self: self.writer_kills < WRITER_KILLS_MAX)
    @rule()
    def restart_writer(self) -> None:
        self.writer_kills += 1
        self.cluster.restart_writer()

    @invariant()
    def balanced(self) -> None:
        if self.written:
            self.cluster.require_balanced()

    def teardown(self) -> None:
        try:
            self._require_all_right()
        finally:
            self.cluster.__exit__(None, None, None)
            shutil.rmtree(self.directory)

    def _require_all_right(self) -> None:
        for reader in list(self.readers):
            self._finish(reader)
        for upload in list(self.uploads):
            self._adopt(upload)
        for front_end in (self.cluster.local, self.cluster.remote):
            for name in "abcd":
                assert front_end.call("get", name) == self.reference.data(name)
        self.cluster.require_clean()
        self._empty()
        self.cluster.require_clean()

    def _empty(self) -> None:
        """Checks that nothing remains when everything is deleted."""
        for name in {*self.reference.objects, *self.reference.staged}:
            if name in self.reference.staged:
                self.cluster.local.call("list_blocks", name, ())
            self.cluster.local.call("delete", name)
        # The other process is killed; this one finishes what it has begun.
        self.cluster.remote.kill()
        for _ in range(2):
            self.cluster.reopen_local()
            self.cluster.local.call("tidy")
        self.cluster.run(self.cluster.local.front_end.engine.read(require_empty, None))
        assert list((self.directory / "segments").iterdir()) == []


def run_machine(
    machine: Any, root: Path, examples: int, steps: int, *, derandomize: bool = True
) -> None:
    """Runs a machine, each example in its own directory below `root`."""
    machine.root = root
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=derandomize,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_bodies_match_the_reference(tmp_path: Path) -> None:
    run_machine(BodiesMachine, tmp_path, 15, 40)


@pytest.mark.long
def test_bodies_match_the_reference_in_long_runs(tmp_path: Path) -> None:
    run_machine(BodiesMachine, tmp_path, 250, 100, derandomize=False)
