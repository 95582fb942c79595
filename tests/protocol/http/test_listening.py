"""Distribution of new connections over the front ends."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import pytest

from etagere.protocol.connections import listening
from etagere.protocol.connections.listening import Listener, may_accept
from etagere.protocol.connections.pool import ConnectionPlace, ConnectionPool
from etagere.protocol.connections.sharing import FrontEndShare, FrontEndTable
from tests.loops import until
from tests.protocol.http.harness import on_loops

NEVER = 1_000.0


@pytest.mark.parametrize(
    ("own", "least", "accepts"),
    [
        (0, 0, True),
        (1, 0, False),
        (3, 4, True),
        (8, 8, True),
        (9, 8, True),
        (10, 8, False),
        (900, 800, True),
        (901, 800, False),
    ],
)
def test_whether_a_front_end_accepts(own: int, least: int, accepts: bool) -> None:
    assert may_accept(own, least) is accepts


class ListenerFixture:
    """One front end beside another whose published state the test controls."""

    def __init__(self) -> None:
        self.table = FrontEndTable(2, 1)
        self.other = self.table.row(1)
        self.listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.share = FrontEndShare(self.table, 0)
        self.pool = ConnectionPool()
        self.accepted: list[socket.socket] = []
        self.accepted_at: list[float] = []
        self.listener = Listener(self.listening, 0, self._accept, self.pool, self.share)
        self.listener.start()

    def _accept(self, connected: socket.socket, place: ConnectionPlace) -> None:
        self.accepted.append(connected)
        self.accepted_at.append(asyncio.get_running_loop().time())

    def connect(self) -> socket.socket:
        return socket.create_connection(self.listening.getsockname())


@contextlib.contextmanager
def beside_another(defer_seconds: float = NEVER) -> Iterator[ListenerFixture]:
    """A front end that leaves a connection to the other for so long at most."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listening, "_DEFER_SECONDS_MAX", defer_seconds)
        row = ListenerFixture()
        try:
            yield row
        finally:
            row.listener.stop()
            for connected in row.accepted:
                connected.close()


@on_loops
async def test_the_front_end_with_more_connections_yields() -> None:
    with beside_another() as row, row.connect(), row.connect(), row.connect():
        row.other.accepts = True
        await until(lambda: len(row.accepted) == 1)
        await asyncio.sleep(0.01)
        assert len(row.accepted) == 1
        row.other.add_connections(0, 1)
        row.other.count_turn()
        await until(lambda: len(row.accepted) == 2)
        await asyncio.sleep(0.01)
        assert len(row.accepted) == 2


@on_loops
async def test_it_does_not_wait_for_an_unresponsive_front_end() -> None:
    with beside_another(1.0) as row, row.connect(), row.connect(), row.connect():
        row.other.accepts = True
        await until(lambda: len(row.accepted) == 3)
        # It waits once, not once per connection.
        first, second, third = row.accepted_at
        assert second - first >= 1.0
        assert third - second < 1.0
    with beside_another(0.05) as row, row.connect(), row.connect():
        row.other.accepts = True
        await until(lambda: len(row.accepted) == 2)
        listening._DEFER_SECONDS_MAX = NEVER
        row.other.count_turn()
        with row.connect():
            await asyncio.sleep(0.01)
            assert len(row.accepted) == 2


@on_loops
async def test_it_does_not_wait_for_a_front_end_that_does_not_accept() -> None:
    with beside_another() as row, row.connect(), row.connect(), row.connect():
        await until(lambda: len(row.accepted) == 3)
        assert row.share.own_row.connections(0) == 3
        assert not row.listener._unresponsive


@on_loops
async def test_an_idle_front_end_is_not_taken_for_unresponsive() -> None:
    """After a pause that the other front end ended."""
    with beside_another() as row:
        row.other.accepts = True
        row.share.own_row.add_connections(0, 1)
        with row.connect():
            await until(lambda: row.listener._deferred_at is not None)
            row.listening.accept()[0].close()
        # The time of another connection does not count from the first one.
        await until(lambda: row.listener._deferred_at is None)
        with row.connect():
            await until(lambda: row.listener._deferred_at is not None)
            assert not row.accepted
            assert not row.listener._unresponsive


def test_peers_are_the_front_ends_with_the_same_listeners() -> None:
    table = FrontEndTable(3, 3)
    share = FrontEndShare(table, 0, range(2))
    table.row(1).add_connections(0, 5)
    assert [peer.connections(0) for peer in share.peers] == [5]
    assert len(share.others) == 2
    assert not FrontEndShare(table, 2, range(2, 3)).peers


def test_a_restarted_front_end_clears_its_state() -> None:
    table = FrontEndTable(2, 3)
    table.row(1).add_connections(2, 5)
    table.row(0).add_connections(2, 7)
    FrontEndShare(table, 1)
    assert (table.row(0).connections(2), table.row(1).connections(2)) == (7, 0)
