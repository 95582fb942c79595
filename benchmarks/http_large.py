"""Upload in blocks and download of a large blob over HTTP, compared with Azurite, the disk and
nginx."""

from __future__ import annotations

import base64
import http.client
import os
import socket
import tempfile
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from benchmarks.figures import Figure, Group, Round, Settings
from benchmarks.load import ACCOUNT, development_sas
from benchmarks.services import AZURITE, NGINX, OURS, Service, ask, started
from etagere.config import MIB

_BLOB_BYTES = 256 * MIB
_BUFFER_BYTES = 1 * MIB
_SECONDS_MAX = 120.0
_BLOCK_BYTES = 8 * MIB
_UPLOADING = 16
"""Parallel connections of an upload."""
_DOWNLOADS = 4
"""Sequential downloads per round; a single one is too short to measure."""


async def measure(settings: Settings) -> AsyncIterator[Round]:
    size = settings.scaled(_BLOB_BYTES, 2 * MIB)
    data = os.urandom(MIB) * (size // MIB)
    sas = development_sas()
    with started(settings, {"blob": data}) as services:
        compared = [services[name] for name in (OURS, AZURITE) if name in services]
        for service in compared:
            connection = http.client.HTTPConnection("127.0.0.1", service.port)
            ask(connection, "PUT", f"/{ACCOUNT}/large?restype=container&{sas}")
            connection.close()
        for number in range(settings.rounds):
            told: Round = {}
            for service in compared[:: -1 if number % 2 else 1]:
                told |= _round(service, data, sas)
            written = len(data) / MIB / _written(data, settings.directory)
            told["http_large.disk"] = written
            told["http_large.upload_to_disk"] = told["http_large.upload"] / written
            if NGINX in services:
                told |= _beside_nginx(services[NGINX], size, told)
            yield told | _ratios(told)
        yield {f"http_large.memory{_suffix(one)}": one.peak_mebibytes() for one in compared}


def _suffix(service: Service) -> str:
    return "" if service.name == OURS else f"_{service.name}"


def _round(service: Service, data: bytes, sas: str) -> Round:
    """Uploads and downloads the same blob; an upload replaces it."""
    target, suffix = f"/{ACCOUNT}/large/blob?{sas}", _suffix(service)
    up = _uploaded(service, target, data)
    down = _downloaded(service, target, len(data))
    mebibytes = len(data) / MIB
    return {
        f"http_large.upload{suffix}": mebibytes / up.seconds,
        f"http_large.upload_cpu{suffix}": 1000 * up.cpu_seconds * 1024 / mebibytes,
        f"http_large.download{suffix}": mebibytes / down.seconds,
        f"http_large.download_cpu{suffix}": 1000 * down.cpu_seconds * 1024 / mebibytes,
    }


def _uploaded(service: Service, target: str, data: bytes) -> _Transfer:
    """Uploads blocks in parallel, then the block list."""
    view = memoryview(data)
    names = [base64.b64encode(b"%012d" % at).decode() for at in range(0, len(data), _BLOCK_BYTES)]
    blocks = [view[at : at + _BLOCK_BYTES] for at in range(0, len(data), _BLOCK_BYTES)]

    def put(name: str, block: memoryview) -> None:
        line = f"PUT {target}&comp=block&blockid={quote(name, safe='')}"
        _exchange(service, line, block, (201,))

    cpu_before = service.cpu_seconds()
    began = time.perf_counter()
    with ThreadPoolExecutor(_UPLOADING) as threads:
        list(threads.map(put, names, blocks))
    listed = "".join(f"<Latest>{name}</Latest>" for name in names)
    document = f"<BlockList>{listed}</BlockList>".encode()
    _exchange(service, f"PUT {target}&comp=blocklist", memoryview(document), (201,))
    elapsed = time.perf_counter() - began
    return _Transfer(elapsed, service.cpu_seconds() - cpu_before)


def _written(data: bytes, directory: Path | None) -> float:
    """Returns the seconds that writing and syncing the same bytes takes."""
    with tempfile.NamedTemporaryFile(dir=directory) as file:
        began = time.perf_counter()
        for at in range(0, len(data), MIB):
            file.write(data[at : at + MIB])
        file.flush()
        os.fdatasync(file.fileno())
        return time.perf_counter() - began


def _downloaded(service: Service, target: str, size: int) -> _Transfer:
    """Returns the mean of a few downloads."""
    cpu_before = service.cpu_seconds()
    began = time.perf_counter()
    received = [_exchange(service, f"GET {target}", b"", (200,)) for _ in range(_DOWNLOADS)]
    elapsed = time.perf_counter() - began
    # More, if the transfer is chunked.
    if min(received) < size:
        raise RuntimeError(f"{service.name} did not send all {size} bytes")
    cpu_seconds = service.cpu_seconds() - cpu_before
    return _Transfer(elapsed / _DOWNLOADS, cpu_seconds / _DOWNLOADS)


def _beside_nginx(service: Service, size: int, told: Round) -> Round:
    down = _downloaded(service, "/blob", size)
    speed = size / MIB / down.seconds
    return {
        "http_large.download_nginx": speed,
        "http_large.download_cpu_nginx": 1000 * down.cpu_seconds * 1024 * MIB / size,
        "http_large.download_to_nginx": told["http_large.download"] / speed,
    }


def _ratios(told: Round) -> Round:
    return {
        f"http_large.{what}_ratio": told[f"http_large.{what}"] / told[f"http_large.{what}_azurite"]
        for what in ("upload", "download")
        if f"http_large.{what}_azurite" in told
    }


class _Transfer(NamedTuple):
    seconds: float
    cpu_seconds: float
    """The CPU time of the server."""


def _exchange(
    service: Service, line: str, body: bytes | memoryview, statuses: tuple[int, ...]
) -> int:
    """Sends one request on a new connection; returns the length of the response body. The body is
    discarded by the kernel, so that the client costs little."""
    headers = f"Host: {service.address}\r\nConnection: close\r\n"
    if body:
        headers += f"Content-Length: {len(body)}\r\n"
    buffer = bytearray(_BUFFER_BYTES)
    with socket.create_connection(("127.0.0.1", service.port), _SECONDS_MAX) as connection:
        connection.sendall(f"{line} HTTP/1.1\r\n{headers}\r\n".encode())
        if body:
            connection.sendall(body)
        answer = b""
        while b"\r\n\r\n" not in answer:
            count = connection.recv_into(buffer)
            if not count:
                raise RuntimeError(f"{service.name} hung up: {answer!r}")
            answer += buffer[:count]
        head, _, rest = answer.partition(b"\r\n\r\n")
        received = len(rest)
        # Discarded by the kernel: copying it to this process would be the slowest part.
        while count := connection.recv_into(buffer, _BUFFER_BYTES, socket.MSG_TRUNC):
            received += count
    if int(head.split(b" ", 2)[1]) not in statuses:
        raise RuntimeError(f"{service.name} answers {line}: {answer[:1000]!r}")
    return received


GROUP = Group(
    "http_large",
    measure,
    (
        Figure(
            "http_large.download_ratio",
            "download of 256 MiB, relative to Azurite",
            " x",
            at_least=4,
        ),
        Figure("http_large.download", "download of 256 MiB", " MiB/s"),
        Figure("http_large.download_azurite", "  Azurite", " MiB/s"),
        Figure("http_large.download_nginx", "  nginx, from a file", " MiB/s"),
        Figure("http_large.download_to_nginx", "  relative to nginx", " x"),
        Figure("http_large.download_cpu", "  CPU time per GiB", " ms"),
        Figure("http_large.download_cpu_azurite", "  Azurite", " ms"),
        Figure("http_large.download_cpu_nginx", "  nginx", " ms"),
        Figure(
            "http_large.upload_ratio",
            "upload of 256 MiB in blocks of 8 MiB, relative to Azurite",
            " x",
            at_least=1.5,
        ),
        Figure("http_large.upload_to_disk", "  relative to the disk", " x", at_least=0.8),
        Figure("http_large.upload", "  upload", " MiB/s"),
        Figure("http_large.disk", "  the disk, with fdatasync", " MiB/s"),
        Figure("http_large.upload_azurite", "  Azurite", " MiB/s"),
        Figure("http_large.upload_cpu", "  CPU time per GiB", " ms"),
        Figure("http_large.upload_cpu_azurite", "  Azurite", " ms"),
        Figure("http_large.memory", "peak memory of all processes, large blobs", " MiB"),
        Figure("http_large.memory_azurite", "  Azurite", " MiB"),
    ),
)
