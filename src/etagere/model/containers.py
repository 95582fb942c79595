"""Records and commands of containers.

A container has an id besides its name, and its blobs are stored under the id: a container that is
deleted and created again does not show the blobs of the former one.
"""

from __future__ import annotations

import enum

from etagere.model.base import Command, Part, Record
from etagere.model.common import ListNamed, Metadata, TimedResult
from etagere.model.conditions import NO_CONDITIONS, Conditions
from etagere.model.leases import NO_LEASE, Lease, LeaseAction
from etagere.model.service import SignedIdentifier


class PublicAccess(enum.Enum):
    """What anonymous callers may read of a container."""

    NOTHING = ""
    BLOBS = "blob"
    EVERYTHING = "container"


class Container(Record, frozen=True):
    """A container under (account, name)."""

    id: bytes
    stamp: int
    metadata: Metadata = ()
    public_access: PublicAccess = PublicAccess.NOTHING
    policies: tuple[SignedIdentifier, ...] = ()
    lease: Lease = NO_LEASE


class DeletedContainer(Record, frozen=True):
    """A deleted container whose blobs are still to be removed."""


# Commands


class ContainerName(Part, frozen=True):
    """The name of a container."""

    account: str
    name: str

    @property
    def key(self) -> tuple[str, str]:
        return self.account, self.name


class CreateContainer(Command, frozen=True):
    container: ContainerName
    id: bytes
    metadata: Metadata = ()
    public_access: PublicAccess = PublicAccess.NOTHING


class GetContainer(Command, frozen=True):
    container: ContainerName
    lease_id: bytes | None = None


class SetContainerMetadata(Command, frozen=True):
    container: ContainerName
    metadata: Metadata
    conditions: Conditions = NO_CONDITIONS
    lease_id: bytes | None = None


class SetContainerAccess(Command, frozen=True):
    """Set public access and stored access policies."""

    container: ContainerName
    public_access: PublicAccess
    policies: tuple[SignedIdentifier, ...]
    conditions: Conditions = NO_CONDITIONS
    lease_id: bytes | None = None


class DeleteContainer(Command, frozen=True):
    container: ContainerName
    conditions: Conditions = NO_CONDITIONS
    lease_id: bytes | None = None


class LeaseContainer(Command, frozen=True):
    container: ContainerName
    action: LeaseAction
    conditions: Conditions = NO_CONDITIONS


class ContainerResult(TimedResult, frozen=True):
    name: str
    container: Container


class ListContainers(ListNamed, frozen=True):
    """List the containers of an account."""

    system: bool = False
    """Whether to show the container of the logs, too."""


NamedContainer = tuple[str, Container]
"""A row of a listing."""
