"""User delegation keys, and the shared access signatures that are signed with them."""

from __future__ import annotations

import base64
import time
from datetime import timedelta
from typing import Any

import pytest
from azure.storage.blob import BlobClient, ContainerClient
from azure.storage.fileshare import ShareFileClient
from azure.storage.queue import QueueClient

from tests.sdk.delegation.clients import (
    ANNE,
    BERT,
    OWNER,
    Clients,
    blob_sas,
    container_sas,
    file_sas,
    queue_sas,
    share_sas,
    user,
)
from tests.sdk.harness import HOUR, now, refused
from tests.server import SECOND_ACCOUNT
from tests.tokens import TENANT, StaticCredential

MISMATCH = (403, "AuthorizationPermissionMismatch")
FAILED = (403, "AuthenticationFailed")
LETTERS = {"blob": "b", "queue": "q", "file": "f"}


class Delegated:
    """Clients with signatures instead of the account key."""

    def __init__(self, clients: Clients) -> None:
        self.clients = clients
        self.options = clients.options

    def container(self, container: ContainerClient, sas: str, credential: Any = None) -> Any:
        url = f"{container.primary_endpoint}?{sas}"
        return ContainerClient.from_container_url(url, credential=credential, **self.options)

    def blob(self, blob: BlobClient, sas: str, credential: Any = None) -> BlobClient:
        url = f"{blob.primary_endpoint}?{sas}"
        return BlobClient.from_blob_url(url, credential=credential, **self.options)

    def queue(self, queue: QueueClient, sas: str, credential: Any = None) -> QueueClient:
        url = f"{queue.primary_endpoint}?{sas}"
        return QueueClient.from_queue_url(url, credential=credential, **self.options)

    def file(self, file: ShareFileClient, sas: str, credential: Any = None) -> ShareFileClient:
        url = f"{file.primary_endpoint}?{sas}"
        more: dict[str, Any] = {} if credential is None else {"token_intent": "backup"}
        return ShareFileClient.from_file_url(url, credential=credential, **more, **self.options)


@pytest.fixture(scope="module")
def delegated(clients: Clients) -> Delegated:
    return Delegated(clients)


# Keys


@pytest.mark.parametrize("service", LETTERS)
def test_keys(clients: Clients, service: str) -> None:
    key = clients.key(service, user())
    assert (key.signed_oid, key.signed_tid) == (ANNE, TENANT)
    assert key.signed_service == LETTERS[service]
    assert len(base64.b64decode(key.value)) == 32
    again = clients.key(service, user(), start=now(), expiry=now() + 2 * HOUR)
    assert again.value != key.value
    other = clients.key(service, user(BERT))
    assert other.value != key.value


@pytest.mark.parametrize("service", LETTERS)
def test_refused_keys(clients: Clients, service: str) -> None:
    week = timedelta(days=7)
    for start, expiry in (
        (now(), now() + week + HOUR),
        (now() + HOUR, now() + HOUR),
        (now() - 2 * HOUR, now() - HOUR),
        (now() + 2 * HOUR, now() + HOUR),
        (now() - week - HOUR, now() + HOUR),
    ):
        with refused(400, "InvalidXmlNodeValue"):
            clients.key(service, user(), start=start, expiry=expiry)
    with refused(*MISMATCH):
        clients.key(service, user(ANNE, "strangers"))
    with refused(*FAILED) as error:
        clients.key(service, OWNER)  # type: ignore[arg-type]
    assert "Bearer" in error.details["authenticationerrordetail"]


def test_who_may_get_keys(clients: Clients) -> None:
    for roles, services in (("delegators", "b"), ("senders", "q"), ("readers", "bqf")):
        for service, letter in LETTERS.items():
            if letter in services:
                clients.key(service, user(BERT, roles))
            else:
                with refused(*MISMATCH):
                    clients.key(service, user(BERT, roles))


# Signatures


def test_blobs(clients: Clients, delegated: Delegated) -> None:
    key = clients.key("blob", user())
    container = clients.container()
    blob = container.upload_blob("a/b", b"content")
    reader = delegated.container(container, container_sas(container, key, "rl"))
    for _ in range(3):
        assert list(reader.list_blob_names()) == ["a/b"]
        assert reader.download_blob("a/b").readall() == b"content"
    with refused(*MISMATCH):
        reader.upload_blob("c", b"")
    alone = delegated.blob(blob, blob_sas(blob, key, "rw"))
    alone.upload_blob(b"changed", overwrite=True)
    assert alone.download_blob().readall() == b"changed"
    snapshot = blob.create_snapshot()["snapshot"]
    shown = blob_sas(blob, key, "r", snapshot=snapshot)
    url = f"{blob.primary_endpoint}?snapshot={snapshot}&{shown}"
    of_snapshot = BlobClient.from_blob_url(url, **clients.options)
    assert of_snapshot.download_blob().readall() == b"changed"
    with refused(*FAILED):
        delegated.blob(container.get_blob_client("c"), blob_sas(blob, key, "r")).exists()
    # Response headers, and required headers and parameters.
    sas = blob_sas(blob, key, "r", content_type="text/x-made-up")
    answer = delegated.blob(blob, sas).get_blob_properties()
    assert answer.content_settings.content_type == "text/x-made-up"
    sas = blob_sas(blob, key, "r", request_headers={"x-ms-purpose": "mine"})
    delegated.blob(blob, sas).get_blob_properties(headers={"x-ms-purpose": "mine"})
    with refused(*FAILED):
        delegated.blob(blob, sas).get_blob_properties(headers={"x-ms-purpose": "other"})


def test_queues(clients: Clients, delegated: Delegated) -> None:
    key = clients.key("queue", user())
    queue = clients.queue()
    sender = delegated.queue(queue, queue_sas(queue, key, "a"))
    sender.send_message("text")
    with refused(*MISMATCH):
        sender.receive_message()
    receiver = delegated.queue(queue, queue_sas(queue, key, "rp"))
    message = receiver.receive_message()
    assert message is not None
    assert message.content == "text"
    with refused(*FAILED):
        delegated.queue(clients.queue(), queue_sas(queue, key, "a")).send_message("text")


def test_files(clients: Clients, delegated: Delegated) -> None:
    key = clients.key("file", user())
    file = clients.file()
    for sas in (share_sas(file, key, "rl"), file_sas(file, key, "r")):
        reader = delegated.file(file, sas)
        for _ in range(2):
            assert reader.download_file().readall() == b"content"
        with refused(*MISMATCH):
            reader.delete_file()
    writer = delegated.file(file, file_sas(file, key, "rw"))
    writer.upload_range(b"CON", 0, 3)
    assert writer.download_file().readall() == b"CONtent"


def test_a_key_is_for_one_service_and_account(clients: Clients, delegated: Delegated) -> None:
    queue, file = clients.queue(), clients.file()
    key = clients.key("blob", user())
    with refused(*FAILED):
        delegated.queue(queue, queue_sas(queue, key, "a")).send_message("text")
    with refused(*FAILED):
        delegated.file(file, share_sas(file, key, "r")).get_file_properties()
    key.signed_service = "q"
    with refused(*FAILED):
        delegated.queue(queue, queue_sas(queue, key, "a")).send_message("text")
    other = clients.blobs(user(), SECOND_ACCOUNT).get_user_delegation_key(now(), now() + HOUR)
    container = clients.container()
    with refused(*FAILED):
        delegated.container(container, container_sas(container, other, "l")).exists()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("signed_oid", BERT),
        ("signed_tid", ANNE),
        ("signed_start", "2020-01-01T00:00:00Z"),
        ("signed_expiry", "2040-01-01T00:00:00Z"),
        ("signed_version", "2025-07-05"),
        ("signed_delegated_user_tid", TENANT),
        ("value", base64.b64encode(bytes(32)).decode()),
        ("signed_oid", "\udcff" * 3),
    ],
)
def test_changed_keys(clients: Clients, delegated: Delegated, field: str, value: str) -> None:
    clients.key("blob", user(BERT))
    key = clients.key("blob", user(ANNE))
    container = clients.container()
    sas = container_sas(container, key, "l")
    assert list(delegated.container(container, sas).list_blob_names()) == []
    if "\udcff" in value:
        sas = sas.replace(ANNE, "%FF%FF")
    else:
        setattr(key, field, value)
        sas = container_sas(container, key, "l")
    with refused(*FAILED):
        list(delegated.container(container, sas).list_blob_names())


def test_keys_that_are_not_valid_now(clients: Clients, delegated: Delegated) -> None:
    container = clients.container()
    later = clients.key("blob", user(), start=now() + HOUR, expiry=now() + 2 * HOUR)
    with refused(*FAILED):
        delegated.container(container, container_sas(container, later, "l")).exists()


# Rights of the user


def test_rights_limit_signatures(clients: Clients, delegated: Delegated) -> None:
    container, queue, file = clients.container(), clients.queue(), clients.file()
    container.upload_blob("blob", b"content")
    key = clients.key("blob", user(BERT, "readers"))
    client = delegated.container(container, container_sas(container, key, "rwdlct"))
    assert client.download_blob("blob").readall() == b"content"
    assert list(client.list_blob_names()) == ["blob"]
    with refused(*MISMATCH):
        client.upload_blob("new", b"")
    with refused(*MISMATCH):
        client.upload_blob("blob", b"", overwrite=True)
    with refused(*MISMATCH):
        client.delete_blob("blob")
    with refused(*MISMATCH):
        client.get_blob_client("blob").get_blob_tags()
    key = clients.key("queue", user(BERT, "senders"))
    sender = delegated.queue(queue, queue_sas(queue, key, "raup"))
    sender.send_message("text")
    with refused(*MISMATCH):
        sender.receive_message()
    with refused(*MISMATCH):
        sender.peek_messages()
    with refused(*MISMATCH):
        sender.get_queue_properties()
    key = clients.key("file", user(BERT, "readers"))
    reader = delegated.file(file, share_sas(file, key, "rwdlc"))
    assert reader.download_file().readall() == b"content"
    with refused(*MISMATCH):
        reader.delete_file()


def test_a_delegator_has_nothing_to_delegate(clients: Clients, delegated: Delegated) -> None:
    container = clients.container()
    key = clients.key("blob", user(BERT, "delegators"))
    with refused(*MISMATCH):
        list(delegated.container(container, container_sas(container, key, "rl")).list_blob_names())


def test_rights_that_change(clients: Clients, delegated: Delegated) -> None:
    """The rights of the last token that the server saw are those that count."""
    container = clients.container()
    key = clients.key("blob", user(BERT, "writers"))
    client = delegated.container(container, container_sas(container, key, "rwl"))
    client.upload_blob("one", b"")
    list(clients.blobs(user(BERT, "readers")).list_containers())
    with refused(*MISMATCH):
        client.upload_blob("two", b"")
    assert list(client.list_blob_names()) == ["one"]
    # An older token that is still valid changes nothing.
    older = int(time.time()) - 60
    list(clients.blobs(user(BERT, "owners", iat=older)).list_containers())
    clients.key("blob", user(BERT, "owners", iat=older))
    with refused(*MISMATCH):
        client.upload_blob("two", b"")
    list(clients.blobs(user(BERT, "owners")).list_containers())
    client.upload_blob("two", b"")


# Signatures for one user


def test_signatures_for_one_user(clients: Clients, delegated: Delegated) -> None:
    container, queue, file = clients.container(), clients.queue(), clients.file()
    blob = container.upload_blob("blob", b"content")
    keys = {service: clients.key(service, user(ANNE)) for service in LETTERS}
    bound = {"user_delegation_oid": BERT}

    def calls(credential: StaticCredential | None) -> list[Any]:
        of_container = container_sas(container, keys["blob"], "rl", **bound)
        return [
            lambda: list(
                delegated.container(container, of_container, credential).list_blob_names()
            ),
            delegated.blob(
                blob, blob_sas(blob, keys["blob"], "r", **bound), credential
            ).get_blob_properties,
            delegated.queue(
                queue, queue_sas(queue, keys["queue"], "r", **bound), credential
            ).get_queue_properties,
            delegated.file(
                file, share_sas(file, keys["file"], "r", **bound), credential
            ).get_file_properties,
        ]

    for _ in range(2):
        # Bert needs no rights of his own.
        for call in calls(user(BERT, "strangers")):
            call()
        for credential in (user(ANNE), user(BERT, tid=ANNE), None):
            for call in calls(credential):
                with refused(*FAILED):
                    call()


def test_signatures_for_a_user_of_another_tenant(clients: Clients, delegated: Delegated) -> None:
    container = clients.container()
    other = "cccccccc-0000-0000-0000-000000000003"
    key = clients.key("blob", user(ANNE), delegated_user_tid=other)
    assert key.signed_delegated_user_tid == other
    sas = container_sas(container, key, "l", user_delegation_oid=BERT)
    client = delegated.container(container, sas, user(BERT, tid=other.upper()))
    assert list(client.list_blob_names()) == []
    with refused(*FAILED):
        list(delegated.container(container, sas, user(BERT)).list_blob_names())


def test_a_bearer_token_wins_over_other_signatures(clients: Clients, delegated: Delegated) -> None:
    container = clients.container()
    sas = container_sas(container, clients.key("blob", user()), "rwl")
    with refused(*MISMATCH):
        delegated.container(container, sas, user(BERT, "strangers")).upload_blob("blob", b"")
