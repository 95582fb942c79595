"""The log of a running server: no secrets, one event per line, and IDs that can be followed."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest
from smbprotocol.exceptions import LogonFailure

from tests.probes.client import Client, NotHttp, Request, shared_key
from tests.probes.tokens import account_token
from tests.sdk.file.clients import file_service
from tests.server import SECOND_ACCOUNT, SECOND_KEYS, WRONG_KEY, Server, served
from tests.smb.client import CREATE, SmbClient
from tests.smb.test_connections import session

TEXT_LINE: Final = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (DEBUG|INFO|WARNING|ERROR) [a-z0-9-]+\[\d+\] "
    r"[a-z_.]+( \[[^\]]+\])?: .+"
)
LEASE_ID: Final = "11111111-2222-3333-4444-555555555555"
WRONG_LEASE_ID: Final = "99999999-8888-7777-6666-555555555555"
BEARER: Final = "eyJhbGciOiJub25lIn0.c2VjcmV0LWNsYWltcw.c2VjcmV0LXNpZ25hdHVyZQ"
MARK: Final = "a-secret-of-a-client"
"""In places where secrets do not belong, but where clients may put them."""
PATH: Final = f"/{SECOND_ACCOUNT}/container"

sign = shared_key(SECOND_ACCOUNT, SECOND_KEYS[0])


def requests(endpoint: str) -> tuple[list[Request], list[str]]:
    """Returns requests with secrets, and these secrets."""
    token = account_token(SECOND_ACCOUNT, SECOND_KEYS[0])
    wrong = token.setting("sig", WRONG_KEY)
    put = Request("PUT", f"{PATH}/blob", (), (("x-ms-blob-type", "BlockBlob"),), b"1")
    get = Request("GET", f"{PATH}/blob", (), (("x-ms-client-request-id", "my id"),))
    lease = (("x-ms-lease-action", "acquire"), ("x-ms-lease-duration", "60"))
    source = ("x-ms-copy-source", f"{endpoint}{PATH}/blob?{token}")
    remote = ("x-ms-copy-source", f"http://127.0.0.1:1{PATH}/blob?{token}")
    asked = [
        sign(Request("PUT", PATH, (("restype", "container"),))),
        sign(put),
        token.put_on(get),
        wrong.put_on(get),
        wrong.setting("sig", f"not base64 {MARK}").put_on(get),
        wrong.setting("se", MARK).put_on(get),
        Request("GET", f"{PATH}/blob%3F{token}"),
        sign(get).setting("Authorization", f"SharedKey {SECOND_ACCOUNT}:{WRONG_KEY}"),
        sign(get).setting("Authorization", f"SharedKey {MARK}"),
        get.having(("Authorization", f"Bearer {BEARER}"), ("x-ms-version", "2026-02-06")),
        sign(
            Request(
                "PUT",
                f"{PATH}/blob",
                (("comp", "lease"),),
                (*lease, ("x-ms-proposed-lease-id", LEASE_ID)),
            )
        ),
        sign(put.having(("x-ms-lease-id", WRONG_LEASE_ID))),
        sign(put.having(("x-ms-lease-id", f"{MARK}-lease"))),
        sign(put.having(("x-ms-lease-id", LEASE_ID))),
        sign(Request("PUT", f"{PATH}/copy", (), (source,))),
        sign(Request("PUT", f"{PATH}/copy", (), (remote,))),
        sign(
            Request(
                "PUT",
                f"{PATH}/copy",
                (),
                (source, ("x-ms-copy-source-authorization", f"Bearer {BEARER}")),
            )
        ),
        sign(put.having(("x-ms-encryption-key", WRONG_KEY))),
    ]
    signatures = [request.header("Authorization") or "" for request in asked]
    signatures += [token.fields["sig"], *SECOND_KEYS, WRONG_KEY]
    bare = [one.rpartition(":")[2].removeprefix("Bearer ") for one in signatures if one]
    secrets = [LEASE_ID, WRONG_LEASE_ID, BEARER, MARK, *bare]
    return asked, [*secrets, *(quote(one, safe="") for one in bare)]


def send_malformed(endpoint: str) -> None:
    """Sends bytes that are not requests, with a secret in each part of them."""
    for data in (
        f"{MARK} / HTTP/1.1\r\n\r\n",
        f"GET /?sig={MARK} HTTP/9.9\r\n\r\n",
        f"GET / HTTP/1.1\r\nAuthorization: SharedKey x:{MARK}\r\nbad header {MARK}\r\n\r\n",
        f"GET /?{MARK}\x00 HTTP/1.1\r\nHost: {MARK}\r\n\r\n",
        f"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: {MARK}\r\n\r\n",
        f"PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{MARK}\r\n",
    ):
        with Client(endpoint) as client, contextlib.suppress(NotHttp, OSError):
            client.send_bytes(data.encode())


def use_smb(server: Server) -> None:
    with contextlib.suppress(LogonFailure), session(server, user=SECOND_ACCOUNT, key=WRONG_KEY):
        raise AssertionError
    file_service(server).create_share("share")
    client = SmbClient(server, "share")
    client.open("file", disposition=CREATE).close()
    client.close()


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_the_log_of_a_server(tmp_path: Path, log_format: str) -> None:
    account = f"{SECOND_ACCOUNT}:{':'.join(SECOND_KEYS)}"
    flags = ("--workers", "1", "--account", account, "--log-format", log_format)
    with served(tmp_path / "data", *flags, "--log-level", "debug") as server:
        endpoint = server.endpoints["blob"]
        asked, secrets = requests(endpoint)
        ids = []
        with Client(endpoint) as client:
            for request in asked:
                answer = client.ask(request)
                assert answer.status < 500 or answer.code == "CannotVerifyCopySource"
                ids.append(answer.headers["x-ms-request-id"])
        send_malformed(endpoint)
        use_smb(server)
        assert server.stop() == 0
        log = server.log()
    assert [secret for secret in secrets if secret in log] == []
    lines = [line for line in log.splitlines() if not line.startswith("  ")]
    assert [line for line in lines if not line.isprintable()] == []
    events = [_parsed_json(line) if log_format == "json" else _parsed_text(line) for line in lines]
    # Each request is in the access log, and a write is in that of the writer, too.
    processes = {"etagere.access": "front end 1", "etagere.engine.groups": "writer"}
    for number, request_id in enumerate(ids):
        found = {one["logger"] for one in events if one.get("request_id") == request_id}
        assert "etagere.access" in found, number
        if number < 2:
            assert found >= set(processes), (number, found)
    assert any(
        one.get("request_id", "").startswith("smb-") and one["logger"] == "etagere.engine.groups"
        for one in events
    )


def _parsed_json(line: str) -> dict[str, Any]:
    event: dict[str, Any] = json.loads(line)
    assert {"time", "level", "logger", "process", "pid", "message"} <= event.keys(), line
    return event


def _parsed_text(line: str) -> dict[str, Any]:
    assert TEXT_LINE.fullmatch(line), line
    head, _, _ = line.partition(": ")
    _, _, _, logger, *request_id = head.split(" ", 4)
    return {"logger": logger, "request_id": request_id[0].strip("[]") if request_id else ""}
