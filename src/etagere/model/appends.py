"""Commands for append blobs."""

from __future__ import annotations

from msgspec.structs import replace

from etagere.model.base import Command, Result
from etagere.model.blobs import Blob, BlobName
from etagere.model.bodies import Body
from etagere.model.conditions import NO_CONDITIONS, Conditions


class AppendBlock(Command, frozen=True):
    """Append bytes to a blob."""

    blob: BlobName
    body: Body
    child_id: bytes
    """The id of the child map, if one has to be created because a copy shares the blob's map."""
    position: int | None = None
    """The required length of the blob before the append."""
    length_max: int | None = None
    """The maximum length of the blob after the append."""
    conditions: Conditions = NO_CONDITIONS
    lease_id: bytes | None = None
    borrowed: bool = False
    """The pieces belong to another blob too."""

    def unconditional(self) -> AppendBlock:
        """Returns the same append without conditions."""
        return replace(self, conditions=NO_CONDITIONS, position=None, length_max=None)


class Appended(Result, frozen=True):
    offset: int
    """The offset of the appended bytes."""
    blob: Blob
    fold_due: bool = False
    """Many of the blob's bytes are in the ledger now, and should be folded."""


class SealBlob(Command, frozen=True):
    """Seal a blob, so that nothing can be appended."""

    blob: BlobName
    position: int | None = None
    conditions: Conditions = NO_CONDITIONS
    lease_id: bytes | None = None
