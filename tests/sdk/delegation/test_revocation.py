"""Revocation of user delegation keys, under load and in every front end."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.storage.blob import ContainerClient

from tests.sdk.delegation.clients import BERT, Clients, container_sas, share_sas, user
from tests.sdk.delegation.test_keys import Delegated
from tests.sdk.harness import HOUR, now, refused
from tests.server import ACCOUNT, SECOND_ACCOUNT
from tests.test_cli import start

READERS = 4


class Reader(threading.Thread):
    """Reads until it is refused; every read has its own connection, and so any front end."""

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        super().__init__(daemon=True)
        self.admitted = threading.Event()
        self.refused = threading.Event()
        self._url = url
        self._options = options

    def run(self) -> None:
        while not self.refused.is_set():
            with ContainerClient.from_container_url(self._url, **self._options) as client:
                try:
                    list(client.list_blob_names())
                except ClientAuthenticationError:
                    self.refused.set()
                else:
                    self.admitted.set()


def revoke(clients: Clients, account: str) -> None:
    done = start("account", "revoke-delegation-keys", account, "--data", clients.server.directory)
    assert done.returncode == 0, done.stderr


def test_revocation_under_load(clients: Clients) -> None:
    container, file = clients.container(), clients.file()
    key, file_key = clients.key("blob", user()), clients.key("file", user(BERT))
    url = f"{container.primary_endpoint}?{container_sas(container, key, 'l')}"
    of_share = share_sas(file, file_key, "r")
    delegated = Delegated(clients)
    delegated.file(file, of_share).get_file_properties()
    other = clients.blobs(user(), SECOND_ACCOUNT)
    other_key = other.get_user_delegation_key(now(), now() + HOUR)
    readers = [Reader(url, clients.options) for _ in range(READERS)]
    for reader in readers:
        reader.start()
    for reader in readers:
        assert reader.admitted.wait(20)
    assert not any(reader.refused.is_set() for reader in readers)
    revoke(clients, ACCOUNT)
    # A request that begins now is refused, whichever front end gets it and whatever it has cached.
    for _ in range(8):
        with (
            pytest.raises(ClientAuthenticationError),
            ContainerClient.from_container_url(url, **clients.options) as client,
        ):
            list(client.list_blob_names())
    with refused(403, "AuthenticationFailed"):
        delegated.file(file, of_share).get_file_properties()
    for reader in readers:
        assert reader.refused.wait(20)
        reader.join(20)
    # Keys of other accounts, and new keys, are valid.
    assert other.get_user_delegation_key(now(), now() + HOUR).value
    renewed = clients.key("blob", user())
    assert renewed.value not in {key.value, other_key.value}
    url = f"{container.primary_endpoint}?{container_sas(container, renewed, 'l')}"
    with ContainerClient.from_container_url(url, **clients.options) as client:
        assert list(client.list_blob_names()) == []
