"""Named resources of accounts: containers, queues and tables.

How they are found by name, guarded and listed, and where the stored access policies are, is the
same for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from etagere.engine.interface import EXCLUSIVE, SHARED, ReadTxn, Refused, Steps, WriteTxn
from etagere.engine.records import Collection
from etagere.errors import Refusal
from etagere.model.base import Record
from etagere.model.common import ListNamed
from etagere.model.containers import Container
from etagere.model.queues import Queue
from etagere.model.service import SignedIdentifier
from etagere.model.shares import Share
from etagere.model.tables import Table
from etagere.operations import pages
from etagere.operations.account_records import ACCOUNTS
from etagere.operations.pages import FilledPage, FillPage, StepSize


class ResourceName(Protocol):
    """The name of a resource in an account."""

    @property
    def account(self) -> str: ...

    @property
    def key(self) -> tuple[str, str]: ...


R = TypeVar("R", bound=Record)
Asked = TypeVar("Asked", bound=ListNamed)


class NamedResources(Generic[R]):
    """The resources of one kind, under (account, name)."""

    def __init__(
        self,
        collection: Collection[tuple[str, str], R],
        not_found: str,
        built_in: Mapping[str, R] | None = None,
    ) -> None:
        """`not_found` is the error code for a name without a resource. `built_in` are the resources
        that every account has, by their names, unless one is stored under that name."""
        self._collection = collection
        self._not_found = not_found
        self._built_in = built_in or {}

    def find(self, txn: ReadTxn, name: ResourceName) -> R:
        found = txn.get(self._collection, name.key)
        return self._get_built_in(name) if found is None else found

    def find_guarded(self, txn: WriteTxn, name: ResourceName, *, exclusive: bool = False) -> R:
        """Finds a resource and guards it: shared to change its contents, exclusively to change the
        resource itself."""
        found = txn.get(self._collection, name.key, EXCLUSIVE if exclusive else SHARED)
        return self._get_built_in(name) if found is None else found

    def _get_built_in(self, name: ResourceName) -> R:
        found = self._built_in.get(name.key[1])
        if found is None:
            raise Refused(Refusal(self._not_found))
        return found

    def find_for_creation(self, txn: WriteTxn, name: ResourceName) -> R | None:
        """Returns the existing resource of a name that is about to be created. Guards the account,
        present or not, so that it is not removed meanwhile."""
        txn.get(ACCOUNTS, (name.account,), SHARED)
        return txn.get(self._collection, name.key, EXCLUSIVE)

    def list(
        self, txn: ReadTxn, command: FillPage[Asked, tuple[str, R]]
    ) -> Steps[FilledPage[tuple[str, R]]]:
        asked, step_size = command.asked, StepSize()
        return pages.fill(txn, command, self.rows(txn, asked, step_size), asked.limit, step_size)

    def rows(
        self, txn: ReadTxn, asked: ListNamed, step_size: StepSize
    ) -> Iterator[Sequence[tuple[str, R]]]:
        """Yields the rows of a listing in slices."""
        collection = self._collection
        span = collection.under((asked.account,), asked.prefix)
        if asked.marker:
            span = collection.starting(span, (asked.account, asked.marker))
        for rows in pages.scan_in_steps(txn, collection, span, asked.limit, step_size):
            yield [(name, found) for (_, name), found in rows]


P = TypeVar("P", bound=Container | Queue | Table | Share)
"""Records with stored access policies."""


def policies_reader(
    collection: Collection[tuple[str, str], P],
    check_name: Callable[[str], Refusal | None],
    key_of: Callable[[str], str] = str,
) -> Callable[[ReadTxn, tuple[str, str]], tuple[SignedIdentifier, ...]]:
    """Returns a function that reads the stored access policies of a resource, by account and name.
    The name may be any text."""

    def policies_of(txn: ReadTxn, place: tuple[str, str]) -> tuple[SignedIdentifier, ...]:
        account, name = place
        if check_name(name) is not None:
            return ()
        found = txn.get(collection, (account, key_of(name)))
        return found.policies if found is not None else ()

    return policies_of
