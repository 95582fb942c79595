"""What each operation of the blob service takes from a request and gives back."""

from __future__ import annotations

from etagere.protocol.blob.handlers.appends import AppendHandlers
from etagere.protocol.blob.handlers.batches import BatchHandlers
from etagere.protocol.blob.handlers.blobs import BlobHandlers
from etagere.protocol.blob.handlers.blocks import BlockHandlers
from etagere.protocol.blob.handlers.containers import ContainerHandlers
from etagere.protocol.blob.handlers.copies import CopyHandlers
from etagere.protocol.blob.handlers.from_urls import FromUrlHandlers
from etagere.protocol.blob.handlers.page_blobs import PageBlobHandlers
from etagere.protocol.blob.handlers.service import ServiceHandlers
from etagere.protocol.blob.handlers.tags import TagHandlers
from etagere.protocol.blob.handlers.tiers import TierHandlers


class Handlers(
    ServiceHandlers,
    ContainerHandlers,
    BlobHandlers,
    BlockHandlers,
    AppendHandlers,
    PageBlobHandlers,
    CopyHandlers,
    FromUrlHandlers,
    TagHandlers,
    TierHandlers,
    BatchHandlers,
):
    """All of them."""
