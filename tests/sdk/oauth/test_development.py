"""Tokens in development mode: SDK credentials without a directory."""

from __future__ import annotations

import http.client
import re
import ssl
import time
from collections.abc import Iterator
from typing import Any, Final

import pytest
from azure.storage.fileshare import ShareServiceClient

from tests.certificates import Certificate, make_certificate
from tests.sdk.harness import refused
from tests.sdk.oauth.clients import clients, refuse_token, use
from tests.server import ACCOUNT, ROOT, SECOND_ACCOUNT, SECOND_KEYS, Server, served
from tests.tokens import StaticCredential, rsa_key, signed, unsigned

ROLES: Final = "readers=blob-reader,queue-reader,table-reader,file-reader"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, certificate: Certificate) -> Iterator[Server]:
    flags = ("--oauth", "development", "--workers", "1", "--oauth-role", ROLES)
    second = ("--account", ":".join((SECOND_ACCOUNT, *SECOND_KEYS)))
    with served(tmp_path_factory.mktemp("d") / "data", *flags, *second, *certificate.flags) as one:
        yield one
        assert one.stop() == 0
        assert "eyJ" not in one.log(), "a token is in the log"


@pytest.mark.parametrize("account", [ACCOUNT, SECOND_ACCOUNT])
@pytest.mark.parametrize(
    "token",
    [unsigned(), signed(rsa_key("nobody")), unsigned(aud=None, tid=None, oid=None, nbf=None)],
    ids=["unsigned", "signed", "few claims"],
)
def test_any_token_has_all_rights(
    server: Server, certificate: Certificate, token: str, account: str
) -> None:
    use(clients(server, token, certificate.path, account), "use")


DAY: Final = 24 * 3600
REFUSED: Final = {
    "malformed": "no.token",
    "expired": unsigned(exp=int(time.time()) - 1),
    "not yet valid": unsigned(nbf=int(time.time()) + DAY),
    "for another service": unsigned(aud="https://graph.microsoft.com"),
}


@pytest.mark.parametrize("token", REFUSED.values(), ids=REFUSED)
def test_unusable_tokens(server: Server, certificate: Certificate, token: str) -> None:
    refuse_token(clients(server, token, certificate.path))


def test_the_documented_credential(server: Server, certificate: Certificate) -> None:
    page = (ROOT / "docs/configuration.md").read_text("utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert "https://127.0.0.1:10000" in example
    example = example.replace("https://127.0.0.1:10000", server.endpoints["blob"])
    exec(example.replace("etagere-data/tls/ca.pem", str(certificate.path)), {})  # noqa: S102
    names = [
        each.name for each in clients(server, unsigned(), certificate.path).blob.list_containers()
    ]
    assert "documents" in names


def test_roles_limit_a_token(server: Server, certificate: Certificate) -> None:
    owner = clients(server, unsigned(), certificate.path)
    reader = clients(server, unsigned(roles=["readers"]), certificate.path)
    container = owner.blob.create_container("limited")
    container.upload_blob("b", b"bytes")
    seen = reader.blob.get_container_client("limited")
    assert seen.download_blob("b").readall() == b"bytes"
    with refused(403, "AuthorizationPermissionMismatch"):
        seen.upload_blob("c", b"bytes")
    with refused(403, "AuthorizationPermissionMismatch"):
        seen.delete_blob("b")
    for create in (
        reader.queue.create_queue,
        reader.table.create_table,
        reader.file.create_share,
    ):
        with refused(403, "AuthorizationPermissionMismatch"):
            create("limited")
    assert not [*reader.queue.list_queues()]


def test_files_need_the_intent_of_a_backup(server: Server, certificate: Certificate) -> None:
    client = ShareServiceClient(
        f"{server.endpoints['file']}/{ACCOUNT}",
        credential=StaticCredential(unsigned()),
        token_intent="backup",
        connection_verify=str(certificate.path),
        retry_total=0,
    )

    def without_intent(request: Any) -> None:
        del request.http_request.headers["x-ms-file-request-intent"]

    def with_another(request: Any) -> None:
        request.http_request.headers["x-ms-file-request-intent"] = "read"

    share = client.get_share_client("absent")
    with refused(404, "ShareNotFound"):
        share.get_share_properties()
    with refused(400, "MissingRequiredHeader") as error:
        client.create_share("s", raw_request_hook=without_intent)
    assert error.details["headername"] == "x-ms-file-request-intent"
    with refused(400, "InvalidHeaderValue"):
        client.create_share("s", raw_request_hook=with_another)


def test_parts_of_a_batch_have_tokens_of_their_own(
    server: Server, certificate: Certificate
) -> None:
    """The SDK sends its token with every part, so this batch is written by hand."""
    owner = clients(server, unsigned(), certificate.path)
    container = owner.blob.create_container("batch")
    credentials = {
        "owner": f"Authorization: Bearer {unsigned()}\r\n",
        "reader": f"Authorization: Bearer {unsigned(roles=['readers'])}\r\n",
        "expired": f"Authorization: Bearer {unsigned(exp=1)}\r\n",
        "nobody": "",
    }
    parts = ""
    for name, credential in credentials.items():
        container.upload_blob(name, b"bytes")
        parts += (
            "--b\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n"
        )
        parts += f"DELETE /{ACCOUNT}/batch/{name} HTTP/1.1\r\n{credential}"
        parts += "Content-Length: 0\r\n\r\n\r\n"
    host, port = server.endpoints["blob"].removeprefix("https://").split(":")
    context = ssl.create_default_context(cafile=str(certificate.path))
    connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=10)
    headers = {
        "Authorization": f"Bearer {unsigned()}",
        "Content-Type": "multipart/mixed; boundary=b",
        "x-ms-version": "2023-11-03",
    }
    target = f"/{ACCOUNT}/batch?restype=container&comp=batch"
    connection.request("POST", target, f"{parts}--b--\r\n", headers)
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    assert response.status == 202, body
    assert re.findall(r"HTTP/1.1 (\d+)", body) == ["202", "403", "401", "401"]
    assert re.findall(r"x-ms-error-code: (\w+)", body) == [
        "AuthorizationPermissionMismatch",
        "InvalidAuthenticationInfo",
        "NoAuthenticationInformation",
    ]
    assert [blob.name for blob in container.list_blobs()] == ["expired", "nobody", "reader"]


def test_an_account_that_does_not_exist(server: Server, certificate: Certificate) -> None:
    client = clients(server, unsigned(), certificate.path, "nobody")
    with refused(403, "AuthorizationPermissionMismatch"):
        client.blob.create_container("c")
    with refused(403, "AuthorizationPermissionMismatch"):
        client.queue.create_queue("c")
