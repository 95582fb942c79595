"""Append blobs: what can be asked of them besides what can be asked of any blob."""

from __future__ import annotations

from etagere.model.base import Command, Result
from etagere.model.blobs import Blob, BlobName
from etagere.model.bodies import Body
from etagere.model.conditions import NO_CONDITIONS, Conditions


class AppendBlock(Command, frozen=True):
    """Add bytes at the end."""

    blob: BlobName
    body: Body
    child_id: bytes
    """For the map of the blob's bytes, if it has to part from that of a copy."""
    position: int | None = None
    """Where the end has to be before."""
    length_max: int | None = None
    """What the blob must not be longer than afterwards."""
    conditions: Conditions = NO_CONDITIONS
    lease_id: bytes | None = None
    borrowed: bool = False
    """Others hold the pieces already, and keep them."""


class Appended(Result, frozen=True):
    offset: int
    """Where the bytes were added."""
    blob: Blob
    fold_due: bool = False
    """Much of the blob lies in the ledger now, and should be folded."""


class SealBlob(Command, frozen=True):
    """Let nothing be added any more."""

    blob: BlobName
    position: int | None = None
    conditions: Conditions = NO_CONDITIONS
    lease_id: bytes | None = None
