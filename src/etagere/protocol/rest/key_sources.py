"""Where the keys of token issuers come from: a file, or a URL.

Issuers replace their keys now and then, and publish a new key some time before they sign with it. A
file is read again when it changes. A URL is fetched periodically, and in between when a token names
a key that is not known; but seldom, because anybody can send such tokens. If keys cannot be read,
the last ones stay in use.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, Protocol

from etagere.auth.key_set import KEY_SET_BYTES_MAX, BadKeySet, KeySet, parse_key_set
from etagere.directories import read_regular
from etagere.jobs.supervision import RoundFailed

logger = logging.getLogger(__name__)

REFRESH_SECONDS: Final = 300.0
"""The pause between two fetches of a URL."""
UNKNOWN_KEY_PAUSE_SECONDS: Final = 10.0
"""The shortest time between two fetches because of unknown keys."""
_WAIT_SECONDS_MAX: Final = 5.0
"""How long a request waits for keys."""
_CHECK_FILE_SECONDS: Final = 1.0

Monotonic = Callable[[], float]


class KeysUnavailable(RoundFailed):
    """The keys cannot be read; the message says why, without secrets."""


class KeySource(Protocol):
    """The current keys of the issuers."""

    def current(self) -> KeySet: ...

    async def renewed(self) -> KeySet:
        """Returns the keys after an attempt to read them again, if it is time for one."""
        ...


class FileKeys:
    """Keys in a file. Raises `KeysUnavailable` if it cannot be read at first."""

    def __init__(self, path: Path, monotonic: Monotonic = time.monotonic) -> None:
        self._path = path
        self._monotonic = monotonic
        self._version = self._stat()
        self._keys = self._read()
        self._checked = monotonic()

    def current(self) -> KeySet:
        if self._monotonic() - self._checked >= _CHECK_FILE_SECONDS:
            self._check()
        return self._keys

    async def renewed(self) -> KeySet:
        # Files are small and local; to look whether one has changed takes microseconds.
        self._check()
        return self._keys

    def _check(self) -> None:
        self._checked = self._monotonic()
        version = self._stat()
        if version == self._version:
            return
        self._version = version
        try:
            self._keys = self._read()
        except KeysUnavailable as error:
            logger.warning("%s; the last keys stay in use", error)
        else:
            logger.info("%s was read again: %d keys", self._path, len(self._keys))

    def _stat(self) -> tuple[int, int, int] | None:
        """Returns what changes with the file; None if it is not there."""
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _read(self) -> KeySet:
        try:
            return parse_key_set(read_regular(self._path, KEY_SET_BYTES_MAX))
        except OSError as error:
            raise KeysUnavailable(f"{self._path} cannot be read: {error.strerror}") from None
        except BadKeySet as error:
            raise KeysUnavailable(f"{self._path} {error}") from None


class FetchedKeys:
    """Keys at a URL; none until the first fetch has succeeded."""

    def __init__(
        self, fetch: Callable[[], Awaitable[bytes]], monotonic: Monotonic = time.monotonic
    ) -> None:
        """`fetch` returns the set as text, at most one byte more than allowed; raises
        `KeysUnavailable`."""
        self._fetch = fetch
        self._monotonic = monotonic
        self._text = b""
        self._keys = KeySet({})
        self._fetching: asyncio.Task[None] | None = None
        self._renewed = -UNKNOWN_KEY_PAUSE_SECONDS

    def current(self) -> KeySet:
        return self._keys

    async def renewed(self) -> KeySet:
        if self._fetching is None:
            now = self._monotonic()
            if now - self._renewed < UNKNOWN_KEY_PAUSE_SECONDS:
                return self._keys
            self._renewed = now
        try:
            async with asyncio.timeout(_WAIT_SECONDS_MAX):
                await self.refresh()
        except TimeoutError:
            logger.warning("the keys of the token issuer could not be fetched in time")
        except KeysUnavailable as error:
            logger.warning("the keys of the token issuer could not be fetched: %s", error)
        return self._keys

    async def refresh(self) -> None:
        """Fetches the keys, or waits for the fetch under way; raises `KeysUnavailable`."""
        if self._fetching is None:
            self._fetching = asyncio.create_task(self._replace())
            # Nobody may be left to see how it ends.
            self._fetching.add_done_callback(lambda task: task.cancelled() or task.exception())
        # A caller that gives up does not end the fetch, for which others may wait.
        await asyncio.shield(self._fetching)

    async def _replace(self) -> None:
        try:
            text = await self._fetch()
            if text == self._text:
                # Tokens that were verified with these keys stay known.
                return
            self._keys = parse_key_set(text)
            self._text = text
            logger.info("the keys of the token issuer were fetched: %d keys", len(self._keys))
        except BadKeySet as error:
            raise KeysUnavailable(f"the document {error}") from None
        finally:
            self._fetching = None
