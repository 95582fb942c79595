"""Requests to a container that no SDK sends: paths, headers and bodies go out as they are given."""

from __future__ import annotations

import http.client
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import urlsplit

from azure.storage.blob import ContainerClient

from tests.sdk.blob.clients import container_token


class RawResponse(NamedTuple):
    """A response; the names of its headers are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> str:
        return self.headers.get("x-ms-error-code", "")


class RawContainerClient:
    """Sends requests below a container, authorized by a SAS token."""

    def __init__(self, container: ContainerClient) -> None:
        self._url = urlsplit(container.url)
        self._token = container_token(container, permission="rwcl")

    def send(
        self,
        method: str,
        path: str,
        headers: Iterable[tuple[str, str]] = (),
        body: bytes | None = None,
    ) -> RawResponse:
        connection = http.client.HTTPConnection(self._url.netloc, timeout=20)
        separator = "&" if "?" in path else "?"
        try:
            connection.putrequest(method, f"{self._url.path}{path}{separator}{self._token}")
            for name, value in headers:
                connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            response = connection.getresponse()
            received = {name.lower(): value for name, value in response.getheaders()}
            return RawResponse(response.status, received, response.read())
        finally:
            connection.close()
