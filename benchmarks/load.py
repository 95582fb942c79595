"""Load generators: wrk, and a client of our own for what wrk cannot do."""

from __future__ import annotations

import base64
import contextlib
import datetime
import hashlib
import hmac
import itertools
import json
import random
import re
import select
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, urlencode

from benchmarks.services import Service
from etagere.settings.values import DEVELOPMENT_ACCOUNT

ACCOUNT = DEVELOPMENT_ACCOUNT.name
_SAS_VERSION = "2021-12-02"
_THREADS = 2
_ANSWER_SECONDS_MAX = 60
_RECEIVE_BYTES = 1 << 20
_CONTENT_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_LAST_CHUNK = b"\r\n0\r\n\r\n"
_DONE = tuple(b"HTTP/1.1 %d " % status for status in (200, 201, 202, 204))
_NO_BODY = b"HTTP/1.1 204 "


def account_sas(key: bytes, account: str, expiry: str) -> str:
    """Returns a SAS with all permissions for all services."""
    signed = {"sp": "rwdlacup", "ss": "bqtf", "srt": "sco", "st": "", "se": expiry, "sip": ""}
    signed |= {"spr": "https,http", "sv": _SAS_VERSION, "ses": ""}
    text = "".join(f"{line}\n" for line in (account, *signed.values()))
    digest = hmac.digest(key, text.encode(), hashlib.sha256)
    said = {name: value for name, value in signed.items() if value}
    return urlencode(said | {"sig": base64.b64encode(digest).decode()}, quote_via=quote)


def development_sas() -> str:
    tomorrow = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    key = DEVELOPMENT_ACCOUNT.keys[0]
    return account_sas(key, ACCOUNT, tomorrow.strftime("%Y-%m-%dT%H:%M:%SZ"))


class Load(NamedTuple):
    """Requests of one kind. {} in the target is replaced by a number below `names`."""

    method: str
    target: str
    names: int = 1
    headers: tuple[str, ...] = ()
    body_bytes: int = 0
    connections: int = 16
    envelope: str = "{}"
    """The markup around the bytes of the body."""
    document: str = ""
    """A complete body. {} is replaced by the number, padded so that all bodies have the same
    length."""

    @property
    def body(self) -> str:
        return self.document or self.envelope.format("x" * self.body_bytes)

    @property
    def digits(self) -> int:
        return len(str(self.names - 1))


class Run(NamedTuple):
    """The result of a run."""

    requests: int
    seconds: float
    cpu_seconds: float
    p50: float
    """In seconds, like the next field."""
    p99: float

    @property
    def per_second(self) -> float:
        return self.requests / self.seconds

    @property
    def cpu_microseconds(self) -> float:
        """CPU time of all processes of the server per request."""
        return 1e6 * self.cpu_seconds / self.requests


class Answered(NamedTuple):
    """An answered request: its start and its duration."""

    began: float
    seconds: float


# The script builds the whole request: wrk's own formatting costs more than sending it.
_SCRIPT = """\
local thread_count = 0
function setup(thread)
    thread_count = thread_count + 1
    thread:set("seed", {seed} + thread_count)
end
function init(args)
    math.randomseed(seed)
end
local before, after = {before}, {after}
local body = {body}
function request()
    return before .. {number} .. after .. {numbered}
end
function done(summary, latency, requests)
    local errors = summary.errors
    io.write(string.format(
        '\\n{{"requests": %d, "microseconds": %d, "p50": %d, "p99": %d, "failed": %d}}\\n',
        summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
        errors.connect + errors.read + errors.write + errors.status + errors.timeout
    ))
end
"""


def script(load: Load, address: str, seed: int) -> str:
    """Returns the Lua script that makes wrk send these requests."""
    before, varies, after = load.target.partition("{}")
    random_number = f"math.random(0, {load.names - 1})"
    padded = f'string.format("%0{load.digits}d", {random_number})'
    return _SCRIPT.format(
        seed=seed,
        # JSON strings in ASCII without escaped slashes are valid Lua strings.
        before=json.dumps(f"{load.method} {before}"),
        after=json.dumps(_head(load, address, after)),
        number=random_number if varies else '""',
        numbered=f'body:gsub("{{}}", {padded})' if "{}" in load.document else "body",
        body=json.dumps(load.body),
    )


def _head(load: Load, address: str, target: str) -> str:
    headers = [f"Host: {address}", *load.headers]
    if load.body:
        numbers = load.document.count("{}")
        length = len(load.body) + numbers * (load.digits - len("{}"))
        headers.append(f"Content-Length: {length}")
    return "".join(f"{line}\r\n" for line in (f"{target} HTTP/1.1", *headers, ""))


def run(wrk: str, service: Service, load: Load, seconds: float, where: Path, seed: int) -> Run:
    """Runs a load for some seconds. Raises if a request fails, because errors are fast."""
    lua = where / "load.lua"
    lua.write_text(script(load, service.address, seed), encoding="ascii")
    command = [
        wrk,
        f"-t{min(_THREADS, load.connections)}",
        f"-c{load.connections}",
        f"-d{max(1, round(seconds))}s",  # wrk accepts whole seconds only
        f"--timeout={_ANSWER_SECONDS_MAX}s",
        "--latency",
        f"-s{lua}",
        f"http://{service.address}/",
    ]
    before = service.cpu_seconds()
    told = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    cpu_seconds = service.cpu_seconds() - before
    lua.unlink()
    done = json.loads(told.rstrip().rpartition("\n")[2])
    if done["failed"] or not done["requests"]:
        raise RuntimeError(f"{service.name}, {load.method} {load.target}: {told}")
    return Run(
        done["requests"],
        done["microseconds"] / 1e6,
        cpu_seconds,
        done["p50"] / 1e6,
        done["p99"] / 1e6,
    )


Follow = Callable[[bytes], bytes | None]
"""Returns the request that follows an answer on the same connection, or None."""


def run_to_the_end(
    service: Service, load: Load, seconds: float, seed: int, follow: Follow | None = None
) -> Run:
    """Runs a load with our own client, for what wrk cannot do: wrk waits for a body after a HEAD,
    and does not count requests in flight at the end, which matters if there are few slow ones. Our
    client parses little and costs little more than wrk. A request and those that follow it count
    as one."""
    choose = random.Random(seed)
    names = [str(choose.randrange(load.names)) if load.names > 1 else "" for _ in range(997)]
    requests = itertools.cycle(list(_requests(service, load, names)))
    deadline = time.perf_counter() + seconds
    in_time = itertools.takewhile(lambda _: time.perf_counter() < deadline, requests)
    return _run(service, load, in_time, follow)


def run_each(
    service: Service, load: Load, names: Iterable[str], follow: Follow | None = None
) -> Run:
    """Sends one request for each name, which replaces {} in the target."""
    return _run(service, load, _requests(service, load, names), follow)


def run_until(service: Service, load: Load, ended: Callable[[], bool]) -> list[Answered]:
    """Sends requests until `ended` returns true; returns them in the order of their answers."""
    numbers = [str(number) for number in range(load.names)] if load.names > 1 else [""]
    names = itertools.takewhile(lambda _: not ended(), itertools.cycle(numbers))
    return _Client(service, load, _requests(service, load, names), None).answered()


def run_all(service: Service, loads: Sequence[Load]) -> Run:
    """Sends one request of each load, all without {}, on the connections of the first."""
    heads = [_head(load, service.address, f"{load.method} {load.target}") for load in loads]
    requests = [(head + load.body).encode("ascii") for head, load in zip(heads, loads, strict=True)]
    return _run(service, loads[0], iter(requests), None)


def _requests(service: Service, load: Load, names: Iterable[str]) -> Iterator[bytes]:
    before, _, after = load.target.partition("{}")
    rest = _head(load, service.address, after) + load.body
    return (f"{load.method} {before}{name}{rest}".encode() for name in names)


def _run(service: Service, load: Load, requests: Iterator[bytes], follow: Follow | None) -> Run:
    cpu_before = service.cpu_seconds()
    began = time.perf_counter()
    answered = _Client(service, load, requests, follow).answered()
    elapsed = time.perf_counter() - began
    cpu_seconds = service.cpu_seconds() - cpu_before
    latencies = sorted([one.seconds for one in answered])
    p50, p99 = (latencies[len(latencies) * percent // 100] for percent in (50, 99))
    return Run(len(latencies), elapsed, cpu_seconds, p50, p99)


class _Client:
    """Keeps one request on each of its connections."""

    def __init__(
        self, service: Service, load: Load, requests: Iterator[bytes], follow: Follow | None
    ) -> None:
        self._requests = requests
        self._follow = follow
        self._bodies = load.method != "HEAD"
        here = "127.0.0.1", service.port
        connections = [socket.create_connection(here) for _ in range(load.connections)]
        self._connections = {one.fileno(): one for one in connections}
        self._answers: dict[int, _Answer] = {}

    def answered(self) -> list[Answered]:
        """Returns all answered requests after the last one."""
        found: list[Answered] = []
        answers = self._answers
        with select.epoll() as poll, contextlib.ExitStack() as ends:
            for number, connection in self._connections.items():
                ends.enter_context(connection)
                poll.register(number, select.EPOLLIN)
                self._send(number)
            while answers:
                for number, _ in poll.poll():
                    received = self._connections[number].recv(_RECEIVE_BYTES)
                    if answers[number].whole(received) and not self._followed(number):
                        began = answers.pop(number).began
                        found.append(Answered(began, time.perf_counter() - began))
                        self._send(number)
        return found

    def _followed(self, number: int) -> bool:
        """Sends the request that follows an answer, if any; returns whether there is one."""
        answer = self._answers[number]
        request = None if self._follow is None else self._follow(bytes(answer.kept))
        if request is None:
            return False
        self._connections[number].sendall(request)
        self._answers[number] = _Answer(self._bodies, keep=True, began=answer.began)
        return True

    def _send(self, number: int) -> None:
        """Sends the next request on this connection, if there is one."""
        if (request := next(self._requests, None)) is not None:
            self._connections[number].sendall(request)
            kept = self._follow is not None
            self._answers[number] = _Answer(self._bodies, kept, time.perf_counter())


class _Answer:
    """A partially received answer."""

    __slots__ = ("_chunked", "_has_body", "_head", "_keep", "_missing", "_tail", "began", "kept")

    def __init__(self, has_body: bool, keep: bool, began: float) -> None:
        self.began = began
        self.kept = bytearray()
        """The whole answer, if it is kept."""
        self._keep = keep
        self._has_body = has_body
        self._head = b""
        self._missing: int | None = None
        self._chunked = False
        self._tail = b""

    def whole(self, received: bytes) -> bool:
        """Adds received bytes; returns whether the answer is complete."""
        if not received:
            raise RuntimeError("the server hung up")
        if self._keep:
            self.kept += received
        if self._missing is None:
            self._head += received
            head, end, received = self._head.partition(b"\r\n\r\n")
            if not end:
                return False
            if not head.startswith(_DONE):
                raise RuntimeError(f"a request was answered with {self._head[:1000]!r}")
            if not self._has_body or head.startswith(_NO_BODY):
                return True
            length = _CONTENT_LENGTH.search(head)
            self._chunked = length is None
            self._missing = 0 if length is None else int(length[1])
        if self._chunked:
            self._tail = (self._tail + received)[-len(_LAST_CHUNK) :]
            return self._tail == _LAST_CHUNK
        self._missing -= len(received)
        return self._missing <= 0
