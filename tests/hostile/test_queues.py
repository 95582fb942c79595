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
from tests.server import ACCOUNT, KEY, Server, served

pytestmark = pytest.mark.alone

_sign = shared_key(ACCOUNT, KEY)
_EXPIRED: Final = 3_000
_EXPIRE_AFTER_SECONDS: Final = 4
_LOOK_AFTER_SECONDS: Final = 2
_CLIENTS: Final = 8
_TEXT: Final = re.compile(rb"<MessageText>([^<]*)</MessageText>")
_ALL_FOR_A_SECOND: Final = (("numofmessages", "32"), ("visibilitytimeout", "1"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory: Path = tmp_path_factory.mktemp("queues") / "data"
    with served(directory, "--workers", "2") as started:
        yield started


def _ask(client: Client, method: str, path: str, *query: tuple[str, str], text: str = "") -> Answer:
    body = f"<QueueMessage><MessageText>{text}</MessageText></QueueMessage>" if text else ""
    request = Request(method, f"/{ACCOUNT}/{path}", query, (), body.encode())
    return client.ask(_sign(request))


def _fill(server: Server, queue: str) -> float:
    """Puts messages that expire at about the same time, which is returned, and one after them that
    does not."""
    ends = time.monotonic() + _EXPIRE_AFTER_SECONDS

    def put(first: int) -> None:
        with Client(server.endpoints["queue"]) as client:
            for _ in range(first, _EXPIRED, _CLIENTS):
                lives = ("messagettl", str(max(1, round(ends - time.monotonic()))))
                answer = _ask(client, "POST", f"{queue}/messages", lives, text="expired")
                assert answer.status == 201

    with Client(server.endpoints["queue"]) as client, ThreadPoolExecutor(_CLIENTS) as threads:
        assert _ask(client, "PUT", queue).status == 201
        list(threads.map(put, range(_CLIENTS)))
        assert _ask(client, "POST", f"{queue}/messages", text="here").status == 201
    return ends


def test_a_queue_never_looks_empty_because_of_expired_messages(server: Server) -> None:
    """From before they expire until most of them are removed."""
    ends = _fill(server, "expired")
    time.sleep(max(0.0, ends - 0.5 - time.monotonic()))

    def look() -> None:
        texts: list[bytes] = []
        with Client(server.endpoints["queue"]) as client:
            while texts != [b"here"] or time.monotonic() < ends + _LOOK_AFTER_SECONDS:
                peeked = _ask(client, "GET", "expired/messages", ("peekonly", "true"))
                texts = _TEXT.findall(peeked.body)
                assert len(texts) == 1
                time.sleep(0.01)
            for expected in ([b"here"], []):
                answer = _ask(client, "GET", "expired/messages", *_ALL_FOR_A_SECOND)
                assert _TEXT.findall(answer.body) == expected
        time.sleep(1.1)

    assert_others_do_not_wait(server, look)
