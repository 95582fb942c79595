"""Reads sources on other servers over HTTP.

Only hosts that the operator listed are read. Redirects are not followed, since they lead to other
URLs; proxies and passwords of the environment are not used; cookies are not kept. Bytes are
received as they are sent, never decompressed, and only as fast as they are written.

This module is imported only if other servers may be read, because the HTTP client takes a while to
load.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import aiohttp
from yarl import URL

from etagere.protocol.http.ranges import Range
from etagere.protocol.sources.addresses import SourceAddress
from etagere.protocol.sources.remote import RemoteSource, failed, metadata_of

_CONNECTIONS_MAX = 64
_CONNECT_SECONDS_MAX = 10.0
_SILENCE_SECONDS_MAX = 30.0
_CHUNK_BYTES = 256 << 10
_HEADER_BYTES_MAX = 16 << 10
_FAILURES = (aiohttp.ClientError, TimeoutError, OSError, ValueError)


class Fetcher:
    """An HTTP client for sources on other servers."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def fetch(
        self,
        address: SourceAddress,
        conditions: Mapping[str, str],
        asked: Range | None,
        bytes_max: int | None,
        seconds_max: float | None,
    ) -> RemoteSource:
        """Returns the response once its head has arrived. Raises `Refused` if it has no bytes, or
        too many."""
        headers = {"Accept-Encoding": "identity", "User-Agent": "etagere", **conditions}
        if asked is not None:
            headers["Range"] = f"bytes={asked.start}-{'' if asked.end is None else asked.end}"
            if asked.end is not None:
                # Nothing more is read from a server that does not send what was requested.
                count = asked.end + 1 - asked.start
                bytes_max = count if bytes_max is None else min(bytes_max, count)
        timeout = aiohttp.ClientTimeout(
            total=seconds_max, connect=_CONNECT_SECONDS_MAX, sock_read=_SILENCE_SECONDS_MAX
        )
        try:
            response = await self._opened().get(
                _url(address), headers=headers, timeout=timeout, allow_redirects=False
            )
        except _FAILURES as error:
            raise failed(address.authority, error) from None
        fields = {name.lower(): value for name, value in response.headers.items()}
        received = _received(address, response)
        source = RemoteSource(
            address,
            response.status,
            fields,
            metadata_of(response.headers.items()),
            received,
            response.close,
            bytes_max,
        )
        try:
            source.require_bytes(asked)
        except BaseException:
            response.close()
            raise
        return source

    def _opened(self) -> aiohttp.ClientSession:
        """Creates the session in the running event loop."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=_CONNECTIONS_MAX, force_close=True),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
                max_line_size=_HEADER_BYTES_MAX,
                max_field_size=_HEADER_BYTES_MAX,
            )
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


def _url(address: SourceAddress) -> URL:
    """Builds the URL from the checked parts, without parsing it again."""
    return URL.build(
        scheme=address.scheme,
        host=address.host,
        port=address.port,
        path=address.path,
        query_string=address.query,
        encoded=True,
    )


async def _received(
    address: SourceAddress, response: aiohttp.ClientResponse
) -> AsyncIterator[bytes]:
    try:
        async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
            yield chunk
    except _FAILURES as error:
        raise failed(address.authority, error) from None
