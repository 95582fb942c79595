"""User delegation SAS of every version, signed by an implementation of our own."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import ssl
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import pytest

from tests.sdk.delegation.clients import ANNE, Clients, new_name, user
from tests.sdk.harness import HOUR, now
from tests.server import ACCOUNT

VERSIONS: Final = (
    "2018-11-09",
    "2020-02-10",
    "2020-12-06",
    "2025-05-05",
    "2025-07-05",
    "2026-04-06",
    "2026-10-06",
)
ANSWERS: Final = {"rscc": "no-store", "rsct": "text/x-made-up", "rscl": "eo"}


def instant(distance: float = 0) -> str:
    return (now() + distance * HOUR).strftime("%Y-%m-%dT%H:%M:%SZ")


def key_fields(key: Any) -> dict[str, str]:
    return {
        "skoid": key.signed_oid,
        "sktid": key.signed_tid,
        "skt": key.signed_start,
        "ske": key.signed_expiry,
        "sks": key.signed_service,
        "skv": key.signed_version,
    }


def signed(key: Any, lines: list[str], fields: dict[str, str]) -> dict[str, str]:
    value = base64.b64decode(key.value)
    digest = hmac.new(value, "\n".join(lines).encode(), hashlib.sha256).digest()
    return {**fields, "sig": base64.b64encode(digest).decode()}


def blob_token(
    key: Any, version: str, resource: str, name: str, snapshot: str = "", **more: str
) -> dict[str, str]:
    fields = {"sv": version, "sr": resource, "sp": "rl", "se": instant(1), **key_fields(key)}
    fields |= {**ANSWERS, **more}
    names = ["sp", "st", "se", "canon", "skoid", "sktid", "skt", "ske", "sks", "skv"]
    if version >= "2020-02-10":
        names += ["saoid", "suoid", "scid"]
    if version >= "2025-07-05":
        names += ["skdutid", "sduoid"]
    names += ["sip", "spr", "sv", "sr", "timestamp"]
    if version >= "2020-12-06":
        names += ["ses"]
    if version >= "2026-04-06":
        names += ["srh", "srq"]
    names += ["rscc", "rscd", "rsce", "rscl", "rsct"]
    made = {"canon": f"/blob/{ACCOUNT}/{name}", "timestamp": snapshot}
    return signed(key, [made.get(one, fields.get(one, "")) for one in names], fields)


def other_token(
    key: Any, service: str, version: str, name: str, *answers: str, **more: str
) -> dict[str, str]:
    """Returns a token for a queue or a share."""
    fields = {"sv": version, "sp": "r", "se": instant(1), **key_fields(key), **more}
    names = ["sp", "st", "se", "canon", "skoid", "sktid", "skt", "ske", "sks", "skv"]
    names += ["skdutid", "sduoid", "sip", "spr", "sv", *answers]
    made = {"canon": f"/{service}/{ACCOUNT}/{name}"}
    return signed(key, [made.get(one, fields.get(one, "")) for one in names], fields)


class Wire:
    """Sends requests with nothing but a token."""

    def __init__(self, clients: Clients) -> None:
        context = ssl.create_default_context(cafile=clients.options["connection_verify"])
        self._connections = {}
        for service in ("blob", "queue", "file"):
            split = urlsplit(clients.server.url(service))
            self._connections[service] = http.client.HTTPSConnection(
                split.hostname or "", split.port, timeout=20, context=context
            )

    def get(self, service: str, path: str, parameters: dict[str, str]) -> http.client.HTTPResponse:
        connection = self._connections[service]
        target = f"/{ACCOUNT}/{quote(path)}?{urlencode(parameters)}"
        connection.request("GET", target, headers={"x-ms-version": "2026-10-06"})
        response = connection.getresponse()
        response.read()
        return response

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()


@pytest.fixture(scope="module")
def wire(clients: Clients) -> Iterator[Wire]:
    made = Wire(clients)
    yield made
    made.close()


@pytest.fixture(scope="module")
def key(clients: Clients) -> Any:
    return clients.key("blob", user(ANNE))


@pytest.fixture(scope="module")
def container(clients: Clients) -> tuple[str, str]:
    """The name of a container, and of a snapshot of `a/b/c` in it."""
    made = clients.container(new_name())
    blob = made.upload_blob("a/b/c", b"content")
    made.upload_blob("a2/b", b"content")
    return made.container_name, str(blob.create_snapshot()["snapshot"])


@pytest.mark.parametrize("version", VERSIONS)
def test_blobs(wire: Wire, key: Any, container: tuple[str, str], version: str) -> None:
    name, snapshot = container
    blob, beside = f"{name}/a/b/c", f"{name}/a2/b"
    more = {"saoid": ANNE, "scid": "correlation"} if version >= "2020-02-10" else {}
    for resource, scope in (("b", blob), ("c", name)):
        token = blob_token(key, version, resource, scope, **more)
        answer = wire.get("blob", blob, token)
        assert answer.status == 200, (resource, answer.getheaders())
        assert answer.getheader("content-type") == ANSWERS["rsct"]
        assert answer.getheader("cache-control") == ANSWERS["rscc"]
        assert wire.get("blob", beside, token).status == (200 if resource == "c" else 403)
        for changed in ({"sp": "rwl"}, {"se": instant(0.5)}, {"rsct": "text/plain"}, {"sr": "d"}):
            assert wire.get("blob", blob, token | changed).status == 403, changed
    moment = {"snapshot": snapshot}
    token = blob_token(key, version, "bs", blob, snapshot, **more)
    assert wire.get("blob", blob, token | moment).status == 200
    assert wire.get("blob", blob, token).status == 403
    # Directories, from their first version on.
    for directory, depth in ((f"{name}/a", "1"), (f"{name}/a/b", "2")):
        token = blob_token(key, version, "d", directory, **more) | {"sdd": depth}
        expected = 200 if version >= "2020-02-10" else 403
        assert wire.get("blob", blob, token).status == expected
        listing = {"restype": "container", "comp": "list"}
        inside = listing | {"prefix": f"{directory.removeprefix(f'{name}/')}/"}
        assert wire.get("blob", name, token | inside).status == expected
        for path, parameters in (
            (beside, {}),
            (f"{name}/a/../a2/b", {}),
            (name, listing),
            (name, listing | {"prefix": "a"}),
            (name, listing | {"prefix": "a2/"}),
        ):
            assert wire.get("blob", path, token | parameters).status == 403, (path, parameters)
    if version >= "2020-02-10":
        # Its user would have to be checked with access control lists, although it is signed.
        assert wire.get("blob", blob, blob_token(key, version, "c", name, suoid=ANNE)).status == 403
    # Fields of later versions are not signed, so they must not be there.
    for field, since in (("saoid", "2020-02-10"), ("sduoid", "2025-07-05"), ("srh", "2026-04-06")):
        if version < since:
            token = blob_token(key, version, "c", name, **{field: "x-ms-version"})
            assert wire.get("blob", blob, token).status == 403, field


@pytest.mark.parametrize("version", VERSIONS)
def test_queues_and_files(clients: Clients, wire: Wire, version: str) -> None:
    expected = 200 if version >= "2025-07-05" else 403
    queue, file = clients.queue().queue_name, clients.file()
    token = other_token(clients.key("queue", user()), "queue", version, queue)
    assert wire.get("queue", queue, token | {"comp": "metadata"}).status == expected
    assert wire.get("queue", f"{queue}2", token | {"comp": "metadata"}).status == 403
    answers = ("rscc", "rscd", "rsce", "rscl", "rsct")
    key = clients.key("file", user())
    for resource, name in (("s", file.share_name), ("f", f"{file.share_name}/file")):
        token = other_token(key, "file", version, name, *answers, sr=resource, **ANSWERS)
        answer = wire.get("file", f"{file.share_name}/file", token)
        assert answer.status == expected
        assert expected == 403 or answer.getheader("content-type") == ANSWERS["rsct"]
