"""Requests with changed bytes are answered or refused: nothing else goes wrong."""

from __future__ import annotations

import random

import pytest

from etagere.protocol.smb.commands.breaks import oplock_break
from etagere.protocol.smb.commands.close import close
from etagere.protocol.smb.commands.create import create
from etagere.protocol.smb.commands.locks import lock
from etagere.protocol.smb.commands.read_write import flush, read, write
from etagere.protocol.smb.requests import Handler
from tests.protocol.smb import test_breaks, test_create, test_create_contexts, test_locks
from tests.protocol.smb import test_read_write as read_write
from tests.protocol.smb.fixture import FakeRequest, FakeShare, new_open, opened, status

CONTEXTS = test_create_contexts.MAXIMAL_ACCESS + test_create_contexts.LEASE_V2
COMMANDS: dict[str, tuple[Handler, bytes]] = {
    "create": (create, test_create.body("a\\b", oplock=0xFF, contexts=CONTEXTS)),
    "close": (close, read_write.CLOSE),
    "read": (read, read_write.READ),
    "write": (write, read_write.WRITE),
    "flush": (flush, read_write.FLUSH),
    "lock": (lock, test_locks.REQUEST),
    "oplock": (oplock_break, test_breaks.OPLOCK),
    "lease": (oplock_break, test_breaks.LEASE),
}
INTERESTING = (0x00, 0x01, 0x7F, 0x80, 0xFF)


@pytest.mark.parametrize("name", COMMANDS)
def test_mutations(name: str) -> None:
    command, request = COMMANDS[name]
    random_source = random.Random(name)
    for _ in range(400):
        mutated = bytearray(request)
        for _ in range(random_source.randrange(1, 5)):
            at = random_source.randrange(len(mutated))
            mutated[at] = random_source.choice((*INTERESTING, random_source.randrange(256)))
        if random_source.random() < 0.2:
            del mutated[random_source.randrange(len(mutated)) :]
        share = FakeShare([opened()])
        status(command, FakeRequest(bytes(mutated), share, new_open()))
