"""Delegation: a user signs a URL, and whoever has it can read one blob for an hour.

The signature is made with a user delegation key instead of the account key, so the service that
signs URLs needs no account key, and a URL never grants more than the user who signed it has.

Start the server with `--oauth development --tls self-signed`. It then accepts the token below,
which nobody signed, and HTTPS, without which the SDKs send no token. Set `REQUESTS_CA_BUNDLE` to
the CA, and `AZURE_STORAGE_CONNECTION_STRING` to the connection string; the server prints both. With
the real service, or with an identity provider, use a credential of azure-identity instead.
"""

from __future__ import annotations

import base64
import json
import os
import time
import uuid
from datetime import UTC, datetime, timedelta

from azure.core.credentials import AccessToken
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import (
    BlobClient,
    BlobSasPermissions,
    BlobServiceClient,
    UserDelegationKey,
    generate_blob_sas,
)

CONNECTION = os.environ.get("AZURE_STORAGE_CONNECTION_STRING", "UseDevelopmentStorage=true")
HOUR = timedelta(hours=1)


class DevelopmentCredential:
    """A token for development: it names a user, and is not signed."""

    def __init__(self, user: str) -> None:
        self._user = str(uuid.uuid5(uuid.NAMESPACE_DNS, user))

    def get_token(self, *scopes: str, **options: object) -> AccessToken:
        expiry = int(time.time()) + 3600
        claims = {"aud": "https://storage.azure.com", "exp": expiry, "oid": self._user}
        parts = ({"alg": "none", "typ": "JWT"}, claims)
        encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()) for part in parts]
        return AccessToken(".".join([part.decode().rstrip("=") for part in encoded]) + ".", expiry)


def key_of_user(url: str, user: str) -> UserDelegationKey:
    now = datetime.now(UTC)
    with BlobServiceClient(url, DevelopmentCredential(user)) as service:
        # A key may start earlier, in case the clocks differ, and lasts for up to seven days.
        return service.get_user_delegation_key(now - HOUR, now + HOUR)


def signed_url(report: BlobClient, key: UserDelegationKey) -> str:
    token = generate_blob_sas(
        account_name=report.account_name or "",
        container_name=report.container_name,
        blob_name=report.blob_name,
        user_delegation_key=key,
        permission=BlobSasPermissions(read=True),
        expiry=datetime.now(UTC) + HOUR,
    )
    return f"{report.url}?{token}"


def main() -> None:
    with BlobServiceClient.from_connection_string(CONNECTION) as service:
        container = service.create_container(f"example-{uuid.uuid4()}")
        try:
            report = container.upload_blob("report.txt", "The figures of May")
            key = key_of_user(service.url, "alice")
            url = signed_url(report, key)
            # Bob needs nothing but the URL.
            with BlobClient.from_blob_url(url) as shared:
                print(f"Bob reads: {shared.download_blob(encoding='utf-8').readall()}")
                try:
                    shared.upload_blob("by Bob", overwrite=True)
                except HttpResponseError as error:
                    print(f"Bob cannot write: {error.message.splitlines()[0]}")
        finally:
            container.delete_container()


if __name__ == "__main__":
    main()
