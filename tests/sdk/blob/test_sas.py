"""SAS tokens and stored access policies of blobs and containers."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from azure.storage.blob import (
    AccessPolicy,
    BlobClient,
    BlobServiceClient,
    ContainerClient,
    ContentSettings,
)

from tests.sdk.blob.clients import (
    account_token,
    blob_token,
    container_token,
    sas_client,
    sas_service,
)
from tests.sdk.harness import HOUR, now, refused
from tests.server import WRONG_KEY, Server, unique

MISMATCH = "AuthorizationPermissionMismatch"
LETTERS = "racwdl"


# Permissions

Action = Callable[[ContainerClient], Any]

ON_BLOBS: dict[str, tuple[str, Action]] = {
    "download": ("r", lambda container: container.download_blob("old").readall()),
    "properties": ("r", lambda container: container.get_blob_client("old").get_blob_properties()),
    "create": ("cw", lambda container: container.upload_blob("new", b"new")),
    "overwrite": ("w", lambda container: container.upload_blob("old", b"new", overwrite=True)),
    "metadata": ("w", lambda container: _old(container).set_blob_metadata({"a": "b"})),
    "headers": ("w", lambda container: _old(container).set_http_headers(ContentSettings())),
    "delete": ("d", lambda container: _old(container).delete_blob()),
}
ON_CONTAINERS: dict[str, tuple[str, Action]] = {
    "list": ("l", lambda container: list(container.list_blobs())),
    "properties": ("r", lambda container: container.get_container_properties()),
    "metadata": ("w", lambda container: container.set_container_metadata({"a": "b"})),
    "lease": ("w", lambda container: container.acquire_lease()),
    "delete": ("d", lambda container: container.delete_container()),
}


def _old(container: ContainerClient) -> BlobClient:
    return container.get_blob_client("old")


def require(client: ContainerClient, action: Action, allowed: bool, code: str = MISMATCH) -> None:
    with client:
        if allowed:
            action(client)
        else:
            with refused(403, code):
                action(client)


@pytest.mark.parametrize("kind", ON_BLOBS)
@pytest.mark.parametrize("letter", LETTERS)
def test_permissions_on_blobs(container: ContainerClient, kind: str, letter: str) -> None:
    needed, action = ON_BLOBS[kind]
    name = "new" if kind == "create" else "old"
    for token in (
        container_token(container, permission=letter),
        blob_token(container, name, permission=letter),
        account_token(letter, "o"),
    ):
        container.upload_blob("old", b"old", overwrite=True)
        code = "UnauthorizedBlobOverwrite" if (kind, letter) == ("overwrite", "c") else MISMATCH
        require(sas_client(container, token), action, letter in needed, code)
        if kind == "create" and letter in needed:
            container.delete_blob("new")


@pytest.mark.parametrize("kind", ON_CONTAINERS)
@pytest.mark.parametrize("letter", LETTERS)
def test_permissions_on_containers(container: ContainerClient, kind: str, letter: str) -> None:
    needed, action = ON_CONTAINERS[kind]
    require(sas_client(container, account_token(letter, "c")), action, letter in needed)


@pytest.mark.parametrize("letter", LETTERS)
def test_listing_with_a_container_token(container: ContainerClient, letter: str) -> None:
    client = sas_client(container, container_token(container, permission=letter))
    require(client, lambda it: list(it.list_blobs()), letter == "l")


def test_container_tokens_cannot_manage_the_container(container: ContainerClient) -> None:
    with sas_client(container, container_token(container, permission="racwdl")) as client:
        with refused(403, "AuthorizationFailure"):
            client.delete_container()
        with refused(403, "AuthorizationFailure"):
            client.set_container_metadata({})
        with refused(403, "AuthorizationFailure"):
            client.get_container_access_policy()
    assert container.exists()


def test_tokens_are_limited_to_their_resource(
    service: BlobServiceClient, container: ContainerClient
) -> None:
    container.upload_blob("one", b"")
    container.upload_blob("two", b"")
    other = service.create_container(unique())
    other.upload_blob("one", b"")
    with sas_client(container, blob_token(container, "one")) as client:
        client.download_blob("one").readall()
        with refused(403, "AuthenticationFailed"):
            client.download_blob("two")
        with refused(403, "AuthenticationFailed"):
            list(client.list_blobs())
    with (
        sas_client(other, container_token(container)) as client,
        refused(403, "AuthenticationFailed"),
    ):
        client.download_blob("one")
    other.delete_container()


def test_account_tokens_on_the_service(server: Server) -> None:
    with sas_service(server, account_token("l", "s")) as client:
        list(client.list_containers())
        with refused(403, "AuthorizationResourceTypeMismatch"):
            client.create_container("never")
    client = sas_service(server, account_token("r", "s"))
    with client, refused(403, MISMATCH):
        list(client.list_containers())


def test_account_tokens_create_containers(server: Server, service: BlobServiceClient) -> None:
    for letter in "cw":
        token = account_token(letter, "c")
        with sas_service(server, token) as client:
            name = unique()
            client.create_container(name)
            service.delete_container(name)


def test_account_tokens_for_other_services(container: ContainerClient) -> None:
    token = account_token("r", "sco", services="q")
    with sas_client(container, token) as client, refused(403, "AuthorizationServiceMismatch"):
        client.get_container_properties()


# Validity, IP ranges, signatures


@pytest.mark.parametrize(
    ("start", "expiry", "valid"),
    [(-HOUR, HOUR, True), (HOUR, 2 * HOUR, False), (-2 * HOUR, -HOUR, False)],
    ids=["now", "later", "before"],
)
def test_times(
    container: ContainerClient, start: timedelta, expiry: timedelta, valid: bool
) -> None:
    container.upload_blob("old", b"")
    window = {"start": now() + start, "expiry": now() + expiry}
    for token in (
        container_token(container, **window),
        blob_token(container, "old", **window),
        account_token("r", "o", **window),
    ):
        with sas_client(container, token) as client:
            if valid:
                client.download_blob("old").readall()
            else:
                with refused(403, "AuthenticationFailed"):
                    client.download_blob("old")


def test_addresses(container: ContainerClient) -> None:
    container.upload_blob("old", b"")
    for addresses in ("127.0.0.1", "127.0.0.0-127.0.0.9"):
        with sas_client(container, container_token(container, ip=addresses)) as client:
            client.download_blob("old").readall()
    for addresses in ("10.0.0.1", "127.0.0.2-127.0.0.9"):
        client = sas_client(container, container_token(container, ip=addresses))
        with client, refused(403, "AuthorizationSourceIPMismatch"):
            client.download_blob("old")


def test_protocols(container: ContainerClient) -> None:
    container.upload_blob("old", b"")
    with sas_client(container, container_token(container, protocol="https,http")) as client:
        client.download_blob("old").readall()
    client = sas_client(container, container_token(container, protocol="https"))
    with client, refused(403, "AuthorizationProtocolMismatch"):
        client.download_blob("old")


def test_forged_tokens(container: ContainerClient) -> None:
    container.upload_blob("old", b"")
    for token in (
        container_token(container, account_key=WRONG_KEY),
        container_token(container).replace("sp=r", "sp=rw"),
    ):
        with sas_client(container, token) as client, refused(403, "AuthenticationFailed"):
            client.download_blob("old")


def test_tokens_replace_headers(container: ContainerClient) -> None:
    container.upload_blob("old", b"")
    token = blob_token(
        container, "old", content_type="text/x-other", content_disposition="attachment"
    )
    with sas_client(container, token) as client:
        shown = client.download_blob("old").properties.content_settings
    assert shown.content_type == "text/x-other"
    assert shown.content_disposition == "attachment"


# Stored policies


def test_policies_round_trip(container: ContainerClient) -> None:
    start, expiry = (now().replace(microsecond=0, tzinfo=None) + part for part in (-HOUR, HOUR))
    policies = {f"policy {n}": AccessPolicy("rl", expiry, start) for n in range(5)}
    container.set_container_access_policy(policies)
    found = container.get_container_access_policy()["signed_identifiers"]
    assert [identifier.id for identifier in found] == list(policies)
    for identifier in found:
        assert identifier.access_policy.permission == "rl"
        assert str(identifier.access_policy.start).startswith(start.isoformat())
        assert str(identifier.access_policy.expiry).startswith(expiry.isoformat())


def test_policies_take_effect_and_are_revoked_at_once(container: ContainerClient) -> None:
    container.upload_blob("old", b"content")
    token = container_token(container, permission=None, expiry=None, policy_id="it")
    with sas_client(container, token) as client:
        for _ in range(20):
            container.set_container_access_policy({"it": AccessPolicy("r", now() + HOUR)})
            assert client.download_blob("old").readall() == b"content"
            with refused(403, MISMATCH):
                client.delete_blob("old")
            container.set_container_access_policy({"it": AccessPolicy("l", now() + HOUR)})
            with refused(403, MISMATCH):
                client.download_blob("old")
            container.set_container_access_policy({"it": AccessPolicy("r", now() - HOUR)})
            with refused(403, "AuthenticationFailed"):
                client.download_blob("old")
            container.set_container_access_policy({})
            with refused(403, "AuthenticationFailed"):
                client.download_blob("old")


def test_tokens_supply_what_the_policy_leaves_out(container: ContainerClient) -> None:
    container.upload_blob("old", b"content")
    container.set_container_access_policy({"it": AccessPolicy(permission="r")})
    token = blob_token(container, "old", permission=None, policy_id="it")
    with sas_client(container, token) as client:
        assert client.download_blob("old").readall() == b"content"
    both = blob_token(container, "old", permission="r", policy_id="it")
    with sas_client(container, both) as client, refused(403, "AuthenticationFailed"):
        client.download_blob("old")


def test_a_lease_protects_the_policies(container: ContainerClient) -> None:
    lease = container.acquire_lease()
    container.set_container_access_policy({}, lease=lease)
    other = "11111111-2222-3333-4444-555555555555"
    with refused(412, "LeaseIdMismatchWithContainerOperation"):
        container.set_container_access_policy({}, lease=other)
    assert container.get_container_access_policy(lease=lease)["signed_identifiers"] == []
