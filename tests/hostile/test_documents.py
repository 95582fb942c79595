"""Documents that are expensive to parse: others do not wait, and the error is the documented
one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.hostile.bystanders import assert_others_do_not_wait
from tests.probes.client import Client, Request, shared_key
from tests.server import ACCOUNT, KEY, Server, served, unique

pytestmark = pytest.mark.alone

_sign = shared_key(ACCOUNT, KEY)
_BYTES: Final = (16 << 20) - 1024
_CPU_SECONDS_MAX: Final = 2.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory: Path = tmp_path_factory.mktemp("documents") / "data"
    with served(directory, "--workers", "1") as started:
        yield started


def _put_block_list(server: Server, document: bytes) -> tuple[int, str]:
    path = f"/{ACCOUNT}/{unique('documents')}"
    with Client(server.endpoints["blob"]) as client:
        created = client.ask(_sign(Request("PUT", path, (("restype", "container"),))))
        assert created.status == 201
        request = Request("PUT", f"{path}/blob", (("comp", "blocklist"),), (), document)
        answer = client.ask(_sign(request))
    return answer.status, answer.code


class _Filled(NamedTuple):
    """A document of 16 MiB, whose middle is one unit again and again. Made by the test that needs
    it: all of them would take 200 MiB in each process that collects tests."""

    before: bytes
    unit: bytes
    after: bytes

    def document(self) -> bytes:
        count = (_BYTES - len(self.before) - len(self.after)) // len(self.unit)
        return self.before + self.unit * count + self.after


_INVALID: Final = (400, "InvalidXmlDocument")


@pytest.mark.parametrize(
    ("filled", "expected"),
    [
        (_Filled(b"<BlockList><!--", b"x", b"--></BlockList>"), _INVALID),
        (_Filled(b"<BlockList a='", b"x", b"'></BlockList>"), _INVALID),
        (_Filled(b"<", b"x", b"/>"), _INVALID),
        (_Filled(b"<?a ", b"x", b"?><BlockList/>"), _INVALID),
        (_Filled(b"<!DOCTYPE a SYSTEM '", b"x", b"'><BlockList/>"), _INVALID),
        (_Filled(b"<BlockList>", b"<a/>", b"</BlockList>"), _INVALID),
        (_Filled(b"<BlockList>", b"<Latest a='' b=''/>", b"</BlockList>"), _INVALID),
        (_Filled(b"", b"<a>", b""), _INVALID),
        (
            _Filled(
                "<BlockList><!--".encode("utf-16"),
                "é".encode("utf-16-le"),
                "--></BlockList>".encode("utf-16-le"),
            ),
            _INVALID,
        ),
        (
            _Filled(b"<BlockList><Latest>", b"A", b"</Latest></BlockList>"),
            (400, "InvalidXmlNodeValue"),
        ),
        (_Filled(b"<BlockList>", b"<!---->", b"</BlockList>"), (201, "")),
        (_Filled(b"", b" ", b"<BlockList></BlockList>"), (201, "")),
    ],
    ids=[
        "comment",
        "attribute",
        "name",
        "instruction",
        "doctype",
        "elements",
        "attributes",
        "nested",
        "utf-16",
        "text",
        "comments",
        "spaces",
    ],
)
def test_a_block_list_of_16_mib(server: Server, filled: _Filled, expected: tuple[int, str]) -> None:
    document = filled.document()

    def attack() -> None:
        before = _cpu_seconds(server)
        assert _put_block_list(server, document) == expected
        spent.append(_cpu_seconds(server) - before)
        time.sleep(0.05)

    spent: list[float] = []
    assert_others_do_not_wait(server, attack)
    assert min(spent) < _CPU_SECONDS_MAX


def _cpu_seconds(server: Server) -> float:
    ticks = 0
    for pid in server.children():
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / 100
