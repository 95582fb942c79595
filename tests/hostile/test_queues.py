"""A queue full of expired messages: visible ones are found, and others do not wait."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from tests.hostile.bystanders import assert_others_do_not_wait
from tests.probes.client import Answer, Client, Request, shared_key
from tests.sdk.server import ACCOUNT, KEY, Server, served

_sign = shared_key(ACCOUNT, KEY)
_EXPIRED: Final = 4_000
_LIVES_SECONDS: Final = 6
_CLIENTS: Final = 8
_TEXT: Final = re.compile(rb"<MessageText>([^<]*)</MessageText>")
_ONCE: Final = (("numofmessages", "32"), ("visibilitytimeout", "1"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory: Path = tmp_path_factory.mktemp("queues") / "data"
    with served(directory, "--workers", "2") as started:
        yield started


def _ask(client: Client, method: str, path: str, *query: tuple[str, str], text: str = "") -> Answer:
    body = f"<QueueMessage><MessageText>{text}</MessageText></QueueMessage>" if text else ""
    request = Request(method, f"/{ACCOUNT}/{path}", query, (), body.encode())
    return client.ask(_sign(request))


def _put_many(server: Server, queue: str, count: int, *query: tuple[str, str]) -> None:
    def put(first: int) -> None:
        with Client(server.endpoints["queue"]) as client:
            for _ in range(first, count, _CLIENTS):
                answer = _ask(client, "POST", f"{queue}/messages", *query, text="expired")
                assert answer.status == 201

    with ThreadPoolExecutor(_CLIENTS) as threads:
        list(threads.map(put, range(_CLIENTS)))


def _expire(server: Server, queue: str, count: int) -> None:
    """Puts messages that expire all at once, and one behind them that does not."""
    began = time.monotonic()
    with Client(server.endpoints["queue"]) as client:
        assert _ask(client, "PUT", queue).status == 201
        _put_many(server, queue, count, ("messagettl", str(_LIVES_SECONDS)))
        answer = _ask(client, "POST", f"{queue}/messages", text="here")
        assert answer.status == 201
    put_seconds = time.monotonic() - began
    time.sleep(_LIVES_SECONDS + 0.1 if put_seconds < _LIVES_SECONDS else 0.1)


def test_a_visible_message_is_found_behind_expired_ones(server: Server) -> None:
    _expire(server, "expired", _EXPIRED)
    messages = "expired/messages"
    with Client(server.endpoints["queue"]) as client:
        for _ in range(10):
            peeked = _ask(client, "GET", messages, ("peekonly", "true"), ("numofmessages", "32"))
            assert _TEXT.findall(peeked.body) == [b"here"]

        def take() -> None:
            for _ in range(2):
                taken = _ask(client, "GET", messages, *_ONCE)
                assert _TEXT.findall(taken.body) == [b"here"]
                assert _TEXT.findall(_ask(client, "GET", messages, *_ONCE).body) == []
                time.sleep(1.1)

        assert_others_do_not_wait(server, take)
