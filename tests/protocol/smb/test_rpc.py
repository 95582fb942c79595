"""DCE/RPC over the pipe srvsvc, byte by byte ([C706] chapter 12, [MS-SRVS])."""

from __future__ import annotations

import asyncio
import struct

import pytest

from etagere.nt_status import NtStatus
from etagere.protocol.smb.rpc import FRAGMENT_BYTES_MAX, REQUEST_BYTES_MAX, RpcPipe
from etagere.protocol.smb.srvsvc import ListedShares, ServerService
from etagere.protocol.smb.status import SmbError

_SRVSVC = bytes.fromhex("c84f324b7016d30112785a47bf6ee188")
_NDR = bytes.fromhex("045d888aeb1cc9119fe808002b104860")
_NDR64 = bytes.fromhex("33057171babe37498319b5dbef9ccc36")
_FEATURES = bytes.fromhex("2c1cb76c129840450300000000000000")


def _fragment(kind: int, body: bytes, flags: int = 3, call_id: int = 1) -> bytes:
    return struct.pack("<BBBBIHHI", 5, 0, kind, flags, 0x10, 16 + len(body), 0, call_id) + body


def _context(number: int, syntax: bytes, version: int) -> bytes:
    return (
        struct.pack("<HBx", number, 1) + _SRVSVC + b"\3\0\0\0" + syntax + bytes([version, 0, 0, 0])
    )


def _bind(*contexts: bytes) -> bytes:
    head = struct.pack("<HHIB3x", 4_280, 4_280, 0, len(contexts))
    return _fragment(11, head + b"".join(contexts))


def _pipe(names: list[str]) -> RpcPipe:
    async def list_shares(marker: str, limit: int) -> ListedShares:
        left = [name for name in names if name >= marker]
        following = left[limit] if len(left) > limit else ""
        return ListedShares(left[:limit], following)

    async def has_share(name: str) -> bool:
        return name in names

    return RpcPipe(ServerService("SERVER", list_shares, has_share).interface())


def _write(pipe: RpcPipe, *data: bytes) -> None:
    async def write() -> None:
        for one in data:
            await pipe.write(one)

    asyncio.run(write())


def _bound(names: list[str]) -> RpcPipe:
    pipe = _pipe(names)
    _write(pipe, _bind(_context(0, _NDR, 2)))
    pipe.read(FRAGMENT_BYTES_MAX)
    return pipe


def _call(pipe: RpcPipe, number: int, parameters: bytes) -> bytes:
    """Returns the results of a call, from all fragments of the response."""
    _write(pipe, _fragment(0, struct.pack("<IHH", len(parameters), 0, number) + parameters))
    results = b""
    while True:
        data, has_more = pipe.read(FRAGMENT_BYTES_MAX)
        assert data and not has_more
        assert data[2] == 2
        results += data[24:]
        if data[3] & 2:
            return results


def _string(text: str) -> bytes:
    encoded = (text + "\0").encode("utf-16-le")
    count = len(encoded) // 2
    return struct.pack("<III", count, 0, count) + encoded + bytes(-len(encoded) % 4)


_SERVER = struct.pack("<I", 0x20000) + _string("\\\\server")


def _enumerate(level: int, bytes_max: int = 0xFFFF_FFFF, resume: int = 0) -> bytes:
    container = struct.pack("<IIIII", level, level, 0x20004, 0, 0)
    return _SERVER + container + struct.pack("<III", bytes_max, 0x20008, resume)


def test_each_offer_gets_its_own_answer() -> None:
    pipe = _pipe([])
    _write(pipe, _bind(_context(0, _NDR, 2), _context(1, _NDR64, 1), _context(2, _FEATURES, 1)))
    data, has_more = pipe.read(FRAGMENT_BYTES_MAX)
    assert not has_more
    assert data == b"".join(
        [
            bytes([5, 0]),  # version
            bytes([12]),  # bind_ack
            bytes([3]),  # first and last fragment
            bytes.fromhex("10000000"),  # little-endian
            struct.pack("<H", 116),  # length of the fragment
            bytes(2),  # length of the authentication
            bytes.fromhex("01000000"),  # call ID
            struct.pack("<HH", 4_280, 4_280),  # fragments
            bytes.fromhex("01000000"),  # association group
            struct.pack("<H", 13),  # length of the address
            b"\\PIPE\\srvsvc\0",
            bytes(1),  # alignment
            bytes.fromhex("03000000"),  # number of results
            bytes.fromhex("00000000") + _NDR + bytes.fromhex("02000000"),
            bytes.fromhex("02000200") + bytes(20),  # no such transfer syntax
            bytes.fromhex("02000200") + bytes(20),
        ]
    )


def test_shares_of_level_1() -> None:
    results = _call(_bound(["box"]), 15, _enumerate(1))
    assert results == b"".join(
        [
            struct.pack("<II", 1, 1),  # level, and again as the tag of the union
            struct.pack("<I", 0x20004),  # container
            struct.pack("<I", 2),  # number of shares
            struct.pack("<I", 0x20008),  # array
            struct.pack("<I", 2),  # its length
            struct.pack("<III", 0x2000C, 0, 0x20010),  # name, type, comment
            struct.pack("<III", 0x20014, 0x8000_0003, 0x20018),
            _string("box"),
            _string(""),
            _string("IPC$"),
            _string("Remote IPC"),
            struct.pack("<I", 2),  # total
            struct.pack("<II", 0x2001C, 0),  # resume handle
            struct.pack("<I", 0),  # success
        ]
    )


def test_many_shares_take_several_fragments() -> None:
    names = [f"share-{number:04}" for number in range(1_000)]
    results = _call(_bound(names), 15, _enumerate(1))
    assert all(name.encode("utf-16-le") in results for name in names)
    assert results.endswith(struct.pack("<I", 0))


def test_shares_in_pages() -> None:
    names = [f"share-{number:04}" for number in range(25)]
    pipe = _bound(names)
    resume, found = 0, 0
    for _ in range(10):
        results = _call(pipe, 15, _enumerate(0, bytes_max=1_280, resume=resume))
        found += struct.unpack_from("<I", results, 12)[0]
        resume, status = struct.unpack("<II", results[-8:])
        if not status:
            break
        assert status == 234
    assert found == 26


def test_one_share() -> None:
    pipe = _bound(["box"])
    results = _call(pipe, 16, _SERVER + bytes(-len(_SERVER) % 4) + _string("BOX") + b"\1\0\0\0")
    assert results == b"".join(
        [
            struct.pack("<II", 1, 0x20004),  # level, information
            struct.pack("<III", 0x20008, 0, 0x2000C),  # name, type, comment
            _string("box"),
            _string(""),
            struct.pack("<I", 0),  # success
        ]
    )
    missing = _call(pipe, 16, _SERVER + _string("other") + b"\1\0\0\0")
    assert missing == struct.pack("<III", 1, 0, 2310)


def test_server() -> None:
    results = _call(_bound([]), 21, _SERVER + struct.pack("<I", 101))
    assert results.startswith(struct.pack("<III", 101, 0x20004, 500))
    assert _string("SERVER") in results
    assert _call(_bound([]), 21, _SERVER + struct.pack("<I", 599)) == struct.pack(
        "<III", 599, 0, 124
    )


def test_request_in_fragments() -> None:
    pipe, parameters = _bound(["box"]), _enumerate(1)
    head = struct.pack("<IHH", len(parameters), 0, 15)
    whole = _call(_bound(["box"]), 15, parameters)
    _write(pipe, _fragment(0, head + parameters[:7], flags=1))
    assert pipe.read(FRAGMENT_BYTES_MAX) == (b"", False)
    _write(pipe, _fragment(0, head + parameters[7:], flags=2))
    assert pipe.read(FRAGMENT_BYTES_MAX)[0][24:] == whole


def test_response_is_read_in_parts() -> None:
    pipe = _bound(["box"])
    _write(pipe, _fragment(0, struct.pack("<IHH", 0, 0, 15) + _enumerate(1)))
    first, has_more = pipe.read(10)
    assert len(first) == 10 and has_more
    rest, has_more = pipe.read(FRAGMENT_BYTES_MAX)
    assert rest and not has_more
    assert pipe.read(10) == (b"", False)


@pytest.mark.parametrize(
    ("number", "parameters", "status"),
    [(99, b"", 0x1C01_0002), (15, b"\1", 0x6F7), (15, _SERVER[:-9], 0x6F7)],
)
def test_fault(number: int, parameters: bytes, status: int) -> None:
    pipe = _bound([])
    _write(pipe, _fragment(0, struct.pack("<IHH", 0, 0, number) + parameters))
    data, _ = pipe.read(FRAGMENT_BYTES_MAX)
    assert data[2] == 3
    assert struct.unpack_from("<I", data, 24) == (status,)


@pytest.mark.parametrize(
    "data",
    [
        b"\5",
        b"\4" + _fragment(11, b"")[1:],
        _fragment(11, b""),
        _bind(_context(0, _NDR, 2)[:-1]),
        _fragment(0, b"\0"),
        _fragment(11, bytes(12))[:-1],
    ],
)
def test_invalid_fragment(data: bytes) -> None:
    with pytest.raises(SmbError) as raised:
        _write(_pipe([]), data)
    assert raised.value.status is NtStatus.INVALID_PARAMETER


def test_request_without_end() -> None:
    pipe, part = _bound([]), bytes(4_000)
    head = struct.pack("<IHH", 0, 0, 15)
    _write(pipe, _fragment(0, head + part, flags=1))
    with pytest.raises(SmbError):
        for _ in range(REQUEST_BYTES_MAX // len(part) + 1):
            _write(pipe, _fragment(0, head + part, flags=0))
