"""Commands on the bytes of open files, which are known by their IDs."""

from __future__ import annotations

from etagere.model.base import Command, Part
from etagere.model.bodies import Piece
from etagere.model.shares import ShareName


class OpenFileRef(Part, frozen=True):
    """A file that is open, or was. Its directory may have been renamed meanwhile."""

    share: ShareName
    share_id: bytes
    directory_id: int
    name: str
    id: int
    snapshot: int | None = None
    """The time of the share snapshot that the file is in."""


class WrittenRange(Part, frozen=True):
    """A range of a file that was written or cleared. The end is exclusive."""

    start: int
    end: int
    pieces: tuple[Piece, ...]
    """Empty: the range was cleared."""


class StoreWrites(Command, frozen=True):
    """Apply gathered writes to a file, all or none."""

    file: OpenFileRef
    ranges: tuple[WrittenRange, ...]
    """In order, without overlaps."""
    map_id: bytes
    """For the interval map of the file, if it has none or has to be separated from a copy."""
    length: int | None = None
    """The length afterwards; None: the file grows if a range reaches beyond its end."""
    changed: int | None = None
    """When the last of the writes was made; None: now."""
    written: int | None = None
    """The last write time; None: it stays as it is."""


class ReadOpenFile(Command, frozen=True):
    """Locate bytes of a file; there may be fewer."""

    file: OpenFileRef
    start: int
    length: int
    brief: bool = True
    """Return None if the lookup would take long."""


class ListAllocated(Command, frozen=True):
    """List the ranges of a file that were written."""

    file: OpenFileRef
    start: int
    end: int
    limit: int
