"""Moves of accounts between two cells."""

from __future__ import annotations

import contextlib
import re
from functools import partial
from pathlib import Path

import pytest
from azure.core.exceptions import HttpResponseError

from etagere.node.account_move_steps import Step
from tests.clusters.account_users import KINDS, prepare
from tests.clusters.cells import Cell, stopped_cells
from tests.clusters.inventory import contents, fill
from tests.clusters.moved_accounts import copy_to_other, fill_more, settings
from tests.clusters.moving import KEY, add_account, check, has_purged, move, move_until, run_move
from tests.clusters.postgresql import PostgresServer
from tests.clusters.s3 import BUCKET, S3Server
from tests.sdk.blob.clients import blob_service
from tests.sdk.file.clients import file_service
from tests.server import eventually, unique
from tests.test_cli import is_one_line


@pytest.fixture
def account(pair: tuple[Cell, Cell]) -> str:
    """An empty account in the first cell."""
    name = unique("mine").replace("-", "")
    add_account(pair[0], name)
    return name


def test_an_account_that_nobody_uses(pair: tuple[Cell, Cell], account: str) -> None:
    one, two = pair
    fill(one.nodes[0], account, KEY)
    before = contents(one.nodes[0], account, KEY)
    done = run_move(account, one, two, "--keep", "0")
    assert re.fullmatch(
        rf"account {account} is in cell two: \d+ records and [\d.]+ MiB copied, read-only for "
        r"[\d.]+ s\n",
        done.stdout,
    ), done
    assert "etagere: the account map names the target" in done.stderr
    assert contents(two.nodes[0], account, KEY) == before
    for cell in pair:
        assert check(cell) == ""


def test_an_account_that_is_used(pair: tuple[Cell, Cell], account: str) -> None:
    one, two = pair
    nodes = [one.nodes[0], two.nodes[0]]
    prepare(nodes[0], account)
    users = [kind(nodes, account) for kind in KINDS]
    for user in users:
        user.start()
    try:
        for source, target in ((one, two), (two, one)):
            move(account, source, target)
            for user in users:
                user.wait_for_writes()
    finally:
        for user in users:
            user.stop()
    for cell in pair:
        assert check(cell) == ""


@pytest.mark.long
def test_moves_that_are_refused(pair: tuple[Cell, Cell], account: str, tmp_path: Path) -> None:
    one, two = pair
    for name, source, target, words, message in (
        ("unknown", one, two, (), "account unknown is not in cell one"),
        (account, two, one, (), f"account {account} is not in cell two"),
        (account, one, one, (), "are the same cell"),
        (account, one, two, ("--cell", "two"), "is that of cell one"),
        (account, one, two, ("--bodies", str(tmp_path)), "are not in"),
    ):
        done = run_move(name, source, target, *words)
        assert done.returncode == 2, done
        assert message in done.stderr
        assert is_one_line(done.stderr), done.stderr
    blob_service(one.nodes[0], account, KEY).create_container("still-writable")


@pytest.mark.long
def test_a_node_that_does_not_know_of_cells(
    postgresql_server: PostgresServer, tmp_path: Path
) -> None:
    """It has run since before the cluster became a cell, and does not check for frozen accounts."""
    with stopped_cells(postgresql_server, tmp_path, "one", "two") as (one, two):
        of_cell, one.variables = one.variables, {}
        old = one.node()
        old.start()
        one.variables = of_cell
        for cell in (one, two):
            cell.node().start()
        add_account(one, "mine")

        def is_refused() -> bool:
            done = run_move("mine", one, two, "--keep", "0")
            expected = "node one-1 of cell one was started without --account-map and --cell"
            return done.returncode == 2 and expected in done.stderr

        assert is_refused()
        assert one.command("node", "drain", "one-1").returncode == 0
        assert is_refused()  # it still serves requests
        old.stop()
        assert is_refused()  # for others, it might only be paused
        assert one.command("node", "forget", "one-1").returncode == 0
        assert run_move("mine", one, two, "--keep", "0").returncode == 0


@pytest.mark.long
def test_a_target_with_nodes_that_do_not_know_of_cells(
    postgresql_server: PostgresServer, tmp_path: Path
) -> None:
    """They would serve the account before it is handed over."""
    with stopped_cells(postgresql_server, tmp_path, "one", "two") as (one, two):
        of_cell, two.variables = two.variables, {}
        two.node().start()
        two.variables = of_cell
        one.node().start()
        add_account(one, "mine")
        done = run_move("mine", one, two)
        assert "is not a cell yet" in done.stderr
        two.node().start()
        done = run_move("mine", one, two)
        assert "node two-1 of cell two was started without" in done.stderr


@pytest.mark.long
def test_another_account_of_the_same_name(
    postgresql_server: PostgresServer, tmp_path: Path
) -> None:
    """A command for the one does not remove data of the other."""
    with stopped_cells(postgresql_server, tmp_path, "one", "two", "three") as (one, two, three):
        for cell in (one, two):
            cell.node().start()
        add_account(one, "mine")
        of_cell, three.variables = three.variables, {}
        add_account(three, "mine")  # before it is a cell
        three.variables = of_cell
        three.node().start()
        fill(one.nodes[0], "mine", KEY)
        before = contents(one.nodes[0], "mine", KEY)
        move_until("mine", one, two, Step.INCOMING)
        for words in ((), ("--cancel",)):
            done = run_move("mine", three, two, *words)
            assert done.returncode == 2, done
            assert "mine is moving from cell one to two" in done.stderr
        move("mine", one, two)
        assert contents(two.nodes[0], "mine", KEY) == before
        # Data of a move that was cancelled is replaced by that of a later move from elsewhere.
        move_until("mine", two, one, Step.INCOMING)
        assert run_move("mine", two, three, "--cancel").returncode == 2
        assert run_move("mine", two, one, "--cancel").returncode == 0
        move("mine", two, one)
        assert contents(one.nodes[0], "mine", KEY) == before


@pytest.mark.long
def test_an_account_with_something_of_every_kind(pair: tuple[Cell, Cell], account: str) -> None:
    one, two = pair
    other = unique("other").replace("-", "")
    add_account(one, other)
    fill(one.nodes[0], account, KEY)
    fill_more(one, account)
    copy_to_other(one, account, other)
    before = contents(one.nodes[0], account, KEY), settings(one, account)
    others = contents(one.nodes[0], other, KEY)
    move(account, one, two)
    assert (contents(two.nodes[0], account, KEY), settings(two, account)) == before
    for cell in pair:
        assert check(cell) == ""
    assert contents(one.nodes[0], other, KEY) == others
    # What was copied is the account's own.
    move(other, one, two)
    assert contents(two.nodes[0], other, KEY) == others
    move(account, two, one)
    assert (contents(one.nodes[0], account, KEY), settings(one, account)) == before
    files = file_service(one.nodes[0], account, KEY)
    (deleted,) = [each for each in files.list_shares(include_deleted=True) if each.deleted]
    restored = files.undelete_share("kept", str(deleted.version))
    assert restored.get_file_client("f").download_file().readall() == b"kept" * 20_000
    for cell in pair:
        eventually(partial(has_purged, cell), "the purge of what was deleted")
        assert check(cell) == ""


@pytest.mark.long
def test_bodies_in_an_object_store(
    postgresql_server: PostgresServer, s3_store: S3Server, tmp_path: Path
) -> None:
    with stopped_cells(postgresql_server, tmp_path, "one", "two") as (one, two):
        two.bodies = f"s3://{BUCKET}/{unique('cell')}"
        for cell in (one, two):
            cell.variables |= s3_store.environment
            cell.node().start()
        add_account(one, "mine")
        fill(one.nodes[0], "mine", KEY, bodies=40)
        before = contents(one.nodes[0], "mine", KEY)
        move("mine", one, two)
        assert contents(two.nodes[0], "mine", KEY) == before
        move("mine", two, one)
        assert contents(one.nodes[0], "mine", KEY) == before
        for cell in (one, two):
            assert check(cell) == ""
        for segment in (Path(one.bodies) / "segments").iterdir():
            data = bytearray(segment.read_bytes())
            data[len(data) // 2] ^= 1
            segment.write_bytes(data)
        done = run_move("mine", one, two)
        assert done.returncode == 2
        assert "1 extents are damaged, and the account was not moved" in done.stderr
        blob_service(one.nodes[0], "mine", KEY).create_container("still-writable")


_RECOVERY_SECONDS_MAX = 60.0
"""Longer than the ten seconds for which a process that was killed is considered alive."""
_BEFORE_HANDING_OVER = (Step.BYTES_COPIED, Step.FROZEN, Step.COPIED, Step.INCOMING)


@pytest.mark.long
@pytest.mark.parametrize("step", list(Step))
def test_a_move_that_was_killed_is_continued(
    pair: tuple[Cell, Cell], account: str, step: Step
) -> None:
    one, two = pair
    fill(one.nodes[0], account, KEY, long_bytes=100_000)
    before = contents(one.nodes[0], account, KEY)
    move_until(account, one, two, step)
    moved = move(account, one, two)
    if step is not Step.INCOMING:  # then, a node may have cancelled the move before it is continued
        assert bool(moved.records) == (step in _BEFORE_HANDING_OVER)
    assert contents(two.nodes[0], account, KEY) == before
    for cell in pair:
        assert check(cell) == ""


@pytest.mark.long
@pytest.mark.parametrize("step", _BEFORE_HANDING_OVER)
def test_a_move_that_was_killed_is_cancelled(
    pair: tuple[Cell, Cell], account: str, step: Step
) -> None:
    one, two = pair
    fill(one.nodes[0], account, KEY, long_bytes=100_000)
    before = contents(one.nodes[0], account, KEY)
    move_until(account, one, two, step)
    done = run_move(account, one, two, "--cancel")
    assert done.stdout == f"account {account} stays in cell one\n", done.stderr
    assert contents(one.nodes[0], account, KEY) == before
    again = blob_service(one.nodes[0], account, KEY).create_container("again")
    again.upload_blob("b", b"b")
    move(account, one, two)
    for cell in pair:
        assert check(cell) == ""


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(step, marks=() if step in (Step.FROZEN, Step.MOVED) else pytest.mark.long)
        for step in Step
    ],
)
def test_nodes_end_a_move_that_was_killed(
    pair: tuple[Cell, Cell], account: str, step: Step
) -> None:
    """Without a further command, the account is where it was, or in the other cell."""
    one, two = pair
    fill(one.nodes[0], account, KEY, long_bytes=100_000)
    before = contents(one.nodes[0], account, KEY)
    move_until(account, one, two, step)
    blobs = blob_service(one.nodes[0], account, KEY)

    def is_writable() -> bool:
        with contextlib.suppress(HttpResponseError):
            blobs.create_container("later")
            return True
        return False

    eventually(is_writable, "writes", _RECOVERY_SECONDS_MAX)
    blobs.delete_container("later")
    name = "one" if step in _BEFORE_HANDING_OVER else "two"

    def is_recorded() -> bool:
        listed = one.command("cell", "accounts").stdout.splitlines()
        return [account, name] in [line.split() for line in listed]

    eventually(is_recorded, "the entry of the map", _RECOVERY_SECONDS_MAX)
    for cell in pair:
        assert contents(cell.nodes[0], account, KEY) == before
    source, target = (one, two) if name == "one" else (two, one)
    move(account, source, target)
    assert contents(target.nodes[0], account, KEY) == before
    for cell in pair:
        assert check(cell) == ""
