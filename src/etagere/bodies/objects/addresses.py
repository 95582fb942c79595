"""Addresses of object stores: `SCHEME://NAME[/PREFIX][?OPTION=VALUE&…]`."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

_PREFIX: Final = re.compile(r"(?:[A-Za-z0-9._-]+/)*[A-Za-z0-9._-]+")
_PREFIX_CHARACTERS_MAX: Final = 512


class InvalidStore(ValueError):
    """An object store cannot be opened: its address is invalid, or something that the address names
    is missing. The message does not show the address, which may contain keys."""


class StoreUrl(NamedTuple):
    """The parts of an address."""

    name: str
    """Of a bucket or a pool; not checked."""
    prefix: str
    options: dict[str, str]


def split_store_url(
    url: str, scheme: str, form: str, options: Collection[str], keys: str
) -> StoreUrl:
    """Splits an address. `form` describes valid ones, and `keys` says where keys belong. Raises
    `InvalidStore`."""
    try:
        parts = urlsplit(url)
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise InvalidStore(f"must be {form}") from None
    if parts.scheme != scheme or parts.fragment:
        raise InvalidStore(f"must be {form}")
    if "@" in parts.netloc:
        raise InvalidStore(f"must not contain keys: {keys}")
    prefix = unquote(parts.path).strip("/")
    if prefix and (len(prefix) > _PREFIX_CHARACTERS_MAX or not _PREFIX.fullmatch(prefix)):
        raise InvalidStore("has an invalid prefix: use letters, digits and characters of ._-/")
    found = dict(pairs)
    if len(found) < len(pairs):
        raise InvalidStore("has an option twice")
    if not found.keys() <= set(options):
        raise InvalidStore(f"has an unknown option; the options are {', '.join(sorted(options))}")
    return StoreUrl(parts.netloc, prefix, found)
