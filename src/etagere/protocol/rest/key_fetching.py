"""Fetches the keys of a token issuer over HTTP.

Redirects are not followed, and proxies of the environment are not used. This module is imported
only if keys have to be fetched, because the HTTP client takes a while to load.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Final

import aiohttp
from yarl import URL

from etagere.auth.key_set import KEY_SET_BYTES_MAX
from etagere.protocol.rest.key_sources import KeysUnavailable

_SECONDS_MAX: Final = 10.0
_HEADERS: Final = {
    "Accept": "application/json",
    "Accept-Encoding": "identity",
    "User-Agent": "etagere",
}


def fetcher(url: str) -> Callable[[], Coroutine[None, None, bytes]]:
    """Returns a function that fetches a key set."""
    address = URL(url)
    timeout = aiohttp.ClientTimeout(total=_SECONDS_MAX)

    async def fetch() -> bytes:
        try:
            async with (
                aiohttp.ClientSession(
                    timeout=timeout,
                    cookie_jar=aiohttp.DummyCookieJar(),
                    # A small compressed document can be a large one.
                    auto_decompress=False,
                    trust_env=False,
                ) as session,
                session.get(address, headers=_HEADERS, allow_redirects=False) as response,
            ):
                if response.status != 200:
                    raise KeysUnavailable(f"{address.host} answered {response.status}")
                return await _read(response)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            reason = type(error).__name__
            raise KeysUnavailable(f"{address.host} cannot be read: {reason}") from None

    return fetch


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """Returns the body, or as much of it as shows that it is too large."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > KEY_SET_BYTES_MAX:
            break
    return bytes(body)
