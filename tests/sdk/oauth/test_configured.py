"""Tokens of a configured issuer: verification, roles, key rotation and the challenge."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from azure.core.credentials import AccessToken
from azure.data.tables import TableServiceClient

from tests.certificates import Certificate, make_certificate
from tests.sdk.harness import refused
from tests.sdk.oauth.clients import Clients, Directory, clients, directory, refuse_token, use
from tests.server import ACCOUNT, SECOND_ACCOUNT, SECOND_KEYS, Server, served
from tests.tokens import ISSUER, claims, compact, ec_key, key_set, rsa_key, signed, unsigned

KEY, NEXT_KEY = rsa_key("first"), ec_key("second")
ROLES: Final = (
    "groups:owners=owner",
    "blob-readers=blob-reader",
    "senders=queue-message-sender",
    f"limited=owner@{SECOND_ACCOUNT}",
)
OWNER: Final = {"groups": ["owners"]}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@contextlib.contextmanager
def serving(folder: Path, certificate: Certificate, issuer: Directory) -> Iterator[Server]:
    flags = ["--oauth", "on", "--oauth-issuer", ISSUER, "--oauth-keys", issuer.url]
    flags += ["--workers", "1", "--oauth-authority", "https://login.example.com/tenant"]
    flags += [part for role in ROLES for part in ("--oauth-role", role)]
    flags += ["--account", ":".join((SECOND_ACCOUNT, *SECOND_KEYS)), *certificate.flags]
    with served(folder / "data", *flags) as started:
        yield started
        # The lines of the last requests are in the log once the server has stopped.
        assert started.stop() == 0
        log = started.log()
        assert "eyJ" not in log, "a token is in the log"
        assert "Traceback" not in log


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, certificate: Certificate) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("configured")
    with directory(key_set(KEY)) as issuer, serving(folder, certificate, issuer) as started:
        yield started


def test_an_owner_uses_all_services(server: Server, certificate: Certificate) -> None:
    use(clients(server, signed(KEY, **OWNER), certificate.path), "use")


HOUR: Final = 3600
DAY: Final = 24 * HOUR
REFUSED: Final = {
    "unsigned": unsigned(**OWNER),
    "alg none": compact({"alg": "none", "kid": "first"}, claims(**OWNER)),
    "by another key": signed(rsa_key("mallory"), {"kid": "first"}, **OWNER),
    "expired": signed(KEY, exp=int(time.time()) - HOUR, **OWNER),
    "not yet valid": signed(KEY, nbf=int(time.time()) + DAY, **OWNER),
    "other audience": signed(KEY, aud="https://graph.microsoft.com", **OWNER),
    "other account": signed(KEY, aud="https://other.blob.core.windows.net", **OWNER),
    "other issuer": signed(KEY, iss="https://mallory.example.com/", **OWNER),
    "no expiration": signed(KEY, exp=None, **OWNER),
}


@pytest.mark.parametrize("token", REFUSED.values(), ids=REFUSED)
def test_unusable_tokens(server: Server, certificate: Certificate, token: str) -> None:
    refuse_token(clients(server, token, certificate.path))


def refuse_changes(client: Clients) -> None:
    with refused(403, "AuthorizationPermissionMismatch"):
        client.blob.get_container_client("roles").upload_blob("c", b"")
    with refused(403, "AuthorizationPermissionMismatch"):
        client.queue.get_queue_client("roles").clear_messages()
    with refused(403, "AuthorizationPermissionMismatch"):
        client.table.create_table("roles")
    with refused(403, "AuthorizationPermissionMismatch"):
        client.file.create_share("roles")


def test_roles(server: Server, certificate: Certificate) -> None:
    owner = clients(server, signed(KEY, **OWNER), certificate.path)
    owner.blob.create_container("roles").upload_blob("b", b"bytes")
    owner.queue.create_queue("roles")
    reader = clients(server, signed(KEY, roles=["blob-readers"]), certificate.path)
    assert reader.blob.get_blob_client("roles", "b").download_blob().readall() == b"bytes"
    sender = clients(server, signed(KEY, roles=["senders"]), certificate.path)
    sender.queue.get_queue_client("roles").send_message("text")
    nobody = clients(server, signed(KEY), certificate.path)
    # The group has the name of a role that is assigned to another claim.
    impostor = clients(server, signed(KEY, roles=["owners"]), certificate.path)
    limited = clients(server, signed(KEY, roles=["limited"]), certificate.path)
    for client in (reader, sender, nobody, impostor, limited):
        refuse_changes(client)
    elsewhere = clients(server, signed(KEY, roles=["limited"]), certificate.path, SECOND_ACCOUNT)
    elsewhere.blob.create_container("roles")
    for name in ("roles", "absent"):
        with refused(403, "AuthorizationPermissionMismatch"):
            nobody.blob.get_container_client(name).get_container_properties()


class TenantCredential:
    """Has a usable token only for the tenant that the challenge names."""

    def __init__(self) -> None:
        self.tenants: list[str | None] = []

    def get_token(self, *_scopes: str, **options: Any) -> AccessToken:
        tenant = options.get("tenant_id")
        self.tenants.append(tenant)
        token = signed(KEY if tenant == "tenant" else rsa_key("home"), **OWNER)
        return AccessToken(token, int(time.time()) + HOUR)


def test_clients_follow_the_challenge(server: Server, certificate: Certificate) -> None:
    for service in ("blob", "queue", "file"):
        credential = TenantCredential()
        client = getattr(clients(server, credential, certificate.path), service)
        client.get_service_properties()
        assert credential.tenants == [None, "tenant"]


def test_clients_of_tables_follow_the_challenge(server: Server, certificate: Certificate) -> None:
    """The version that the SDK uses by default has no challenge."""
    credential = TenantCredential()
    client = TableServiceClient(
        f"{server.endpoints['table']}/{ACCOUNT}",
        credential=credential,
        api_version="2020-12-06",
        connection_verify=str(certificate.path),
        retry_total=0,
    )
    assert not [*client.list_tables()]
    assert credential.tenants == [None, "tenant"]


def test_keys_are_rotated(tmp_path: Path, certificate: Certificate) -> None:
    with directory(key_set(KEY)) as issuer, serving(tmp_path, certificate, issuer) as server:
        with_first = clients(server, signed(KEY, **OWNER), certificate.path)
        with_first.blob.create_container("rotated")
        # Both front ends have the keys.
        assert not [*with_first.file.list_shares()]
        before = issuer.requests
        issuer.keys = key_set(KEY, NEXT_KEY)
        with_next = clients(server, signed(NEXT_KEY, **OWNER), certificate.path)
        assert with_next.blob.get_container_client("rotated").exists()
        assert issuer.requests == before + 1
        for number in range(10):
            unknown = signed(ec_key("unknown"), {"kid": f"unknown{number}"}, **OWNER)
            with refused(401, "InvalidAuthenticationInfo"):
                clients(server, unknown, certificate.path).blob.get_service_properties()
        assert issuer.requests == before + 1, "a client makes the server ask the issuer repeatedly"
        issuer.keys = None
        for key in (KEY, NEXT_KEY):
            fresh = clients(server, signed(key, nonce="2", **OWNER), certificate.path)
            assert fresh.blob.get_container_client("rotated").exists()
