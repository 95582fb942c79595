"""Clients of the services, with tokens of users or with signatures that they delegated."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any, Final

from azure.storage.blob import (
    BlobClient,
    BlobServiceClient,
    ContainerClient,
    generate_blob_sas,
    generate_container_sas,
)
from azure.storage.fileshare import (
    ShareFileClient,
    ShareServiceClient,
    generate_file_sas,
    generate_share_sas,
)
from azure.storage.queue import QueueClient, QueueServiceClient, generate_queue_sas

from tests.sdk.harness import HOUR, now
from tests.server import ACCOUNT, KEY, Server
from tests.tokens import StaticCredential, unsigned

ANNE: Final = "aaaaaaaa-0000-0000-0000-000000000001"
CONTENT: Final = b"content" * 512
BERT: Final = "bbbbbbbb-0000-0000-0000-000000000002"

_numbers = itertools.count()


def user(object_id: str = ANNE, *roles: str, **claims: Any) -> StaticCredential:
    """Returns a credential of a user. Each has another token."""
    return StaticCredential(
        unsigned(oid=object_id, roles=list(roles) or ["owners"], jti=str(next(_numbers)), **claims)
    )


Credential = StaticCredential | str | dict[str, str]
OWNER: Final = {"account_name": ACCOUNT, "account_key": KEY}
"""The credential with the account key."""


class Clients:
    """Makes clients of one server."""

    def __init__(self, server: Server, certificate: str) -> None:
        self.server = server
        self.options: Any = {"connection_verify": certificate, "retry_total": 0}

    def blobs(self, credential: Any = OWNER, account: str = ACCOUNT) -> BlobServiceClient:
        return BlobServiceClient(self.server.url("blob", account), credential, **self.options)

    def queues(self, credential: Any = OWNER) -> QueueServiceClient:
        return QueueServiceClient(self.server.url("queue"), credential, **self.options)

    def shares(self, credential: Any = OWNER) -> ShareServiceClient:
        if isinstance(credential, StaticCredential):
            return ShareServiceClient(
                self.server.url("file"), credential, token_intent="backup", **self.options
            )
        return ShareServiceClient(self.server.url("file"), credential, **self.options)

    def container(self, name: str | None = None) -> ContainerClient:
        """Creates a container, as the owner."""
        return self.blobs().create_container(name or new_name())

    def queue(self) -> QueueClient:
        return self.queues().create_queue(new_name())

    def file(self, content: bytes = b"content") -> ShareFileClient:
        share = self.shares().create_share(new_name())
        file = share.get_file_client("file")
        file.upload_file(content)
        return file

    def key(self, service: str, credential: StaticCredential, **options: Any) -> Any:
        """Returns a user delegation key that is valid for an hour."""
        terms = {"start": now() - timedelta(minutes=5), "expiry": now() + HOUR} | options
        makers: dict[str, Any] = {"blob": self.blobs, "queue": self.queues, "file": self.shares}
        client = makers[service](credential)
        if service == "blob":
            return client.get_user_delegation_key(terms.pop("start"), terms.pop("expiry"), **terms)
        return client.get_user_delegation_key(**terms)


def new_name() -> str:
    return f"delegated-{next(_numbers)}"


# Signatures


def container_sas(container: ContainerClient, key: Any, permission: str, **options: Any) -> str:
    return generate_container_sas(
        ACCOUNT, container.container_name, user_delegation_key=key, permission=permission,
        expiry=now() + HOUR, **options,
    )  # fmt: skip


def blob_sas(blob: BlobClient, key: Any, permission: str, **options: Any) -> str:
    return generate_blob_sas(
        ACCOUNT, blob.container_name, blob.blob_name, user_delegation_key=key,
        permission=permission, expiry=now() + HOUR, **options,
    )  # fmt: skip


def queue_sas(queue: QueueClient, key: Any, permission: str, **options: Any) -> str:
    return generate_queue_sas(
        ACCOUNT, queue.queue_name, user_delegation_key=key, permission=permission,
        expiry=now() + HOUR, **options,
    )  # fmt: skip


def share_sas(file: ShareFileClient, key: Any, permission: str, **options: Any) -> str:
    return generate_share_sas(
        ACCOUNT, file.share_name, user_delegation_key=key, permission=permission,
        expiry=now() + HOUR, **options,
    )  # fmt: skip


def file_sas(file: ShareFileClient, key: Any, permission: str, **options: Any) -> str:
    return generate_file_sas(
        ACCOUNT, file.share_name, ["file"], user_delegation_key=key, permission=permission,
        expiry=now() + HOUR, **options,
    )  # fmt: skip
