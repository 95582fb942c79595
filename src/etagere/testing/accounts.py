"""An account of a server for tests: its addresses, connection strings, tokens and clients."""

from __future__ import annotations

import base64
import hashlib
import hmac
import importlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

if TYPE_CHECKING:
    from azure.data.tables import TableServiceClient
    from azure.storage.blob import BlobServiceClient
    from azure.storage.fileshare import ShareServiceClient
    from azure.storage.queue import QueueServiceClient

_SAS_VERSION: Final = "2022-11-02"
_SAS_LIFETIME: Final = timedelta(hours=1)
# The clocks of a client and a server on one machine are the same, but both round.
_CLOCK_SKEW: Final = timedelta(minutes=5)


class Account:
    """An account of a running server. Its `repr` does not show the key."""

    def __init__(
        self,
        name: str,
        key: str,
        endpoints: Mapping[str, str],
        authority: Path | None = None,
    ) -> None:
        self.name: Final = name
        self.key: Final = key
        """In base64, as in connection strings."""
        self.authority: Final = authority
        """The certificate of the CA that clients have to trust, if the server has a CA of its own;
        `blob_service` and the other clients do."""
        self._endpoints = endpoints

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def url(self, service: str) -> str:
        """Returns the URL of the account in a service: `blob`, `queue`, `table` or `file`."""
        return f"{self._endpoints[service]}/{self.name}"

    @property
    def connection_string(self) -> str:
        """The connection string of the account in all services, with its key."""
        scheme = self._endpoints["blob"].partition(":")[0]
        start = f"DefaultEndpointsProtocol={scheme};AccountName={self.name};AccountKey={self.key}"
        return f"{start};{self._endpoint_fields()}"

    def sas_connection_string(self, token: str | None = None) -> str:
        """Returns a connection string without the key, with this token: by default one that `sas`
        returns."""
        return f"{self._endpoint_fields()};SharedAccessSignature={token or self.sas()}"

    def _endpoint_fields(self) -> str:
        services = ("blob", "queue", "table", "file")
        return ";".join(f"{name.capitalize()}Endpoint={self.url(name)}" for name in services)

    def sas(
        self,
        permissions: str | None = None,
        *,
        services: str = "bqtf",
        resource_types: str = "sco",
        lifetime: timedelta = _SAS_LIFETIME,
    ) -> str:
        """Returns an account SAS, which is a query without the `?`.

        `permissions` (default: all), `services` and `resource_types` are the letters of the
        service. A token with a negative lifetime has expired.
        """
        # Not before: they take some time, and few tests need tokens.
        from etagere.auth.principal import TokenKind  # noqa: PLC0415
        from etagere.auth.sas import ACCOUNT_LETTERS  # noqa: PLC0415
        from etagere.auth.sas_signature import signed_names  # noqa: PLC0415

        now = datetime.now(UTC)
        fields = {
            "sv": _SAS_VERSION,
            "ss": services,
            "srt": resource_types,
            "sp": ACCOUNT_LETTERS if permissions is None else permissions,
            "st": _instant(now + min(timedelta(), lifetime) - _CLOCK_SKEW),
            "se": _instant(now + lifetime),
        }
        names = signed_names(TokenKind.ACCOUNT, "", _SAS_VERSION)
        assert names is not None
        signed = {**fields, "account": self.name}
        message = "\n".join(signed.get(name, "") for name in names)
        digest = hmac.digest(base64.b64decode(self.key), message.encode(), hashlib.sha256)
        return urlencode({**fields, "sig": base64.b64encode(digest).decode()})

    # Clients of the SDKs

    def blob_service(self, **options: Any) -> BlobServiceClient:
        """Returns a new client of Blob, with these options of the SDK. Close it after use."""
        client: BlobServiceClient = self._client("azure.storage.blob", "BlobServiceClient", options)
        return client

    def queue_service(self, **options: Any) -> QueueServiceClient:
        """Returns a new client of Queue, with these options of the SDK. Close it after use."""
        client: QueueServiceClient = self._client(
            "azure.storage.queue", "QueueServiceClient", options
        )
        return client

    def table_service(self, **options: Any) -> TableServiceClient:
        """Returns a new client of Table, with these options of the SDK. Close it after use."""
        client: TableServiceClient = self._client(
            "azure.data.tables", "TableServiceClient", options
        )
        return client

    def share_service(self, **options: Any) -> ShareServiceClient:
        """Returns a new client of File, with these options of the SDK. Close it after use."""
        client: ShareServiceClient = self._client(
            "azure.storage.fileshare", "ShareServiceClient", options
        )
        return client

    def _client(self, module: str, name: str, options: Mapping[str, Any]) -> Any:
        client = getattr(_sdk(module), name)
        trust = {} if self.authority is None else {"connection_verify": str(self.authority)}
        return client.from_connection_string(self.connection_string, **{**trust, **options})


_DISTRIBUTIONS: Final = {
    "azure.storage.blob": "azure-storage-blob",
    "azure.storage.queue": "azure-storage-queue",
    "azure.data.tables": "azure-data-tables",
    "azure.storage.fileshare": "azure-storage-file-share",
}


def _sdk(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise
        raise ModuleNotFoundError(
            f"{module} is not installed: run `pip install {_DISTRIBUTIONS[module]}`, or "
            "`pip install etagere[pytest]` for the SDKs of all services",
            name=error.name,
        ) from None


def _instant(when: datetime) -> str:
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")
