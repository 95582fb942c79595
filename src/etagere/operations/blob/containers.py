"""Operations on containers.

Every account has the container `$logs`. Nothing is stored for it, because nothing writes logs. It
is empty, unless a client created a container of this name while that was possible.
"""

from __future__ import annotations

from itertools import chain
from typing import Final

import msgspec

from etagere.clock import TICKS_PER_SECOND
from etagere.engine.interface import (
    ReadTxn,
    Refused,
    Steps,
    WriteTxn,
    abort_if,
    operation,
    unwrap,
)
from etagere.errors import Refusal
from etagere.model.conditions import Conditions
from etagere.model.containers import (
    Container,
    ContainerName,
    ContainerResult,
    CreateContainer,
    DeleteContainer,
    DeletedContainer,
    GetContainer,
    LeaseContainer,
    ListContainers,
    NamedContainer,
    SetContainerAccess,
    SetContainerMetadata,
)
from etagere.model.leases import LeaseKind
from etagere.operations import pages
from etagere.operations.blob.collections import CONTAINERS, DELETED_CONTAINERS
from etagere.operations.named import NamedResources, policies_reader
from etagere.operations.pages import FilledPage, FillPage, StepSize
from etagere.rules import conditions as condition_rules
from etagere.rules import leases as lease_rules
from etagere.rules.names import LOGS_CONTAINER, check_container_name

_LOGS_STAMP: Final = 1_293_840_000 * TICKS_PER_SECOND
"""2011-01-01, before any container."""
_EMPTY_LOGS: Final = Container(LOGS_CONTAINER.encode().ljust(16, b"\0"), _LOGS_STAMP)
"""No blob is ever stored under its ID, which is the same in all accounts."""
_AFTER_LOGS: Final = f"{LOGS_CONTAINER}\0"
"""The first name after it."""
_NAMED: Final = NamedResources(CONTAINERS, "ContainerNotFound", {LOGS_CONTAINER: _EMPTY_LOGS})
find = _NAMED.find
find_guarded = _NAMED.find_guarded
policies_of = policies_reader(CONTAINERS, check_container_name)


@operation
def create_container(txn: WriteTxn, command: CreateContainer) -> Container:
    if _NAMED.find_for_creation(txn, command.container) is not None:
        raise Refused(Refusal("ContainerAlreadyExists"))
    made = Container(command.id, txn.stamp, command.metadata, command.public_access)
    return txn.put(CONTAINERS, command.container.key, made)


def get_container(txn: ReadTxn, command: GetContainer) -> ContainerResult:
    container = find(txn, command.container)
    abort_if(lease_rules.check_container_use(container.lease, command.lease_id, txn.steady_now))
    return ContainerResult(txn.steady_now, command.container.name, container)


@operation
def set_container_metadata(txn: WriteTxn, command: SetContainerMetadata) -> Container:
    container = _usable(txn, command.container, command.lease_id, command.conditions)
    changed = msgspec.structs.replace(container, metadata=command.metadata, stamp=txn.stamp)
    return txn.put(CONTAINERS, command.container.key, changed)


@operation
def set_container_access(txn: WriteTxn, command: SetContainerAccess) -> Container:
    """Sets public access and stored access policies, effective for the next request to any
    process."""
    container = _usable(txn, command.container, command.lease_id, command.conditions)
    changed = msgspec.structs.replace(
        container,
        public_access=command.public_access,
        policies=command.policies,
        stamp=txn.stamp,
    )
    return txn.put(CONTAINERS, command.container.key, changed)


@operation
def lease_container(txn: WriteTxn, command: LeaseContainer) -> ContainerResult:
    """Carries out a lease action, which changes neither the ETag nor the date."""
    container = find_guarded(txn, command.container, exclusive=True)
    abort_if(condition_rules.check_write(command.conditions, container.stamp))
    lease = unwrap(
        lease_rules.step(container.lease, command.action, txn.steady_now, LeaseKind.CONTAINER)
    )
    changed = msgspec.structs.replace(container, lease=lease)
    txn.put(CONTAINERS, command.container.key, changed)
    return ContainerResult(txn.steady_now, command.container.name, changed)


@operation(reclaims=True)
def delete_container(txn: WriteTxn, command: DeleteContainer) -> None:
    """Deletes a container. Its name is free at once; `purge_containers` removes its blobs in
    bounded steps."""
    container = find_guarded(txn, command.container, exclusive=True)
    abort_if(lease_rules.check_container_delete(container.lease, command.lease_id, txn.steady_now))
    abort_if(condition_rules.check_write(command.conditions, container.stamp))
    txn.delete(CONTAINERS, command.container.key)
    txn.put(DELETED_CONTAINERS, (container.id,), DeletedContainer())


def list_containers(
    txn: ReadTxn, command: FillPage[ListContainers, NamedContainer]
) -> Steps[FilledPage[NamedContainer]]:
    asked, step_size = command.asked, StepSize()
    # `$logs` is the first of all names that a container can have.
    after_logs = msgspec.structs.replace(asked, marker=max(asked.marker, _AFTER_LOGS))
    slices = _NAMED.rows(txn, after_logs, step_size)
    if asked.system and LOGS_CONTAINER.startswith(asked.prefix) and asked.marker < _AFTER_LOGS:
        logs = find(txn, ContainerName(asked.account, LOGS_CONTAINER))
        slices = chain([[(LOGS_CONTAINER, logs)]], slices)
    return pages.fill(txn, command, slices, asked.limit, step_size)


def _usable(
    txn: WriteTxn, name: ContainerName, lease_id: bytes | None, conditions: Conditions
) -> Container:
    container = find_guarded(txn, name, exclusive=True)
    abort_if(lease_rules.check_container_use(container.lease, lease_id, txn.steady_now))
    abort_if(condition_rules.check_write(conditions, container.stamp))
    return container
