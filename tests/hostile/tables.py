"""Raw signed requests to the table service, for hostile tests."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from tests.probes.client import Answer, Client, Request, table_shared_key_lite
from tests.server import ACCOUNT, KEY, Server

NAME: Final = "Hostile"
GROUP_SIZE: Final = 100
_JSON: Final = (
    ("Content-Type", "application/json"),
    ("Accept", "application/json;odata=minimalmetadata"),
)
_sign = table_shared_key_lite(ACCOUNT, KEY)


class TableProbe:
    """One connection to the table service, and a table."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def create(self, name: str = NAME) -> None:
        body = json.dumps({"TableName": name}).encode()
        answer = self._ask("POST", f"/{ACCOUNT}/Tables", body=body, headers=_JSON)
        assert answer.status == 201, answer

    def insert(self, entity: bytes | Mapping[str, object]) -> Answer:
        body = entity if isinstance(entity, bytes) else json.dumps(entity).encode()
        return self._ask("POST", f"/{ACCOUNT}/{NAME}", body=body, headers=_JSON)

    def group(self, entities: Sequence[bytes]) -> Answer:
        parts = b"".join(
            b"--changeset_0\r\nContent-Type: application/http\r\n"
            b"Content-Transfer-Encoding: binary\r\n\r\n"
            b"POST /%b/%b HTTP/1.1\r\nContent-Type: application/json\r\n"
            b"Prefer: return-no-content\r\n\r\n%b\r\n" % (ACCOUNT.encode(), NAME.encode(), entity)
            for entity in entities
        )
        body = (
            b"--batch_0\r\nContent-Type: multipart/mixed; boundary=changeset_0\r\n\r\n"
            b"%b--changeset_0--\r\n--batch_0--\r\n" % parts
        )
        return self.batch(body)

    def batch(self, body: bytes) -> Answer:
        headers = (("Content-Type", "multipart/mixed; boundary=batch_0"),)
        return self._ask("POST", f"/{ACCOUNT}/$batch", body=body, headers=headers)

    def fill(self, entities: Sequence[Mapping[str, object]]) -> None:
        """Inserts entities of one partition in groups."""
        for first in range(0, len(entities), GROUP_SIZE):
            share = entities[first : first + GROUP_SIZE]
            answer = self.group([json.dumps(entity).encode() for entity in share])
            assert answer.status == 202, answer
            assert b"HTTP/1.1 4" not in answer.body, answer.body[:2_000]

    def query(self, address: str = NAME, **options: str) -> Answer:
        query = tuple((f"${name}", quote(value, safe=_SAFE)) for name, value in options.items())
        headers = (("Accept", "application/json;odata=minimalmetadata"),)
        return self._ask("GET", f"/{ACCOUNT}/{address}", query, headers)

    def query_in_batch(self, **options: str) -> Answer:
        """Queries in a batch, where the URL may be longer."""
        query = "&".join(f"${name}={quote(text, safe=_SAFE)}" for name, text in options.items())
        request = f"GET /{ACCOUNT}/{NAME}?{query} HTTP/1.1\r\nAccept: application/json\r\n\r\n"
        return self.batch(
            b"--batch_0\r\nContent-Type: application/http\r\n"
            b"Content-Transfer-Encoding: binary\r\n\r\n%b--batch_0--\r\n" % request.encode()
        )

    def pages(self, **options: str) -> Iterator[tuple[bytes, list[dict[str, Any]]]]:
        """Returns the body of each page and its entities."""
        query = tuple((f"${name}", quote(value, safe=_SAFE)) for name, value in options.items())
        following: tuple[tuple[str, str], ...] = ()
        while True:
            headers = (("Accept", "application/json;odata=minimalmetadata"),)
            answer = self._ask("GET", f"/{ACCOUNT}/{NAME}", (*query, *following), headers)
            assert answer.status == 200, answer
            yield answer.body, json.loads(answer.body)["value"]
            keys = [answer.headers.get(f"x-ms-continuation-next{key}key") for key in _KEYS]
            if keys[0] is None:
                return
            following = tuple(
                (f"Next{key}Key", quote(value, safe=""))
                for key, value in zip(("Partition", "Row"), keys, strict=True)
                if value is not None
            )

    def _ask(
        self,
        method: str,
        path: str,
        query: tuple[tuple[str, str], ...] = (),
        headers: tuple[tuple[str, str], ...] = (),
        body: bytes = b"",
    ) -> Answer:
        return self._client.ask(_sign(Request(method, path, query, headers, body)))


_KEYS: Final = ("partition", "row")
_SAFE: Final = "(),'"
"""Characters without an escape, which would make a URL three times as long."""


@contextlib.contextmanager
def table_probe(server: Server, *, creates: bool = True) -> Iterator[TableProbe]:
    with Client(server.endpoints["table"]) as client:
        probe = TableProbe(client)
        if creates:
            probe.create()
        yield probe
