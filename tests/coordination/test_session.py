"""The thread that runs the heartbeats of a process, and its requests between them."""

from __future__ import annotations

from functools import partial
from unittest.mock import Mock

from etagere.coordination.postgres.session import Session
from etagere.postgresql import BoundedConnection

_SECONDS_MAX = 10.0


def test_requests_do_not_delay_heartbeats() -> None:
    """Several requests to a slow server together take longer than a process may be silent."""
    connection = Mock(spec=BoundedConnection)
    ran: list[str] = []

    def run(name: str, _: BoundedConnection) -> None:
        ran.append(name)

    def beat(_: BoundedConnection) -> float:
        ran.append("beat")
        return 0.0  # the next one is due whenever a request has ended

    session = Session(lambda: connection, beat, lambda: None)
    requests = [session.submit(partial(run, f"request {number}")) for number in range(5)]
    session.start(connection)
    for request in requests:
        request.result(_SECONDS_MAX)
    session.close(lambda _: None)
    for number in range(4):
        between = slice(ran.index(f"request {number}") + 1, ran.index(f"request {number + 1}"))
        assert "beat" in ran[between]
