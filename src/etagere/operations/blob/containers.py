"""Containers: made, shown, changed, leased and deleted."""

from __future__ import annotations

import msgspec

from etagere.engine.interface import (
    EXCLUSIVE,
    SHARED,
    ReadTxn,
    Refused,
    Steps,
    WriteTxn,
    abort_if,
    operation,
)
from etagere.errors import Refusal
from etagere.model.conditions import Conditions
from etagere.model.containers import (
    Container,
    ContainerName,
    CreateContainer,
    DeleteContainer,
    DeletedContainer,
    GetContainer,
    LeaseContainer,
    ListContainers,
    NamedContainer,
    SetContainerAccess,
    SetContainerMetadata,
    ShownContainer,
)
from etagere.model.leases import LeaseKind
from etagere.model.service import SignedIdentifier
from etagere.operations import pages
from etagere.operations.account_records import ACCOUNTS
from etagere.operations.blob.collections import CONTAINERS, DELETED_CONTAINERS
from etagere.operations.pages import FilledPage, FillPage, Pace
from etagere.rules import conditions as condition_rules
from etagere.rules import leases as lease_rules
from etagere.rules.names import check_container_name


@operation
def create_container(txn: WriteTxn, command: CreateContainer) -> Container:
    key = command.container.key
    # Nobody removes the account meanwhile, be it stored or not.
    txn.get(ACCOUNTS, (command.container.account,), SHARED)
    if txn.get(CONTAINERS, key, EXCLUSIVE) is not None:
        raise Refused(Refusal("ContainerAlreadyExists"))
    made = Container(command.id, txn.stamp, command.metadata, command.public_access)
    return txn.put(CONTAINERS, key, made)


def get_container(txn: ReadTxn, command: GetContainer) -> ShownContainer:
    container = find(txn, command.container)
    abort_if(lease_rules.check_container_use(container.lease, command.lease_id, txn.steady_now))
    return ShownContainer(txn.steady_now, command.container.name, container)


@operation
def set_container_metadata(txn: WriteTxn, command: SetContainerMetadata) -> Container:
    container = _usable(txn, command.container, command.lease_id, command.conditions)
    changed = msgspec.structs.replace(container, metadata=command.metadata, stamp=txn.stamp)
    return txn.put(CONTAINERS, command.container.key, changed)


@operation
def set_container_access(txn: WriteTxn, command: SetContainerAccess) -> Container:
    """In force for the next request, whoever it comes to."""
    container = _usable(txn, command.container, command.lease_id, command.conditions)
    changed = msgspec.structs.replace(
        container,
        public_access=command.public_access,
        policies=command.policies,
        stamp=txn.stamp,
    )
    return txn.put(CONTAINERS, command.container.key, changed)


@operation
def lease_container(txn: WriteTxn, command: LeaseContainer) -> ShownContainer:
    """A lease changes neither the ETag nor the date."""
    container = find_guarded(txn, command.container, exclusive=True)
    abort_if(condition_rules.check_write(command.conditions, container.stamp))
    lease = lease_rules.step(container.lease, command.action, txn.steady_now, LeaseKind.CONTAINER)
    if isinstance(lease, Refusal):
        raise Refused(lease)
    changed = msgspec.structs.replace(container, lease=lease)
    txn.put(CONTAINERS, command.container.key, changed)
    return ShownContainer(txn.steady_now, command.container.name, changed)


@operation(reclaims=True)
def delete_container(txn: WriteTxn, command: DeleteContainer) -> None:
    """The name is free at once; the blobs are removed in bounded steps by `purge_containers`."""
    container = find_guarded(txn, command.container, exclusive=True)
    abort_if(lease_rules.check_container_delete(container.lease, command.lease_id, txn.steady_now))
    abort_if(condition_rules.check_write(command.conditions, container.stamp))
    txn.delete(CONTAINERS, command.container.key)
    txn.put(DELETED_CONTAINERS, (container.id,), DeletedContainer())


def list_containers(
    txn: ReadTxn, command: FillPage[ListContainers, NamedContainer]
) -> Steps[FilledPage[NamedContainer]]:
    asked = command.asked
    span = CONTAINERS.under((asked.account,), asked.prefix)
    if asked.marker:
        span = CONTAINERS.starting(span, (asked.account, asked.marker))
    pace = Pace()
    slices = (
        [(name, container) for (_, name), container in rows]
        for rows in pages.scan_in_steps(txn, CONTAINERS, span, asked.limit, pace)
    )
    return pages.fill(txn, command, slices, asked.limit, pace)


def policies_of(txn: ReadTxn, place: tuple[str, str]) -> tuple[SignedIdentifier, ...]:
    """The stored policies of a container, by account and name, whatever that may be."""
    if check_container_name(place[1]) is not None:
        return ()
    container = txn.get(CONTAINERS, place)
    return container.policies if container is not None else ()


# What all do first


def find(txn: ReadTxn, name: ContainerName) -> Container:
    container = txn.get(CONTAINERS, name.key)
    if container is None:
        raise Refused(Refusal("ContainerNotFound"))
    return container


def find_guarded(txn: WriteTxn, name: ContainerName, *, exclusive: bool = False) -> Container:
    """Shared for whoever changes what is in it, exclusive for whoever changes itself."""
    container = txn.get(CONTAINERS, name.key, EXCLUSIVE if exclusive else SHARED)
    if container is None:
        raise Refused(Refusal("ContainerNotFound"))
    return container


def _usable(
    txn: WriteTxn, name: ContainerName, lease_id: bytes | None, conditions: Conditions
) -> Container:
    container = find_guarded(txn, name, exclusive=True)
    abort_if(lease_rules.check_container_use(container.lease, lease_id, txn.steady_now))
    abort_if(condition_rules.check_write(conditions, container.stamp))
    return container
