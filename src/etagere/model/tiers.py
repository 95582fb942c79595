"""Commands for access tiers."""

from __future__ import annotations

import enum

from etagere.model.base import Command
from etagere.model.blobs import BlobName, BlobRef
from etagere.model.conditions import NO_CONDITIONS, Conditions


class Priority(enum.Enum):
    """The priority of a rehydration from the archive tier."""

    STANDARD = "Standard"
    HIGH = "High"


class SetBlobTier(Command, frozen=True):
    blob: BlobName
    tier: str
    ticks: int
    """The duration of a rehydration that begins now."""
    priority: Priority = Priority.STANDARD
    conditions: Conditions = NO_CONDITIONS
    lease_id: bytes | None = None
    snapshot: int | None = None

    @property
    def ref(self) -> BlobRef:
        return BlobRef(self.blob, self.snapshot)
