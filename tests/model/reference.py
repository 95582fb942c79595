"""A reference model of a store of named objects and blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from etagere.bodies.contents import PIECES_MAX


class Version(NamedTuple):
    """An object as of one write."""

    etag: int
    blocks: tuple[bytes, ...]
    listed: bool
    """Whether its blocks can be named in a block list."""

    @property
    def data(self) -> bytes:
        return b"".join(self.blocks)


class Reference:
    """Objects and staged blocks by name."""

    def __init__(self, piece_bytes_max: int) -> None:
        self._piece_bytes_max = piece_bytes_max
        self.objects: dict[str, Version] = {}
        self.staged: dict[str, tuple[bytes, ...]] = {}

    def etag(self, name: str) -> int:
        version = self.objects.get(name)
        return version.etag if version else 0

    def data(self, name: str) -> bytes | None:
        version = self.objects.get(name)
        return version.data if version else None

    def put(self, name: str, data: bytes, etag: int) -> None:
        step = self._piece_bytes_max
        pieces = tuple(data[at : at + step] for at in range(0, len(data), step))
        self.objects[name] = Version(etag, pieces, len(pieces) > PIECES_MAX)

    def copy(self, source: str, target: str, etag: int) -> None:
        self.objects[target] = self.objects[source]._replace(etag=etag)

    def delete(self, name: str) -> None:
        del self.objects[name]

    def stage(self, name: str, blocks: Sequence[bytes]) -> None:
        self.staged[name] = self.staged.get(name, ()) + tuple(blocks)

    def blocks(self, name: str) -> tuple[bytes, ...]:
        """Returns the blocks that a list may keep of the object."""
        version = self.objects.get(name)
        return version.blocks if version and version.listed else ()

    def list_blocks(self, name: str, keep: Sequence[int], etag: int) -> None:
        old = self.blocks(name)
        reused = tuple(old[number] for number in keep)
        self.objects[name] = Version(etag, reused + self.staged.pop(name, ()), listed=True)
