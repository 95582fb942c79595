"""Copying the records of an account, with their contents, to another ledger."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from etagere.bodies.content_copy import Add, ContentCopier, CopyIds
from etagere.bodies.extent_copy import ExtentCopier, RecordSource
from etagere.engine.records import ENCODE, Collection
from etagere.model.blobs import Blob, StagedBlock, Staging
from etagere.model.files import Entry, FileNode
from etagere.operations.account_data import (
    BY_ACCOUNT,
    INDEXES_BY_TIME,
    PENDING,
    RESOURCES,
    TAG_INDEXES,
    Resources,
)
from etagere.operations.blob.collections import (
    BLOBS,
    CONTAINERS,
    SNAPSHOTS,
    STAGED_BLOCKS,
    STAGINGS,
)
from etagere.operations.file.collections import ENTRIES, FORMER_ENTRIES
from etagere.operations.queue.collections import MESSAGES, TEXTS

AnyCollection = Collection[Any, Any]
Rows = Sequence[tuple[bytes, bytes]]
"""Encoded keys and records."""

_IDS_PER_QUERY: Final = 1_000


class ResourceIds(NamedTuple):
    """The ids of the resources of one kind."""

    resources: Resources
    ids: list[bytes]


def find_resources(source: RecordSource, account: str) -> list[ResourceIds]:
    """Returns the ids of all resources of an account."""
    found: list[ResourceIds] = []
    for resources in RESOURCES:
        collection = resources.collection
        ids = [
            resources.id_of(collection.decode(value))
            for page in source.pages(collection, [collection.under((account,))])
            for _, value in page
        ]
        found.append(ResourceIds(resources, ids))
    return found


def find_deleted(target: RecordSource, resources: Iterable[ResourceIds]) -> int:
    """Returns how many resources were deleted in a ledger, but are not removed yet."""
    return sum(
        len(target.find(each.resources.deleted, each.ids[at : at + _IDS_PER_QUERY]))
        for each in resources
        for at in range(0, len(each.ids), _IDS_PER_QUERY)
    )


def count_pending_copies(source: RecordSource, account: str) -> int:
    """Returns how many copies to the account are pending."""
    ids = [each for found in find_resources(source, account) for each in found.ids]
    return sum(
        len(page)
        for collection in PENDING
        for page in source.pages(collection, [collection.under((each,)) for each in ids])
    )


class AccountCopier:
    """Copies an account as it is in one snapshot."""

    def __init__(
        self,
        source: RecordSource,
        extents: ExtentCopier,
        ids: CopyIds,
        add: Add,
        account: str,
        *,
        only_extents: bool = False,
    ) -> None:
        """`add` stores the records of the copy. `ids` are for what may have holders in other
        accounts. `only_extents`: copies only extents and the records that refer to them."""
        self._source = source
        self._ids = ids
        self._add = add
        self._account = account
        self._only_extents = only_extents
        self._contents = ContentCopier(source, extents, ids, add, with_inline=not only_extents)
        extents.reset_references()

    async def run(self) -> None:
        """Copies everything. Raises `MissingRecord`, `ExtentsDamaged` or `Fault`."""
        resources = find_resources(self._source, self._account)
        if self._only_extents:
            for each in resources:
                for collection in _WITH_EXTENTS.intersection(each.resources.by_id):
                    await self._copy_under(collection, each.ids)
            return
        for collection in (*BY_ACCOUNT, *[each.resources.collection for each in resources]):
            await self._copy_under(collection, [self._account])
        for each in resources:
            for collection in each.resources.by_id:
                await self._copy_under(collection, each.ids)
        (containers,) = [each.ids for each in resources if each.resources.collection is CONTAINERS]
        self._copy_tag_indexes(frozenset(containers))
        self._contents.finish()

    async def _copy_under(self, collection: AnyCollection, prefixes: Sequence[str | bytes]) -> None:
        copy = COPY_FUNCTIONS.get(collection, AccountCopier._copy_unchanged)
        spans = [collection.under((prefix,)) for prefix in prefixes]
        for page in self._source.pages(collection, spans) if spans else ():
            await copy(self, collection, page)
            index = INDEXES_BY_TIME.get(collection)
            if index is None:
                continue
            row = ENCODE(index.row)
            for key, value in page:
                at = index.key_of(collection.unpack(key), collection.decode(value))
                if at is not None:
                    self._add(index.rows, index.rows.pack(at), row)

    async def _copy_unchanged(self, collection: AnyCollection, rows: Rows) -> None:
        for key, value in rows:
            self._add(collection, key, value)

    async def _copy_blobs(self, collection: AnyCollection, rows: Rows) -> None:
        blobs: list[tuple[bytes, Blob]] = [(key, collection.decode(value)) for key, value in rows]
        await self._contents.copy([blob.content for _, blob in blobs])
        for key, blob in blobs:
            copy = replace(blob, content=self._contents.copy_of(blob.content))
            self._add(collection, key, ENCODE(copy))

    async def _copy_entries(self, collection: AnyCollection, rows: Rows) -> None:
        entries: list[tuple[bytes, Entry]] = [
            (key, collection.decode(value)) for key, value in rows
        ]
        held = [entry.node.content for _, entry in entries if isinstance(entry.node, FileNode)]
        await self._contents.copy(held)
        for key, entry in entries:
            copy = entry
            if isinstance(entry.node, FileNode):
                content = self._contents.copy_of(entry.node.content)
                copy = replace(entry, node=replace(entry.node, content=content))
            self._add(collection, key, ENCODE(copy))

    async def _copy_stagings(self, collection: AnyCollection, rows: Rows) -> None:
        """Copies uncommitted blocks. They get other ids, because those of an earlier copy may not
        be removed yet."""
        stagings: list[Staging] = []
        for key, value in rows:
            staging = STAGINGS.decode(value)
            stagings.append(staging)
            self._add(collection, key, ENCODE(replace(staging, id=self._ids.copy_id(staging.id))))
        spans = [STAGED_BLOCKS.under((staging.id,)) for staging in stagings]
        for page in self._source.pages(STAGED_BLOCKS, spans):
            blocks: list[tuple[bytes, StagedBlock]] = [
                (key, STAGED_BLOCKS.decode(value)) for key, value in page
            ]
            await self._contents.copy((), [piece for _, each in blocks for piece in each.pieces])
            for key, block in blocks:
                copy = replace(block, pieces=self._contents.copied_pieces(block.pieces))
                self._add(STAGED_BLOCKS, self._ids.copy_key(key), ENCODE(copy))

    async def _copy_messages(self, collection: AnyCollection, rows: Rows) -> None:
        long: list[bytes] = []
        for key, value in rows:
            self._add(collection, key, value)
            if MESSAGES.decode(value).text is None:
                _, message_id = MESSAGES.unpack(key)
                long.append(TEXTS.pack((message_id,)))
        for key, value in self._source.find(TEXTS, long).items():
            self._add(TEXTS, key, value)

    def _copy_tag_indexes(self, containers: frozenset[bytes]) -> None:
        """Copies the indexes of tags, without those of deleted containers."""
        for collection, position in TAG_INDEXES.items():
            for page in self._source.pages(collection, [collection.under((self._account,))]):
                for key, value in page:
                    if collection.unpack(key)[position] in containers:
                        self._add(collection, key, value)


COPY_FUNCTIONS: Final[
    dict[AnyCollection, Callable[[AccountCopier, AnyCollection, Rows], Awaitable[None]]]
] = {
    BLOBS: AccountCopier._copy_blobs,
    SNAPSHOTS: AccountCopier._copy_blobs,
    STAGINGS: AccountCopier._copy_stagings,
    ENTRIES: AccountCopier._copy_entries,
    FORMER_ENTRIES: AccountCopier._copy_entries,
    MESSAGES: AccountCopier._copy_messages,
}
"""How the records of a collection are copied, unless they are copied unchanged."""
_WITH_EXTENTS: Final = frozenset(COPY_FUNCTIONS) - {MESSAGES}
