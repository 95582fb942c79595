"""Values of settings that have a syntax of their own: accounts and the sources of copies."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from typing import Final

ACCOUNT_NAME_LENGTH_MIN = 3
ACCOUNT_NAME_LENGTH_MAX = 24
ACCOUNT_NAME: Final = re.compile(r"[a-z0-9]+")
# The block size of HMAC-SHA256, which hashes longer keys first; the service's keys have 64 bytes.
KEY_BYTES_MAX = 64
PORT_MAX = 65_535


# Accounts


@dataclass(frozen=True)
class ConfiguredAccount:
    """An account that is configured rather than stored, with one or two keys."""

    name: str
    keys: tuple[bytes, ...] = field(repr=False)


def decode_key(text: str) -> bytes:
    """Decodes an account key from base64. Raises ValueError, without showing the text, if the text
    is not a key."""
    try:
        key = base64.b64decode(text, validate=True)
    except ValueError:
        # Without the cause, which may show the text.
        raise ValueError("is not base64") from None
    if not 1 <= len(key) <= KEY_BYTES_MAX:
        raise ValueError(f"must have 1 to {KEY_BYTES_MAX} bytes, not {len(key)}")
    return key


DEVELOPMENT_ACCOUNT: Final = ConfiguredAccount(
    "devstoreaccount1",
    (
        decode_key(
            "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/"
            "K1SZFPTOtr/KBHBeksoGMGw=="
        ),
    ),
)
"""The account that every SDK uses for `UseDevelopmentStorage=true`. Its key is public."""


ACCOUNT_NAME_SYNTAX: Final = (
    f"{ACCOUNT_NAME_LENGTH_MIN} to {ACCOUNT_NAME_LENGTH_MAX} lowercase letters and digits"
)


def is_account_name(text: str) -> bool:
    long_enough = ACCOUNT_NAME_LENGTH_MIN <= len(text) <= ACCOUNT_NAME_LENGTH_MAX
    return long_enough and ACCOUNT_NAME.fullmatch(text) is not None


def parse_account(text: str) -> ConfiguredAccount:
    """Parses `NAME:KEY[:KEY2]`. Raises ValueError if the text has another form."""
    name, *keys = text.strip().split(":")
    if not 1 <= len(keys) <= 2:
        raise ValueError("must be NAME:KEY or NAME:KEY:KEY2")
    if not is_account_name(name):
        raise ValueError(f"its name must be {ACCOUNT_NAME_SYNTAX}")
    if name == DEVELOPMENT_ACCOUNT.name:
        raise ValueError(f"the keys of {name}, which is built in, cannot be changed")
    return ConfiguredAccount(name, tuple(map(_nth_key, (1, 2), keys)))


def _nth_key(number: int, text: str) -> bytes:
    try:
        return decode_key(text)
    except ValueError as error:
        raise ValueError(f"its key {number} {error}") from None


# Sources of copies


@dataclass(frozen=True)
class CopySource:
    """A server that copies may read from."""

    host: str
    """In lower case and without brackets; compared with the host in the URL of a source."""
    port: int | None
    """None: the default port of HTTP or HTTPS."""


_COPY_SOURCE: Final = re.compile(
    r"(?P<host>[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{1,5}))?", re.ASCII
)


def parse_copy_source(text: str) -> CopySource:
    """Parses `HOST[:PORT]`. Raises ValueError if the text has another form, such as a URL."""
    found = _COPY_SOURCE.fullmatch(text.strip().lower())
    port = int(found["port"]) if found is not None and found["port"] else None
    if found is None or (port is not None and not 1 <= port <= PORT_MAX):
        raise ValueError("must be HOST or HOST:PORT")
    return CopySource(found["host"].strip("[]"), port)
