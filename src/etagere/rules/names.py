"""Rules for the names of containers, blobs and metadata.

Lengths are counted in UTF-16 units, as the service does: a character outside the basic plane counts
twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from etagere.errors import Refusal

CONTAINER_NAME_LENGTH_MIN = 3
CONTAINER_NAME_LENGTH_MAX = 63
BLOB_NAME_LENGTH_MAX = 1024
BLOB_NAME_SEGMENTS_MAX = 254
METADATA_BYTES_MAX = 8 * 1024

NAME_LENGTH_MESSAGE: Final = (
    "The specified resource name length is not within the permissible limits."
)
"""Replaces the general message of `OutOfRangeInput` where a name is too short or too long."""

ROOT_CONTAINER: Final = "$root"
LOGS_CONTAINER: Final = "$logs"
RESERVED_CONTAINERS: Final = frozenset({ROOT_CONTAINER, "$web", LOGS_CONTAINER})
"""The names with a special meaning; no other name begins with a dollar sign."""

# Letters and digits, with single hyphens only between them.
_CONTAINER_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
# C# identifiers that are valid in an HTTP header name.
_METADATA_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_METADATA_VALUE = re.compile(r"[\t\x20-\x7e]*")
_SURROGATE = re.compile("[\ud800-\udfff]")


def check_container_name(name: str) -> Refusal | None:
    if name in RESERVED_CONTAINERS:
        return None
    if not CONTAINER_NAME_LENGTH_MIN <= utf16_length(name) <= CONTAINER_NAME_LENGTH_MAX:
        return _out_of_range("ContainerName", CONTAINER_NAME_LENGTH_MIN, CONTAINER_NAME_LENGTH_MAX)
    if _CONTAINER_NAME.fullmatch(name) is None:
        return Refusal("InvalidResourceName")
    return None


def check_container_write(name: str) -> Refusal | None:
    """Clients may read the logs and delete them, but write nothing into their container and not
    change, create or delete the container itself."""
    return Refusal("InsufficientAccountPermissions") if name == LOGS_CONTAINER else None


def check_blob_name(name: str) -> Refusal | None:
    """Checks a blob name. All characters are allowed, but no lone surrogates, which have no UTF-8
    form."""
    if _SURROGATE.search(name) is not None:
        return Refusal("InvalidResourceName")
    if not 1 <= utf16_length(name) <= BLOB_NAME_LENGTH_MAX:
        return _out_of_range("BlobName", 1, BLOB_NAME_LENGTH_MAX)
    if name.count("/") >= BLOB_NAME_SEGMENTS_MAX:
        return _out_of_range("BlobNameSegments", 1, BLOB_NAME_SEGMENTS_MAX)
    return None


def check_metadata(pairs: Iterable[tuple[str, str]]) -> Refusal | None:
    """Checks metadata; names are without `x-ms-meta-`. They keep their case, but must differ in
    more than case."""
    seen: set[str] = set()
    size_bytes = 0
    for name, value in pairs:
        if not name:
            return Refusal("EmptyMetadataKey")
        if _METADATA_NAME.fullmatch(name) is None or _METADATA_VALUE.fullmatch(value) is None:
            return Refusal("InvalidMetadata", {"Name": name})
        if name.lower() in seen:
            return Refusal("InvalidMetadata", {"Name": name})
        seen.add(name.lower())
        size_bytes += len(name) + len(value)
    if size_bytes > METADATA_BYTES_MAX:
        return Refusal("MetadataTooLarge", {"Bytes": size_bytes, "BytesMax": METADATA_BYTES_MAX})
    return None


def utf16_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def _out_of_range(what: str, minimum: int, maximum: int) -> Refusal:
    facts: dict[str, str | int] = {"Input": what, "Minimum": minimum, "Maximum": maximum}
    return Refusal("OutOfRangeInput", facts, message_override=NAME_LENGTH_MESSAGE)
