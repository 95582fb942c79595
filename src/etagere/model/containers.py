"""Containers: what is stored of them, and what can be asked of them.

A container has an identity besides its name, and its blobs are kept under that: a container
that was deleted and made again does not show the blobs of its namesake.
"""

from __future__ import annotations

import enum

from etagere.model.base import Command, Part, Record
from etagere.model.common import ListNamed, Metadata, TimedResult
from etagere.model.conditions import NO_CONDITIONS, Conditions
from etagere.model.leases import NO_LEASE, Lease, LeaseAction
from etagere.model.service import SignedIdentifier


class PublicAccess(enum.Enum):
    """What somebody without a name may read of a container."""

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
    """A container whose name is free again and whose blobs are still to be removed."""


# What is asked of containers


class ContainerName(Part, frozen=True):
    """Which container."""

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
    """Public access and stored policies, both at once."""

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


NamedContainer = tuple[str, Container]
"""A row of a listing."""
