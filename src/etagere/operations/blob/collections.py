"""The collections of the blob service, and the contents they hold."""

from __future__ import annotations

from etagere.bodies.contents import declare_holder
from etagere.engine.records import BYTES, ID, TEXT, UINT, Collection
from etagere.model.blobs import Blob, DiscardedStaging, Draft, StagedBlock, Staging, StagingAge
from etagere.model.containers import Container, DeletedContainer
from etagere.model.tags import TaggedBlob, TaggedContainer, TagValue

CONTAINERS: Collection[tuple[str, str], Container] = Collection(
    "containers", Container, (TEXT, TEXT)
)
DELETED_CONTAINERS: Collection[tuple[bytes], DeletedContainer] = Collection(
    "deleted_containers", DeletedContainer, (ID,)
)

BLOBS: Collection[tuple[bytes, str], Blob] = Collection("blobs", Blob, (ID, TEXT))
SNAPSHOTS: Collection[tuple[bytes, str, int], Blob] = Collection(
    "snapshots", Blob, (ID, TEXT, UINT)
)
STAGINGS: Collection[tuple[bytes, str], Staging] = Collection("stagings", Staging, (ID, TEXT))
STAGED_BLOCKS: Collection[tuple[bytes, bytes], StagedBlock] = Collection(
    "staged_blocks", StagedBlock, (ID, BYTES)
)
STAGING_AGES: Collection[tuple[int, bytes, str], StagingAge] = Collection(
    "staging_ages", StagingAge, (UINT, ID, TEXT)
)
DISCARDED_STAGINGS: Collection[tuple[bytes], DiscardedStaging] = Collection(
    "discarded_stagings", DiscardedStaging, (ID,)
)
DRAFTS: Collection[tuple[bytes], Draft] = Collection("drafts", Draft, (ID,))

TAGGED_BLOBS: Collection[tuple[str, str, str, str, bytes, str], TaggedBlob] = Collection(
    "tagged_blobs", TaggedBlob, (TEXT, TEXT, TEXT, TEXT, ID, TEXT)
)
TAG_VALUES: Collection[tuple[str, str, str, bytes, str], TagValue] = Collection(
    "tag_values", TagValue, (TEXT, TEXT, TEXT, ID, TEXT)
)
TAGGED_CONTAINERS: Collection[tuple[bytes], TaggedContainer] = Collection(
    "tagged_containers", TaggedContainer, (ID,)
)

declare_holder(BLOBS, contents=lambda blob: (blob.content,))
declare_holder(SNAPSHOTS, contents=lambda blob: (blob.content,))
declare_holder(STAGED_BLOCKS, pieces=lambda block: block.pieces)
declare_holder(DRAFTS, contents=lambda draft: (draft.content,))
