"""Records and commands of shares.

A share has an id besides its name. Its entries are stored under the id, so that a share that was
deleted and created again does not show the files of its predecessor.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from etagere.model.base import Command, Part, Record
from etagere.model.common import ListNamed, Metadata, TimedResult
from etagere.model.leases import NO_LEASE, Lease, LeaseAction
from etagere.model.service import SignedIdentifier

DEFAULT_QUOTA_GIB: Final = 5_120
NO_SNAPSHOT: Final = (1 << 63) - 1
"""Greater than the time of any snapshot: a share is listed after its snapshots."""


class ShareProtocol(enum.Enum):
    """The file protocol that clients of a share use."""

    SMB = "SMB"
    NFS = "NFS"


class RootSquash(enum.Enum):
    """How an NFS share maps the users of its clients."""

    NO_ROOT_SQUASH = "NoRootSquash"
    ROOT_SQUASH = "RootSquash"
    ALL_SQUASH = "AllSquash"


class PaidBursting(Part, frozen=True):
    """Whether a share may exceed its provisioned performance, and how far."""

    enabled: bool | None = None
    iops_max: int | None = None
    bandwidth_max_mibps: int | None = None


class ShareSettings(Part, frozen=True):
    """The properties of a share that clients set."""

    quota_gib: int = DEFAULT_QUOTA_GIB
    tier: str = "TransactionOptimized"
    protocol: ShareProtocol = ShareProtocol.SMB
    root_squash: RootSquash = RootSquash.NO_ROOT_SQUASH
    snapshot_virtual_directory: bool = True
    protocol_shown: bool = False
    """Whether responses show the protocol: in premium accounts, and if the request that created the
    share named it."""
    provisioned_iops: int | None = None
    """None, as for the other limits of performance: not set. They are kept and shown, but have no
    effect."""
    provisioned_bandwidth_mibps: int | None = None
    paid_bursting: PaidBursting = PaidBursting()
    smb_directory_lease: bool | None = None


class ShareSettingsChange(Part, frozen=True):
    """The settings that a request changes. None: unchanged."""

    quota_gib: int | None = None
    tier: str | None = None
    root_squash: RootSquash | None = None
    snapshot_virtual_directory: bool | None = None
    provisioned_iops: int | None = None
    provisioned_bandwidth_mibps: int | None = None
    paid_bursting: PaidBursting = PaidBursting()
    smb_directory_lease: bool | None = None


class Share(Record, frozen=True):
    """A share under (account, name)."""

    id: bytes
    created: int
    stamp: int
    settings: ShareSettings = ShareSettings()
    metadata: Metadata = ()
    policies: tuple[SignedIdentifier, ...] = ()
    lease: Lease = NO_LEASE
    tier_changed: int = 0
    generation: int = 0
    """The number of snapshots that were taken so far."""
    snapshot_generations: tuple[int, ...] = ()
    """The generations that the remaining snapshots show, in ascending order."""
    last_snapshot: int = 0
    """The time of the last snapshot. No other gets it, even if that one was deleted."""


class ShareSnapshot(Record, frozen=True):
    """A snapshot of a share under (share id, time)."""

    generation: int
    """The generation of the share that the snapshot shows."""
    stamp: int
    settings: ShareSettings
    metadata: Metadata = ()
    lease: Lease = NO_LEASE
    tier_changed: int = 0


class DeletedShare(Record, frozen=True):
    """A share that can be restored, under (account, name, version)."""

    share: Share
    deleted: int
    expires: int
    """When its retention ends."""


class ExpiringShare(Record, frozen=True):
    """A deleted share, under the time when its retention ends and its key."""


class DeletedShareName(Record, frozen=True):
    """The name of a share that was deleted a moment ago, under (account, name)."""

    expires: int
    """Until when another deletion is answered like the first one."""


class ShareToPurge(Record, frozen=True):
    """A mark on a share whose entries are to be removed, under its id."""


class HistoryToPurge(Record, frozen=True):
    """A share of which a snapshot was deleted, and the progress of the search for former entries
    that no snapshot shows, under the share's id."""

    directory_id: int = 0
    name: str = ""
    replaced: int = 0
    again: bool = False
    """Another snapshot was deleted meanwhile, so that the search must start again."""


class ShareUsage(Record, frozen=True):
    """A part of the length of all files of a share, under (share id, number).

    The parts of one share may be negative; their sum is not.
    """

    length: int


# Commands


class ShareName(Part, frozen=True):
    """The name of a share."""

    account: str
    name: str

    @property
    def key(self) -> tuple[str, str]:
        return self.account, self.name


class ShareRef(Part, frozen=True):
    """A share, or a snapshot of it."""

    share: ShareName
    snapshot: int | None = None
    """The time that identifies the snapshot."""


class CreateShare(Command, frozen=True):
    share: ShareName
    id: bytes
    settings: ShareSettings = ShareSettings()
    metadata: Metadata = ()


class GetShare(Command, frozen=True):
    ref: ShareRef
    lease_id: bytes | None = None


class SetShareProperties(Command, frozen=True):
    share: ShareName
    change: ShareSettingsChange
    lease_id: bytes | None = None


class SetShareMetadata(Command, frozen=True):
    share: ShareName
    metadata: Metadata
    lease_id: bytes | None = None


class SetSharePolicies(Command, frozen=True):
    share: ShareName
    policies: tuple[SignedIdentifier, ...]
    lease_id: bytes | None = None


class LeaseShare(Command, frozen=True):
    ref: ShareRef
    action: LeaseAction


class SnapshotsOfShare(enum.Enum):
    """What Delete Share does to snapshots."""

    REFUSE = ""
    INCLUDE = "include"
    INCLUDE_LEASED = "include-leased"


class DeleteShare(Command, frozen=True):
    ref: ShareRef
    snapshots: SnapshotsOfShare = SnapshotsOfShare.REFUSE
    lease_id: bytes | None = None


class RestoreShare(Command, frozen=True):
    share: ShareName
    deleted_name: str
    version: int


class SnapshotShare(Command, frozen=True):
    share: ShareName
    metadata: Metadata = ()


class ListShares(ListNamed, frozen=True):
    """List the shares of an account, with snapshots and deleted shares if asked for."""

    marker_version: int = 0
    marker_snapshot: int = 0
    """Version and snapshot of the first row of the page, as in `ShareRow`."""
    snapshots: bool = False
    deleted: bool = False


class ShareRow(NamedTuple):
    """A row of a listing of shares, in the order of the first three fields."""

    name: str
    version: int
    """Identifies a deleted share; 0 for shares that exist."""
    snapshot: int
    """The time that identifies a snapshot; `NO_SNAPSHOT` for the share itself."""
    share: Share
    deleted: DeletedShare | None = None


class TimedShare(TimedResult, frozen=True):
    """A share or snapshot, and the length of its files."""

    share: Share
    snapshot: int | None = None
    usage_bytes: int = 0
