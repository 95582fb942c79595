"""Moves of an account that lose their lock, as after a long pause, while other commands use it."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from etagere.data_directory import CannotUse
from etagere.jobs.moves import task_of
from etagere.node.account_move import endpoints_of, move_account
from etagere.node.account_move_steps import Step
from etagere.postgresql import SCHEMA
from etagere.settings.loading import load
from tests.clusters.cells import Cell
from tests.clusters.moving import KEY, add_account, check, move, move_until, run_move
from tests.sdk.blob.clients import blob_service
from tests.sdk.queue.clients import queue_service
from tests.server import unique

pytestmark = pytest.mark.long


@pytest.fixture
def account(pair: tuple[Cell, Cell]) -> str:
    """An account in the first cell, with a container."""
    name = unique("mine").replace("-", "")
    add_account(pair[0], name)
    blob_service(pair[0].nodes[0], name, KEY).create_container("box")
    return name


def _lose_lock(account: str, source: Cell) -> None:
    """Makes a move lose its lock, as if its process had been paused for long."""
    with psycopg.connect(source.dsn, options=f"-c search_path={SCHEMA}") as connection:
        connection.execute(
            "UPDATE cluster_tasks SET holder = NULL WHERE name = %s", (task_of(account),)
        )


def _move_with_interruption(
    account: str, source: Cell, target: Cell, step: Step, interruption: Callable[[], object]
) -> None:
    """Moves an account. After a step, something else is done before it goes on."""

    def report(done: Step) -> None:
        if done is step:
            interruption()

    files = [load({"config": str(cell.configuration())}, {}) for cell in (source, target)]
    move_account(account, endpoints_of(*files), keep_seconds=0, report=report)


def _write(cell: Cell, account: str, name: str) -> None:
    blobs = blob_service(cell.nodes[0], account, KEY)
    blobs.get_blob_client("box", name).upload_blob(name.encode() * 20_000)


def _require_blob(pair: tuple[Cell, Cell], account: str, name: str) -> None:
    """Requires that an account is served through both cells."""
    for cell in pair:
        blob = blob_service(cell.nodes[0], account, KEY).get_blob_client("box", name)
        assert blob.download_blob().readall() == name.encode() * 20_000


@pytest.mark.parametrize("step", [Step.FROZEN, Step.COPIED, Step.INCOMING])
def test_a_move_that_is_cancelled_while_it_runs(
    pair: tuple[Cell, Cell], account: str, step: Step
) -> None:
    one, two = pair

    def cancel() -> None:
        _lose_lock(account, one)
        done = run_move(account, one, two, "--cancel")
        assert done.returncode == 0, done.stderr
        _write(one, account, "later")

    with pytest.raises(CannotUse, match="was cancelled"):
        _move_with_interruption(account, one, two, step, cancel)
    _require_blob(pair, account, "later")
    move(account, one, two)
    _require_blob(pair, account, "later")
    for cell in pair:
        assert check(cell) == ""


def test_a_move_that_is_replaced_while_it_runs(pair: tuple[Cell, Cell], account: str) -> None:
    one, two = pair

    def replace() -> None:
        _lose_lock(account, one)
        assert run_move(account, one, two, "--cancel").returncode == 0
        _write(one, account, "later")
        move_until(account, one, two, Step.FROZEN)

    with pytest.raises(CannotUse, match="was cancelled"):
        _move_with_interruption(account, one, two, Step.COPIED, replace)
    _require_blob(pair, account, "later")
    move(account, one, two)
    _require_blob(pair, account, "later")
    for cell in pair:
        assert check(cell) == ""


def test_an_account_that_has_returned_meanwhile(pair: tuple[Cell, Cell], account: str) -> None:
    one, two = pair

    def return_account() -> None:
        _lose_lock(account, one)
        move(account, one, two)
        move(account, two, one)
        _write(one, account, "later")

    with pytest.raises(CannotUse, match="is not in cell two"):
        _move_with_interruption(account, one, two, Step.SERVED, return_account)
    listed = one.command("cell", "accounts").stdout.splitlines()
    assert [line.split() for line in listed if line.startswith(account)] == [[account, "one"]]
    _require_blob(pair, account, "later")


def test_an_account_leaves_a_cell_while_another_arrives(
    pair: tuple[Cell, Cell], account: str
) -> None:
    one, two = pair
    other = unique("other").replace("-", "")
    add_account(two, other)
    blob_service(two.nodes[0], other, KEY).create_container("box")
    _write(two, other, "before")
    # More than is sent at once, so that the target has received some before it has all.
    queue = queue_service(one.nodes[0], account, KEY).create_queue("messages")
    for _ in range(100):
        queue.send_message("m" * 60_000)
    _move_with_interruption(account, one, two, Step.COPIED, lambda: move(other, two, one))
    _require_blob(pair, other, "before")
