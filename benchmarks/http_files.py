"""Put Range and Get File over HTTP, compared with Put Block and Get Blob of the same server."""

from __future__ import annotations

import base64
import contextlib
import http.client
import os
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from benchmarks.figures import Figure, Group, Round, Settings
from benchmarks.load import ACCOUNT, Load, development_sas, run_to_the_end
from benchmarks.services import BLOB, FILE, Service, ask, etagere
from etagere.config import KIB, MIB

_OBJECT_BYTES = 256 * MIB
_RANGE_BYTES = 4 * MIB
"""The maximum of Put Range."""
_UPLOADING, _DOWNLOADING = 16, 4
"""Parallel connections."""
_DOWNLOADS = 4
"""Downloads per round; a single one is too short to measure."""
_SMALL_BYTES = 4 * KIB
_SMALL_OBJECTS = 500
_SECONDS = 2.0
_SECONDS_MAX = 120.0
_BUFFER_BYTES = 1 * MIB
_UPDATE = ("x-ms-write: update", f"Range: bytes=0-{_SMALL_BYTES - 1}")


async def measure(settings: Settings) -> AsyncIterator[Round]:
    size = settings.scaled(_OBJECT_BYTES, 8 * MIB)
    small = settings.scaled(_SMALL_OBJECTS, 4)
    seconds = 0.1 if settings.quick else _SECONDS
    sas = development_sas()
    below = tempfile.TemporaryDirectory(prefix="etagere-bench-", dir=settings.directory)
    with contextlib.ExitStack() as ends:
        blobs = etagere(Path(ends.enter_context(below)), ends, BLOB)
        sides = [_Blobs(blobs, sas), _Files(blobs.serving(FILE), sas)]
        for side in sides:
            side.prepare(size, small)
        data = os.urandom(MIB) * (size // MIB)
        for number in range(settings.rounds):
            told: Round = {}
            for side in sides[:: -1 if number % 2 else 1]:
                told |= _large(side, data) | _small(side, small, seconds)
            yield told | _ratios(told)
        yield {"files.memory": blobs.peak_mebibytes()}


class _Side:
    """One of the compared services, with its form of the requests."""

    name: str

    def __init__(self, service: Service, sas: str) -> None:
        self.service = service
        self.sas = sas

    def prepare(self, size: int, small: int) -> None:
        """Creates what the requests write to and read from."""
        raise NotImplementedError

    def put(self, start: int) -> str:
        """Returns the head of a request that writes at an offset of the large object."""
        raise NotImplementedError

    def commit(self, starts: Sequence[int]) -> None:
        """Makes what was written at these offsets the content of the large object."""

    def small_put(self, small: int) -> Load:
        raise NotImplementedError

    def target(self, path: str, query: str = "") -> str:
        return f"/{ACCOUNT}/bench/{path}?{query}{self.sas}"

    def ask(self, method: str, target: str, headers: dict[str, str], body: bytes = b"") -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.service.port)
        with contextlib.closing(connection):
            ask(connection, method, target, body, headers)


class _Blobs(_Side):
    name = "block"

    def prepare(self, size: int, small: int) -> None:
        self.ask("PUT", f"/{ACCOUNT}/bench?restype=container&{self.sas}", {})
        blob = {"x-ms-blob-type": "BlockBlob"}
        for number in range(small):
            self.ask("PUT", self.target(f"small-{number}"), blob, os.urandom(_SMALL_BYTES))

    def put(self, start: int) -> str:
        name = quote(_block_name(start), safe="")
        target = self.target("large", f"comp=block&blockid={name}&")
        return f"PUT {target} HTTP/1.1\r\n"

    def commit(self, starts: Sequence[int]) -> None:
        # Both services read what was written in the same way: the kernel caches long writes in
        # larger units, which cost less to send.
        blocks = "".join(f"<Latest>{_block_name(start)}</Latest>" for start in starts)
        document = f"<BlockList>{blocks}</BlockList>".encode()
        self.ask("PUT", self.target("large", "comp=blocklist&"), {}, document)

    def small_put(self, small: int) -> Load:
        target = self.target("small-{}", "comp=block&blockid=AAAA&")
        return Load("PUT", target, small, body_bytes=_SMALL_BYTES)


def _block_name(start: int) -> str:
    return base64.b64encode(b"%012d" % start).decode()


class _Files(_Side):
    name = "range"

    def prepare(self, size: int, small: int) -> None:
        self.ask("PUT", f"/{ACCOUNT}/bench?restype=share&{self.sas}", {})
        self._create("large", size)
        for number in range(small):
            self._create(f"small-{number}", _SMALL_BYTES)
            headers = {"x-ms-write": "update", "Range": f"bytes=0-{_SMALL_BYTES - 1}"}
            target = self.target(f"small-{number}", "comp=range&")
            self.ask("PUT", target, headers, os.urandom(_SMALL_BYTES))

    def _create(self, path: str, size: int) -> None:
        headers = {
            "x-ms-type": "file",
            "x-ms-content-length": str(size),
            "x-ms-file-attributes": "none",
            "x-ms-file-creation-time": "now",
            "x-ms-file-last-write-time": "now",
            "x-ms-file-permission": "inherit",
        }
        self.ask("PUT", self.target(path), headers)

    def put(self, start: int) -> str:
        target = self.target("large", "comp=range&")
        last = start + _RANGE_BYTES - 1
        return f"PUT {target} HTTP/1.1\r\nx-ms-write: update\r\nRange: bytes={start}-{last}\r\n"

    def small_put(self, small: int) -> Load:
        target = self.target("small-{}", "comp=range&")
        return Load("PUT", target, small, _UPDATE, _SMALL_BYTES)


# Large requests


class _Transfer(NamedTuple):
    mebibytes_per_second: float
    cpu_milliseconds_per_gibibyte: float


def _large(side: _Side, data: bytes) -> Round:
    """Writes all ranges of the large object in parallel, and reads them."""
    view, starts = memoryview(data), range(0, len(data), _RANGE_BYTES)

    def put(start: int) -> None:
        _exchange(side.service, side.put(start), view[start : start + _RANGE_BYTES], 201)

    def get(start: int) -> None:
        last = start + _RANGE_BYTES - 1
        head = f"GET {side.target('large')} HTTP/1.1\r\nRange: bytes={start}-{last}\r\n"
        if _exchange(side.service, head, b"", 206) < _RANGE_BYTES:
            raise RuntimeError("a range was not sent completely")

    written = _transferred(side.service, put, list(starts), _UPLOADING)
    side.commit(starts)
    read = _transferred(side.service, get, [*starts] * _DOWNLOADS, _DOWNLOADING)
    return {
        f"files.put_{side.name}": written.mebibytes_per_second,
        f"files.put_{side.name}_cpu": written.cpu_milliseconds_per_gibibyte,
        f"files.get_{side.name}": read.mebibytes_per_second,
        f"files.get_{side.name}_cpu": read.cpu_milliseconds_per_gibibyte,
    }


def _transferred(
    service: Service, transfer: Callable[[int], None], starts: list[int], connections: int
) -> _Transfer:
    cpu_before, began = service.cpu_seconds(), time.perf_counter()
    with ThreadPoolExecutor(connections) as threads:
        list(threads.map(transfer, starts))
    elapsed = time.perf_counter() - began
    mebibytes = len(starts) * _RANGE_BYTES / MIB
    cpu = service.cpu_seconds() - cpu_before
    return _Transfer(mebibytes / elapsed, 1000 * cpu * 1024 / mebibytes)


def _exchange(service: Service, head: str, body: bytes | memoryview, status: int) -> int:
    """Sends one request on a new connection; returns the length of the response body. The body is
    discarded by the kernel, so that the client costs little."""
    head += f"Host: {service.address}\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    buffer = bytearray(_BUFFER_BYTES)
    with socket.create_connection(("127.0.0.1", service.port), _SECONDS_MAX) as connection:
        connection.sendall(head.encode())
        if body:
            connection.sendall(body)
        answer = b""
        while b"\r\n\r\n" not in answer:
            count = connection.recv_into(buffer)
            if not count:
                raise RuntimeError(f"the server hung up: {answer!r}")
            answer += buffer[:count]
        received = len(answer.partition(b"\r\n\r\n")[2])
        while count := connection.recv_into(buffer, _BUFFER_BYTES, socket.MSG_TRUNC):
            received += count
    if not answer.startswith(b"HTTP/1.1 %d " % status):
        raise RuntimeError(f"{head}: {answer[:1000]!r}")
    return received


# Small requests


def _small(side: _Side, small: int, seconds: float) -> Round:
    put = run_to_the_end(side.service, side.small_put(small), seconds, seed=1)
    get = run_to_the_end(side.service, Load("GET", side.target("small-{}"), small), seconds, seed=1)
    return {
        f"files.small_put_{side.name}": put.per_second,
        f"files.small_put_{side.name}_cpu": put.cpu_microseconds,
        f"files.small_get_{side.name}": get.per_second,
        f"files.small_get_{side.name}_cpu": get.cpu_microseconds,
    }


def _ratios(told: Round) -> Round:
    return {
        f"files.{what}_to_blob": told[f"files.{what}_range"] / told[f"files.{what}_block"]
        for what in ("put", "get", "small_put", "small_get")
    }


def _figures(
    what: str, file_text: str, blob_text: str, units: tuple[str, str], at_least: float | None
) -> tuple[Figure, ...]:
    speed, cpu = units
    per = "GiB" if cpu == " ms" else "request"
    return (
        Figure(
            f"files.{what}_to_blob",
            f"{file_text}, relative to {blob_text}",
            " x",
            at_least=at_least,
        ),
        Figure(f"files.{what}_range", f"  {file_text}", speed),
        Figure(f"files.{what}_block", f"  {blob_text}", speed),
        Figure(f"files.{what}_range_cpu", f"  CPU time per {per}", cpu),
        Figure(f"files.{what}_block_cpu", f"  CPU time per {per}, {blob_text}", cpu),
    )


_BULK = (" MiB/s", " ms")
_REQUESTS = ("/s", " µs")

GROUP = Group(
    "files",
    measure,
    (
        *_figures("put", "Put Range of 4 MiB", "Put Block", _BULK, 0.8),
        *_figures("get", "Get File, ranges of 4 MiB", "Get Blob", _BULK, 0.8),
        *_figures("small_put", "Put Range of 4 KiB", "Put Block", _REQUESTS, None),
        *_figures("small_get", "Get File of 4 KiB", "Get Blob", _REQUESTS, None),
        Figure("files.memory", "peak memory of all processes, files", " MiB"),
    ),
)
