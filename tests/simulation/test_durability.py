"""Durability by fsync: the order of system calls, judged on traces of real runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from etagere.bodies.segments import (
    MoveExtents,
    OpenSegment,
    Relocation,
    SegmentNumber,
    move_extents,
    open_segment,
    retire_segment,
)
from etagere.engine import wire
from etagere.engine.interface import registered
from etagere.engine.records import ENCODE
from etagere.model.bodies import Body, Piece
from tests.bodies.objects import PutObject, put_object
from tests.simulation import durability_workload, syscalls
from tests.simulation.syscalls import Judgement, judge, parse

STORE = "/data/store"
DATABASE = f"{STORE}/ledger.sqlite3"
LOG = f"{DATABASE}-wal"
SEGMENT = f"{STORE}/segments/00000001.seg"


# Hand-written traces


def quoted(data: bytes) -> str:
    return '"' + "".join(f"\\{byte:03o}" for byte in data) + '"'


def created(path: str) -> str:
    return f'openat(AT_FDCWD</>, "{path}", O_RDWR|O_CREAT|O_CLOEXEC, 0600) = 5<{path}>'


def made_directory(path: str) -> str:
    return f'mkdir("{path}", 0700) = 0'


def written(path: str, offset: int = 0, length: int = 8) -> str:
    return f"pwrite64(5<{path}>, {quoted(b'x' * length)}, {length}, {offset}) = {length}"


def synced(path: str) -> str:
    return f"fdatasync(5<{path}>) = 0"


def unlinked(path: str) -> str:
    return f'unlink("{path}") = 0'


def commanded(operation: Any, command: Any, request_id: int = 1) -> str:
    frame = wire.encode_request(request_id, registered(operation).wire_name, ENCODE(command))
    return f"sendto(7<socket:[70]>, {quoted(frame)}, {len(frame)}, 0, NULL, 0) = {len(frame)}"


def answered(request_id: int = 1, outcome: wire.Outcome = wire.Outcome.RESULT) -> str:
    frame = wire.encode_answer(request_id, outcome, ENCODE(True))
    return f"sendto(8<socket:[80]>, {quoted(frame)}, {len(frame)}, 0, NULL, 0) = {len(frame)}"


CONNECTED = [
    'connect(7<socket:[70]>, {sa_family=AF_UNIX, sun_path="/proc/self/fd/9/writer.sock"}, 30) = 0',
    "accept4(6<socket:[60]>, {sa_family=AF_UNIX}, [110 => 2], SOCK_CLOEXEC) = 8<socket:[80]>",
]
FILES = [
    *(made_directory(path) for path in (STORE, f"{STORE}/segments")),
    *(created(path) for path in (DATABASE, LOG, SEGMENT)),
]
DIRECTORIES = ["/data", STORE, f"{STORE}/segments"]
READY = [*CONNECTED, *FILES, *map(synced, DIRECTORIES)]


def adopted(offset: int = 0, length: int = 8) -> str:
    body = Body(b"i" * 16, length, 0, pieces=(Piece(1, offset, length),))
    return commanded(put_object, PutObject("name", body))


def judged(*calls: str) -> Judgement:
    lines = [f"100 1700000000.000000 {call}\n" for call in calls]
    return judge(parse(lines), Path(STORE))


def complaint(*calls: str) -> str:
    """Returns the only complaint."""
    (violation,) = judged(*READY, *calls).violations
    return violation


def test_a_server_that_syncs_everything_passes() -> None:
    judgement = judged(
        *READY,
        *(written(SEGMENT), synced(SEGMENT), adopted()),
        *(written(LOG), synced(LOG), answered()),
        *(written(DATABASE), synced(DATABASE), written(LOG), synced(LOG), answered()),
        *(commanded(retire_segment, SegmentNumber(1)), answered(), unlinked(SEGMENT)),
        *(written(DATABASE), synced(DATABASE), unlinked(LOG)),
    )
    assert judgement.violations == []
    kinds = ("piece", "answer", "command", "page", "reset", "removal")
    assert {kind: judgement.count(kind) for kind in kinds} == {
        "piece": 1,
        "answer": 3,
        "command": 2,
        "page": 2,
        "reset": 3,
        "removal": 1,
    }


def test_a_response_before_the_log_is_synced() -> None:
    assert "ledger.sqlite3-wal has 1 unsynced writes" in complaint(written(LOG), answered())


def test_a_response_after_a_failed_sync() -> None:
    failed = f"fdatasync(5<{LOG}>) = -1 EIO (Input/output error)"
    assert "ledger.sqlite3-wal has 1 unsynced writes" in complaint(written(LOG), failed, answered())


def test_a_refusal_is_a_response_too() -> None:
    refused = answered(outcome=wire.Outcome.REFUSED)
    assert "when an answer is sent" in complaint(written(LOG), refused)


def test_a_sync_makes_durable_only_what_was_written_when_it_began() -> None:
    lines = [f"100 1700000000.0 {call}" for call in READY]
    lines += [
        f"100 1700000000.1 pwrite64(5<{LOG}>, {quoted(b'early')}, 5, 0) = 5",
        f"100 1700000000.1 fdatasync(5<{LOG}> <unfinished ...>",
        f"101 1700000000.1 pwrite64(5<{LOG}>, {quoted(b'late')}, 4, 5) = 4",
        "100 1700000000.1 <... fdatasync resumed>) = 0",
        f"100 1700000000.1 {answered()}",
    ]
    (violation,) = judge(parse(lines), Path(STORE)).violations
    assert "ledger.sqlite3-wal has 1 unsynced writes" in violation


def test_a_sync_counts_from_its_end() -> None:
    lines = [f"100 1700000000.0 {call}" for call in [*READY, written(LOG)]]
    lines += [
        f"101 1700000000.1 fsync(5<{LOG}> <unfinished ...>",
        f"100 1700000000.1 {answered()}",
        "101 1700000000.1 <... fsync resumed>) = 0",
    ]
    assert len(judge(parse(lines), Path(STORE)).violations) == 1


@pytest.mark.parametrize(
    ("directory", "complaints"),
    [
        ("/data", {f"the name of {STORE}"}),
        (STORE, {"the name of ledger.sqlite3", "the name of ledger.sqlite3-wal"}),
    ],
)
def test_a_response_before_the_names_of_the_ledger_are_synced(
    directory: str, complaints: set[str]
) -> None:
    others = [synced(path) for path in DIRECTORIES if path != directory]
    judgement = judged(*CONNECTED, *FILES, *others, written(LOG), synced(LOG), answered())
    assert {text.split("] ")[1].split(" is not synced")[0] for text in judgement.violations} == (
        complaints
    )


def test_the_name_of_a_recreated_log_must_be_synced() -> None:
    again = [unlinked(LOG), created(LOG), written(LOG), synced(LOG), answered()]
    assert "the name of ledger.sqlite3-wal is not synced" in complaint(*again)


def test_a_body_that_is_not_synced() -> None:
    assert "00000001.seg has 1 unsynced writes when put_object" in complaint(
        written(SEGMENT), adopted()
    )


def test_only_referenced_bytes_must_be_synced() -> None:
    calls = [written(SEGMENT), synced(SEGMENT), written(SEGMENT, 8), adopted()]
    assert judged(*READY, *calls).violations == []
    assert "unsynced" in complaint(
        written(SEGMENT), synced(SEGMENT), written(SEGMENT, 4), adopted()
    )


def test_an_incomplete_body() -> None:
    assert "not written from 8 on" in complaint(written(SEGMENT), synced(SEGMENT), adopted(0, 9))


def test_a_command_without_bytes() -> None:
    opening = commanded(open_segment, OpenSegment(b"o" * 16))
    assert judged(*READY, written(SEGMENT), opening).violations == []


def test_a_copy_that_is_not_synced() -> None:
    moved = commanded(move_extents, MoveExtents((Relocation(7, 0, 1, 0),)))
    assert "unsynced writes when move_extents" in complaint(written(SEGMENT), moved)


@pytest.mark.parametrize("directory", [STORE, f"{STORE}/segments"])
def test_a_body_in_a_file_whose_name_is_not_synced(directory: str) -> None:
    others = [synced(path) for path in DIRECTORIES if path != directory]
    calls = [written(SEGMENT), synced(SEGMENT), adopted()]
    (violation,) = judged(*CONNECTED, *FILES, *others, *calls).violations
    assert "the name of segments" in violation


def test_a_database_written_before_the_log_is_synced() -> None:
    assert "ledger.sqlite3-wal has 1 unsynced writes when ledger.sqlite3 is written" in complaint(
        written(LOG), written(DATABASE)
    )


@pytest.mark.parametrize(
    "reset", [written(LOG), unlinked(LOG), f"ftruncate(5<{LOG}>, 0) = 0"], ids=lambda call: call[:6]
)
def test_a_log_restarted_before_the_database_is_synced(reset: str) -> None:
    calls = [written(LOG), synced(LOG), written(DATABASE), reset]
    assert "ledger.sqlite3 has 1 unsynced writes when ledger.sqlite3-wal is" in complaint(*calls)


@pytest.mark.parametrize(
    "before",
    [
        [],
        [commanded(retire_segment, SegmentNumber(1))],
        [commanded(retire_segment, SegmentNumber(1)), answered(outcome=wire.Outcome.FAULT)],
        [commanded(retire_segment, SegmentNumber(2)), answered()],
    ],
)
def test_a_segment_removed_before_its_retirement_is_acknowledged(before: list[str]) -> None:
    assert "removed before its retirement" in complaint(*before, unlinked(SEGMENT))


def test_unknown_system_calls() -> None:
    assert "nothing is known of rename" in complaint(f'rename("{LOG}", "{STORE}/other") = 0')


# Traces of real runs


def run(directory: Path, plant: str = "") -> Judgement:
    """Judges the workload on a new directory below a new directory."""
    if reason := syscalls.why_not():
        pytest.skip(f"system calls cannot be watched: {reason}")
    store, trace = directory / "new" / "store", directory / "trace"
    module = durability_workload.__name__
    root = Path(__file__).parent.parent.parent
    paths = os.pathsep.join([str(root / "src"), str(root)])
    command = [sys.executable, "-m", module, str(store), *([plant] if plant else [])]
    syscalls.watch(command, trace, {**os.environ, "PYTHONPATH": paths})
    with trace.open(encoding="ascii") as lines:
        return judge(parse(lines), store)


def test_everything_is_synced_before_it_is_acknowledged(tmp_path: Path) -> None:
    judgement = run(tmp_path)
    assert judgement.violations == []
    # Every phase must have had something to judge.
    phases = ("inline", "ledger", "segments", "blocks", "files", "checkpoint", "killed", "collect")
    for phase in phases:
        assert judgement.count("answer", phase), phase
    assert judgement.count("answer", "restart")
    for phase in ("segments", "blocks", "files", "killed", "restart"):
        assert judgement.count("piece", phase), phase
    assert judgement.count("segment", "segments") > 2
    assert judgement.count("relocation", "collect")
    assert judgement.count("removal", "collect")
    assert judgement.count("page", "checkpoint")
    assert judgement.count("reset", "checkpoint")
    assert judgement.count("reset", "stop")


@pytest.mark.parametrize(
    ("plant", "complaint"),
    [
        ("no-body-sync", "unsynced writes when put_object is sent"),
        ("no-body-sync", "unsynced writes when put_range is sent"),
        ("late-body-sync", "unsynced writes when put_object is sent"),
        ("no-name-sync", "the name of segments/00000001.seg is not synced"),
        ("early-removal", "is removed before its retirement is durable"),
        ("not-durable", "ledger.sqlite3-wal has"),
        ("sync-seldom", "unsynced writes when an answer is sent"),
    ],
)
def test_planted_bugs_are_detected(tmp_path: Path, plant: str, complaint: str) -> None:
    violations = run(tmp_path, plant).violations
    assert [text for text in violations if complaint in text], violations[:5]
