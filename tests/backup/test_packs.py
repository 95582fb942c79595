"""Packs: what is written is found again, and no pack that differs in anything is taken for it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from awscrt.checksums import crc64nvme
from msgspec.structs import replace

from etagere.backup.files import Files
from etagere.backup.packs import BackupDamaged, PackIndex, PackReader, PackRef, PackWriter
from etagere.config import MIB
from tests.backup.faulty_files import FaultyFiles

MAGIC = b"ETPACK01"
RECORD = struct.Struct(">QQQQ32s")
FOOTER = struct.Struct(">Q32s8s")
BLOCKS = {3: b"three" * 100, 5: b"", 1_000: b"x", 2**40: b"far away"}
"""The contents of blocks by their positions."""


def write(path: Path, blocks: dict[int, bytes], files: Files | None = None) -> PackRef:
    with PackWriter(files or Files(), path) as writer:
        for position, data in blocks.items():
            writer.begin_block(position)
            for at in range(0, len(data), 50):
                writer.write(data[at : at + 50])
            assert writer.crc == crc64nvme(data)
            writer.end_block()
        assert len(writer) == len(blocks)
        return writer.finish(path.stem)


@pytest.fixture
def pack(tmp_path: Path) -> tuple[Path, PackRef]:
    path = tmp_path / "name.pack"
    return path, write(path, BLOCKS)


def _open_files(directory: Path) -> list[Path]:
    """Returns the files of a directory that are open: others come and go with other threads."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(entry.readlink())
    return [path for path in found if path.is_relative_to(directory)]


def test_the_format(pack: tuple[Path, PackRef]) -> None:
    """Backups of earlier versions must be readable."""
    path, ref = pack
    offset, records = len(MAGIC), b""
    for position, data in BLOCKS.items():
        digest = hashlib.sha256(data).digest()
        records += RECORD.pack(position, offset, len(data), crc64nvme(data), digest)
        offset += len(data)
    digest = hashlib.sha256(records).digest()
    footer = FOOTER.pack(len(records), digest, MAGIC)
    assert path.read_bytes() == MAGIC + b"".join(BLOCKS.values()) + records + footer
    assert ref == PackRef("name", path.stat().st_size, digest.hex())


def test_blocks_are_found_by_their_positions(pack: tuple[Path, PackRef]) -> None:
    path, ref = pack
    with PackReader(path) as reader:
        assert reader.index.ref == ref
        reader.require(ref)
        reader.verify()
        assert len(reader.index) == len(BLOCKS)
        assert [block.position for block in reader.index] == list(BLOCKS)
        for number, (position, data) in enumerate(BLOCKS.items()):
            block = reader.index.find(position)
            assert block is not None
            assert block == reader.index[number]
            assert (block.position, block.length, block.crc) == (
                position,
                len(data),
                crc64nvme(data),
            )
            assert block.sha256 == hashlib.sha256(data).digest()
            assert b"".join(reader.parts(block)) == data
        for position in (0, 2, 4, 999, 1_001, 2**40 + 1):
            assert reader.index.find(position) is None


def test_a_pack_without_blocks(tmp_path: Path) -> None:
    path = tmp_path / "empty.pack"
    ref = write(path, {})
    assert _open_files(tmp_path) == []
    assert ref.length == len(MAGIC) + FOOTER.size
    with PackReader(path) as reader:
        reader.verify()
        assert len(reader.index) == 0
        assert reader.index.find(0) is None
        assert list(reader.index) == []


def test_a_discarded_block_leaves_nothing(tmp_path: Path) -> None:
    path, same = tmp_path / "name.pack", tmp_path / "same" / "name.pack"
    same.parent.mkdir()
    with PackWriter(Files(), path) as writer:
        for position, data in BLOCKS.items():
            writer.begin_block(position)
            writer.write(b"damaged" * 1_000)
            writer.discard_block()
            writer.begin_block(position)
            writer.write(data)
            writer.end_block()
        writer.begin_block(2**41)
        writer.write(b"damaged" * 1_000)
        writer.discard_block()
        ref = writer.finish("name")
    assert ref == write(same, BLOCKS)
    assert path.read_bytes() == same.read_bytes()


def test_long_packs_are_synced_in_steps_and_read_in_parts(tmp_path: Path) -> None:
    data = os.urandom(MIB) * 20
    files = FaultyFiles()
    path = tmp_path / "long.pack"
    with PackWriter(files, path) as writer:
        writer.begin_block(0)
        for at in range(0, len(data), MIB):
            writer.write(data[at : at + MIB])
        writer.end_block()
        writer.finish("long")
    calls = [call for call, _ in files.calls]
    # The magic and 15 MiB are within the limit.
    assert calls == ["create", *["write"] * 17, "sync", *["write"] * 5, "truncate", "sync"]
    with PackReader(path) as reader:
        reader.verify()
        parts = list(reader.parts(reader.index[0]))
    assert [len(part) for part in parts] == [MIB] * 20
    assert b"".join(parts) == data


def test_reads_that_return_less_are_continued(
    pack: tuple[Path, PackRef], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, ref = pack
    read = os.pread
    monkeypatch.setattr(os, "pread", lambda file, length, at: read(file, min(length, 7), at))
    with PackReader(path) as reader:
        reader.require(ref)
        reader.verify()


# Damage


def _with_index(path: Path, records: bytes, **changed: object) -> None:
    """Replaces the index of a pack by one whose checksum is right."""
    content = path.read_bytes()
    length, _, _ = FOOTER.unpack(content[-FOOTER.size :])
    blocks = content[: -FOOTER.size - length]
    digest = hashlib.sha256(records).digest()
    footer = FOOTER.pack(changed.get("length", len(records)), digest, changed.get("magic", MAGIC))
    path.write_bytes(blocks + records + footer)


def _records(path: Path) -> bytes:
    content = path.read_bytes()
    length, _, _ = FOOTER.unpack(content[-FOOTER.size :])
    return content[-FOOTER.size - length : -FOOTER.size]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: path.unlink(), "is missing"),
        (lambda path: (path.unlink(), path.symlink_to(path)), "cannot be read: Too many levels"),
        (lambda path: path.write_bytes(b""), "is too short"),
        (lambda path: path.write_bytes(bytes(len(MAGIC) + FOOTER.size - 1)), "is too short"),
        (lambda path: path.write_bytes(bytes(len(MAGIC) + FOOTER.size)), "has no index"),
        (lambda path: _with_index(path, _records(path), magic=b"ETPACK02"), "has no index"),
        (lambda path: _with_index(path, _records(path)[:-1]), "has no index"),
        (lambda path: _with_index(path, _records(path), length=2**40 * RECORD.size), "no index"),
        # As long as the pack, but for the magic.
        (
            lambda path: path.write_bytes(
                MAGIC[1:]
                + bytes(RECORD.size)
                + FOOTER.pack(RECORD.size, hashlib.sha256(bytes(RECORD.size)).digest(), MAGIC)
            ),
            "has no index",
        ),
        (lambda path: _with_index(path, b""), None),
    ],
)
def test_files_that_are_not_packs(
    pack: tuple[Path, PackRef], damage: Callable[[Path], object], words: str | None
) -> None:
    path, ref = pack
    damage(path)
    if words is not None:
        with pytest.raises(BackupDamaged, match=words):
            PackReader(path)
    else:
        # A pack, but another one.
        with PackReader(path) as reader, pytest.raises(BackupDamaged, match="not the file"):
            reader.require(ref)
    assert _open_files(path.parent) == []


def test_an_index_that_fills_the_file_is_read(tmp_path: Path) -> None:
    """Blocks may be empty."""
    path = tmp_path / "name.pack"
    ref = write(path, {1: b"", 2: b""})
    assert ref.length == len(MAGIC) + 2 * RECORD.size + FOOTER.size
    with PackReader(path) as reader:
        reader.verify()
        assert len(reader.index) == 2


@pytest.mark.parametrize(
    "other",
    [
        lambda ref: replace(ref, name="other"),
        lambda ref: replace(ref, length=ref.length + 1),
        lambda ref: replace(ref, index_sha256="0" * 64),
    ],
)
def test_a_point_refers_to_one_pack(
    pack: tuple[Path, PackRef], other: Callable[[PackRef], PackRef]
) -> None:
    path, ref = pack
    with PackReader(path) as reader:
        reader.require(ref)
        with pytest.raises(BackupDamaged, match="is not the file that the point refers to"):
            reader.require(other(ref))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda content: b"E" + content[:-1], "no index"),
        (lambda content: bytes([content[0] ^ 1]) + content[1:], "is not a pack"),
        (lambda content: content[:20] + b"?" + content[21:], "is damaged at 8"),
        (lambda content: content[:-100] + b"?" + content[-99:], "does not match its checksum"),
        (lambda content: content[:-20] + b"?" + content[-19:], "does not match its checksum"),
    ],
)
def test_changed_bytes(
    pack: tuple[Path, PackRef], change: Callable[[bytes], bytes], words: str
) -> None:
    path, _ = pack
    path.write_bytes(change(path.read_bytes()))

    def verify() -> None:
        with PackReader(path) as reader:
            reader.verify()

    with pytest.raises(BackupDamaged, match=words):
        verify()


@pytest.mark.parametrize("shift", [-1, 1])
def test_an_index_that_leaves_bytes_uncovered(pack: tuple[Path, PackRef], shift: int) -> None:
    path, _ = pack
    records = bytearray(_records(path))
    position, offset, length, crc, digest = RECORD.unpack_from(records, RECORD.size)
    RECORD.pack_into(records, RECORD.size, position, offset + shift, length, crc, digest)
    _with_index(path, bytes(records))
    with PackReader(path) as reader, pytest.raises(BackupDamaged, match="has a wrong index"):
        reader.verify()


def test_a_block_behind_the_end(pack: tuple[Path, PackRef]) -> None:
    path, ref = pack
    with PackReader(path) as reader:
        block = reader.index[0]
        end = ref.length
        with pytest.raises(BackupDamaged, match=f"ends at {end}"):
            list(reader.parts(block._replace(offset=end - 10, length=11)))


def test_errors_of_the_disk(pack: tuple[Path, PackRef], monkeypatch: pytest.MonkeyPatch) -> None:
    path, _ = pack
    with PackReader(path) as reader:

        def fail(_file: int, _length: int, _at: int) -> bytes:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(os, "pread", fail)
        with pytest.raises(BackupDamaged, match=r"name\.pack cannot be read: Input/output error"):
            reader.verify()


def test_a_large_index_is_searched(tmp_path: Path) -> None:
    records = b"".join(RECORD.pack(2 * n, 0, 0, 0, bytes(32)) for n in range(1_000))
    index = PackIndex(PackRef("name", 0, ""), records)
    assert len(index) == 1_000
    for number in (0, 1, 499, 500, 998, 999):
        found = index.find(2 * number)
        assert found is not None
        assert found.position == 2 * number
        assert index.find(2 * number + 1) is None
