"""Errors while segments are read: the bytes of a response are right, or the client can tell that
they are missing, and the server goes on."""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.probes.client import Client, NotHttp, Request, md5, shared_key
from tests.probes.tokens import share_token
from tests.server import ACCOUNT, KEY, check, served
from tests.simulation import syscalls
from tests.simulation.injection import InjectedError, broken_server

pytestmark = pytest.mark.skipif(bool(syscalls.why_not()), reason=syscalls.why_not())

ROOT: Final = f"/{ACCOUNT}/share"
CONTENTS: Final = {
    name: random.Random(name).randbytes(size)
    for name, size in (
        ("short", 30_000),  # read before the response begins
        ("long", 900_000),  # sent from the page cache
    )
}
ROUNDS: Final = 30
_DESCRIPTORS_SPARE: Final = 3
"""Jobs and new connections may need as many at any moment."""

_NAMES_REQUEST_AND_SEGMENT: Final = re.compile(r" \[[0-9a-f-]{36}\]: .*segment \d+ at \d+")

_sign = shared_key(ACCOUNT, KEY)


class Read(NamedTuple):
    """A request that reads a segment."""

    name: str
    request: Request
    content: bytes


def _range(start: int, end: int) -> tuple[str, str]:
    return "x-ms-range", f"bytes={start}-{end - 1}"


def _reads() -> list[Read]:
    short, long = CONTENTS["short"], CONTENTS["long"]
    with_md5 = (_range(1_000, 300_000), ("x-ms-range-get-content-md5", "true"))
    structured = (("x-ms-structured-body", "XSM/1.0; properties=crc64"),)
    return [
        Read("a short file", Request("GET", f"{ROOT}/short"), short),
        Read("a long file", Request("GET", f"{ROOT}/long"), long),
        Read("a range", Request("GET", f"{ROOT}/long", (), (_range(7, 70_007),)), long[7:70_007]),
        Read("an MD5", Request("GET", f"{ROOT}/long", (), with_md5), long[1_000:300_000]),
        Read("a structured body", Request("GET", f"{ROOT}/long", (), structured), long),
    ]


def _put(name: str, content: bytes) -> list[Request]:
    length = ("x-ms-content-length", str(len(content)))
    write = (("x-ms-write", "update"), _range(0, len(content)))
    return [
        Request("PUT", f"{ROOT}/{name}", (), (("x-ms-type", "file"), length)),
        Request("PUT", f"{ROOT}/{name}", (("comp", "range"),), write, content),
    ]


def _put_from(endpoint: str, source: str, target: str) -> Request:
    """Returns the request that copies 30,000 bytes of a file: so few are read, not shared."""
    token = share_token(ACCOUNT, KEY, "share")
    headers = (
        ("x-ms-write", "update"),
        _range(0, 30_000),
        ("x-ms-source-range", "bytes=0-29999"),
        ("x-ms-copy-source", f"{endpoint}{ROOT}/{source}?{token}"),
    )
    return Request("PUT", f"{ROOT}/{target}", (("comp", "range"),), headers)


def _descriptors(directory: Path) -> int:
    """Returns how many descriptors the processes of the server have."""
    count = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(directory).encode() in (process / "cmdline").read_bytes():
                count += len(list((process / "fd").iterdir()))
        except OSError:  # it has exited
            continue
    return count


@pytest.mark.parametrize("call", ["preadv2", "pread64", "sendfile"])
def test_read_errors(tmp_path: Path, call: str) -> None:
    directory = tmp_path / "data"
    with served(directory, "--workers", "1") as server, Client(server.endpoints["file"]) as client:
        requests = [Request("PUT", ROOT, (("restype", "share"),))]
        requests += [each for item in CONTENTS.items() for each in _put(*item)]
        requests += _put("target", b"t" * 30_000)
        assert {client.ask(_sign(each)).status for each in requests} == {201}
        assert server.stop() == 0
    segment = max((directory / "segments").iterdir(), key=lambda path: path.stat().st_size)
    path = f"segments/{segment.name}"
    error = InjectedError(call, path, nth=2, every=7)
    # Otherwise the page cache has all bytes.
    more = (InjectedError("preadv2", path, "EAGAIN", every=1),) if call == "pread64" else ()
    log_path = tmp_path / "broken.log"
    outcomes: Counter[tuple[str, str]] = Counter()
    with (
        broken_server(directory, error, log_path, "file", *more) as endpoint,
        Client(endpoint) as client,
    ):
        chance, descriptors = random.Random(call), 0
        for number in range(ROUNDS):
            # In another order each time, so that the errors meet all of them.
            for read in chance.sample(_reads(), len(_reads())):
                outcomes[read.name, _outcome(client, read)] += 1
            outcomes["a source", _copy_range(client, endpoint)] += 1
            if number == ROUNDS // 2:
                descriptors = _descriptors(directory)
        assert _descriptors(directory) <= descriptors + _DESCRIPTORS_SPARE
        # Writes do not depend on reads.
        for request in _put("after", b"after"):
            assert client.ask(_sign(request)).status == 201
    assert b"INJECTED" in log_path.with_suffix(".trace").read_bytes()
    assert {outcome for _, outcome in outcomes} <= {"right", "refused", "closed"}, outcomes
    assert any(outcome != "right" for _, outcome in outcomes), outcomes
    for name in {name for name, _ in outcomes}:
        assert outcomes[name, "right"], outcomes
    log = log_path.read_text()
    assert "Traceback" not in log
    lines = [line for line in log.splitlines() if "Input/output error" in line]
    assert lines
    for line in lines:
        assert _NAMES_REQUEST_AND_SEGMENT.search(line), line
    with served(directory, "--workers", "1") as server, Client(server.endpoints["file"]) as client:
        for read in _reads():
            assert _outcome(client, read) == "right"
        assert client.ask(_sign(Request("GET", f"{ROOT}/after"))).body == b"after"
        assert server.stop() == 0
    checked = check(directory)
    assert checked.returncode == 0, checked.stdout


def _outcome(client: Client, read: Read) -> str:
    """Returns whether the bytes of a response are right, or how the client can tell that they are
    not there."""
    try:
        answer = client.ask(_sign(read.request))
    except (OSError, NotHttp):
        return "closed"
    if answer.status == 503:
        return "refused" if answer.code == "ServerBusy" else "no code"
    if answer.status not in (200, 206):
        return f"status {answer.status}"
    if "content-md5" in answer.headers and answer.headers["content-md5"] != md5(read.content):
        return "wrong MD5"
    # The encoding of structured bodies is tested elsewhere; here they contain all bytes.
    is_right = (
        read.content in answer.body
        if len(answer.body) > len(read.content)
        else (answer.body == read.content)
    )
    return "right" if is_right else "wrong bytes"


def _copy_range(client: Client, endpoint: str) -> str:
    """Copies a range between files. A refused copy leaves the target as it was."""
    (clear, write) = _put("target", b"t" * 30_000)
    for request in (clear, write):
        if client.ask(_sign(request)).status != 201:
            return "not prepared"
    try:
        answer = client.ask(_sign(_put_from(endpoint, "short", "target")))
    except (OSError, NotHttp):
        return "closed"
    expected = CONTENTS["short"] if answer.status == 201 else b"t" * 30_000
    # What this server has written is in another segment.
    if client.ask(_sign(Request("GET", f"{ROOT}/target"))).body != expected:
        return f"wrong bytes after {answer.status}"
    if answer.status == 201:
        return "right"
    return "refused" if answer.status in (500, 503) else f"status {answer.status} {answer.code}"
