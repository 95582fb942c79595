"""The dependencies of the handlers of the table service."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from etagere.auth.permissions import Permission
from etagere.jobs.indexing import Indexing
from etagere.model.tables import ChangeKind
from etagere.protocol.rest.dependencies import Dependencies
from etagere.protocol.table.addresses import Address

ChangeOf = Callable[[str, Address, Mapping[str, str]], ChangeKind | None]
"""Returns the kind of change of a request with this method, address and headers, or None."""


@dataclass(frozen=True, slots=True)
class TableDependencies(Dependencies):
    """The dependencies of the handlers of the table service."""

    indexing: Indexing
    change_of: ChangeOf
    permissions: Mapping[ChangeKind, Permission]
