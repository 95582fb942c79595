"""The checker finds every planted bug, and nothing if there is none."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Final

import pytest

from tests.history.command_line import main
from tests.history.events import NANOSECONDS, Crash, Refused, Run, ServerKill, Unknown, in_order
from tests.history.file.checker import ORDER, VERSIONS, check_history
from tests.history.file.contents import content_of, token_in
from tests.history.file.events import LOG, Done, FileSeen, History, Operation, Request, Verb
from tests.history.file.fake import Bug
from tests.history.file.scheduler import Simulation
from tests.history.file.service import SERVICE
from tests.history.file.workloads import (
    LEASES,
    OPEN_FILES,
    REGISTERS,
    SNAPSHOTS,
    TREE,
    WORKLOADS,
    Workload,
)

SEEDS = range(8)
WHERE: Final[dict[Bug, Workload]] = {
    Bug.STALE_LIST: TREE,
    Bug.ACKNOWLEDGED_LOST: TREE,
    Bug.NOT_EMPTY_DELETED: TREE,
    Bug.LOST_BELOW: TREE,
    Bug.CREATED_IN_OLD_PLACE: TREE,
    Bug.LEASE_IGNORED: LEASES,
    Bug.STALE_LEASE_ACCEPTED: LEASES,
    Bug.TWO_HOLDERS: LEASES,
    Bug.LEASE_FORGOTTEN: LEASES,
    Bug.LATE_SNAPSHOT: SNAPSHOTS,
    Bug.SPLIT_SNAPSHOT: SNAPSHOTS,
    Bug.SNAPSHOT_LOST: SNAPSHOTS,
    Bug.FLUSH_FORGOTTEN: OPEN_FILES,
    Bug.WRITE_THROUGH_FORGOTTEN: OPEN_FILES,
    Bug.READ_BUT_UNDONE: OPEN_FILES,
    Bug.SMB_WRITE_HIDDEN: OPEN_FILES,
    Bug.SNAPSHOT_BEFORE_FLUSH: OPEN_FILES,
}
"""The workload in which a bug is searched, if it is not that of registers."""


class CrashingSimulation(Simulation):
    """A simulation with many kills."""

    server_seconds_max = 5.0


def checks_that_find(bug: Bug | None, workload: Workload, seed: int) -> set[str]:
    simulation = CrashingSimulation if workload is OPEN_FILES else Simulation
    history = simulation(seed, {"share": workload}, operations=400, bug=bug).run()
    return {finding.check for finding in check_history(history)}


@pytest.mark.parametrize("bug", Bug)
def test_planted_bugs(bug: Bug) -> None:
    found = [checks_that_find(bug, WHERE.get(bug, REGISTERS), seed) for seed in SEEDS]
    assert set().union(*found) >= ({VERSIONS} if bug is Bug.ETAG_REUSED else {ORDER})
    assert sum(map(bool, found)) >= 2


@pytest.mark.parametrize("name", WORKLOADS)
def test_no_bugs(name: str) -> None:
    for seed in range(15):
        assert checks_that_find(None, WORKLOADS[name], seed) == set()


# Handwritten histories, with times in seconds


def operation(
    began: float, ended: float, request: Request, outcome: Done | Refused | Unknown
) -> Operation:
    return Operation(0, request, int(began * NANOSECONDS), int(ended * NANOSECONDS), outcome)


def do(
    began: float,
    verb: Verb,
    path: str = "f",
    target: str = "",
    outcome: Done | Refused | Unknown | None = None,
    **fields: str,
) -> Operation:
    """Returns an operation of half a second."""
    request = Request(verb, "share", path, target, **fields)  # type: ignore[arg-type]
    return operation(began, began + 0.5, request, outcome or Done())


def get(began: float, path: str, content: str, snapshot: str = "") -> Operation:
    seen = Done(f"e{content}", FileSeen(content, "m"))
    return do(began, Verb.GET, path, outcome=seen, snapshot=snapshot)


def smb_read(began: float, content: str) -> Operation:
    return do(began, Verb.SMB_READ, outcome=Done(file=FileSeen(content)))


def create(began: float, path: str) -> Operation:
    return do(began, Verb.CREATE, path, token="m")


def missing(began: float, path: str, code: str = "ResourceNotFound") -> Operation:
    return do(began, Verb.GET, path, outcome=Refused(code))


def found(
    *operations: Operation, kills: tuple[ServerKill, ...] = (), crashes: tuple[Crash, ...] = ()
) -> set[str]:
    history = History(Run("hand", 0), in_order(operations), kills, crashes)
    return {finding.check for finding in check_history(history)}


def test_a_renamed_file_has_one_name() -> None:
    renamed = create(0, "f"), do(1, Verb.RENAME, "f", "g")
    assert not found(*renamed, missing(2, "f"), get(3, "g", ""))
    assert found(*renamed, get(2, "f", ""), get(3, "g", "")) == {ORDER}
    assert found(*renamed, missing(2, "f"), missing(3, "g")) == {ORDER}


def test_a_lost_update() -> None:
    puts = create(0, "f"), do(1, Verb.PUT, token="1"), do(2, Verb.PUT, token="2")
    assert not found(*puts, get(3, "f", "2"))
    assert found(*puts, get(3, "f", "1")) == {ORDER}


def test_unknown_writes() -> None:
    lost = create(0, "f"), do(1, Verb.PUT, token="1", outcome=Unknown())
    assert not found(*lost, get(2, "f", ""), get(3, "f", "1"))
    assert found(*lost, get(2, "f", "1"), get(3, "f", "")) == {ORDER}
    kill = ServerKill(int(1.6 * NANOSECONDS), int(1.7 * NANOSECONDS))
    assert found(*lost, get(2, "f", ""), get(3, "f", "1"), kills=(kill,)) == {ORDER}


def test_a_directory_moves_with_what_is_in_it() -> None:
    made = do(0, Verb.CREATE_DIRECTORY, "d"), create(1, "d/f"), do(2, Verb.PUT, "d/f", token="1")
    moved = do(3, Verb.RENAME_DIRECTORY, "d", "e")
    gone = missing(4, "d/f", "ParentNotFound")
    assert not found(*made, moved, gone, get(5, "e/f", "1"))
    assert found(*made, moved, gone, missing(5, "e/f")) == {ORDER}
    late = do(4, Verb.CREATE, "d/f", token="n")
    assert found(*made, moved, late) == {ORDER}
    assert found(*made, do(3, Verb.DELETE_DIRECTORY, "d")) == {ORDER}


def test_a_snapshot_is_one_cut() -> None:
    made = create(0, "f"), create(1, "g")
    taken = operation(2, 9, Request(Verb.SNAPSHOT, "share"), Done(snapshot="s"))
    puts = do(3, Verb.PUT, "f", token="1"), do(4, Verb.PUT, "g", token="2")
    for f, g in (("", ""), ("1", ""), ("1", "2")):
        assert not found(*made, taken, *puts, get(10, "f", f, "s"), get(11, "g", g, "s"))
    assert found(*made, taken, *puts, get(10, "f", "", "s"), get(11, "g", "2", "s")) == {ORDER}


def test_a_crash_undoes_only_what_was_not_flushed() -> None:
    written = create(0, "f"), *(do(n, Verb.SMB_WRITE, token=str(n)) for n in (1, 2, 3))
    flush = do(1.6, Verb.SMB_FLUSH)
    crash = Crash(4 * NANOSECONDS, 5 * NANOSECONDS)
    for token in ("", "1", "2", "3"):
        assert not found(*written, smb_read(6, token), crashes=(crash,))
    assert found(*written, flush, smb_read(6, ""), crashes=(crash,)) == {ORDER}
    assert found(*written, smb_read(6, "2")) == {ORDER}
    assert found(*written, smb_read(6, "2"), get(7, "f", "3"), crashes=(crash,)) == {ORDER}
    assert found(*written, get(3.6, "f", "3"), smb_read(6, "2"), crashes=(crash,)) == {ORDER}


def test_an_old_lease_does_not_allow_writes() -> None:
    leased = create(0, "f"), do(1, Verb.ACQUIRE, token="a")
    broken = do(2, Verb.BREAK), do(3, Verb.ACQUIRE, token="b")
    assert not found(*leased, *broken, do(4, Verb.PUT, token="1", lease="b"))
    assert found(*leased, *broken, do(4, Verb.PUT, token="1", lease="a")) == {ORDER}
    assert found(*leased, do(2, Verb.ACQUIRE, token="b")) == {ORDER}
    assert found(*leased, do(2, Verb.PUT, token="1")) == {ORDER}


def test_etags_name_versions() -> None:
    put = do(1, Verb.PUT, token="1", outcome=Done("e"))
    assert not found(create(0, "f"), put)
    again = do(2, Verb.PUT, token="2", outcome=Done("e"))
    assert found(create(0, "f"), put, again) == {VERSIONS}


def test_contents() -> None:
    one, two = content_of("1-1", 2_048), content_of("1-2", 2_048)
    assert (token_in(one), token_in(bytes(2_048))) == ("1-1", "")
    assert token_in(one[:1_024] + two[1_024:]).startswith("damaged")
    assert token_in(one[:1_024] + bytes(1_024)).startswith("damaged")


def test_replay(tmp_path: Path) -> None:
    for bug, status in ((None, 0), (Bug.LOST_UPDATE, 1)):
        history = Simulation(1, WORKLOADS, bug=bug).run()
        path = tmp_path / "history.jsonl"
        LOG.write_history(path, history)
        assert LOG.read_history(path) == history
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            assert main(SERVICE, ["replay", str(path)]) == status
        assert ("VIOLATION (order) of share" in printed.getvalue()) == bool(status)


def test_seeds() -> None:
    one, same, other = (Simulation(seed, WORKLOADS).run() for seed in (1, 1, 2))
    assert one == same
    assert one.operations != other.operations
