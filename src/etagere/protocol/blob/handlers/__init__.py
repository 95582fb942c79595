"""What each operation of the blob service takes from a request and gives back."""

from __future__ import annotations

from etagere.protocol.blob.handlers.blobs import BlobHandlers
from etagere.protocol.blob.handlers.blocks import BlockHandlers
from etagere.protocol.blob.handlers.containers import ContainerHandlers
from etagere.protocol.blob.handlers.service import ServiceHandlers


class Handlers(ServiceHandlers, ContainerHandlers, BlobHandlers, BlockHandlers):
    """All of them."""
