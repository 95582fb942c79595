"""Requests of random bytes: information, listings, controls and watches end with an error that the
protocol has."""

from __future__ import annotations

import struct
from random import Random

import pytest

from etagere.protocol.smb.commands.directories import query_directory
from etagere.protocol.smb.commands.ioctl import ioctl
from etagere.protocol.smb.commands.notify import change_notify
from etagere.protocol.smb.commands.query_info import query_info
from etagere.protocol.smb.commands.set_info import set_info
from etagere.protocol.smb.requests import Handler
from etagere.protocol.smb.status import SmbError
from tests.protocol.smb.fixture import HANDLE_ID, FakeRequest, FakeShare, new_open, run

_ROUNDS = 400
_FILE_ID = struct.pack("<QQ", HANDLE_ID, HANDLE_ID)
_COMMANDS: dict[Handler, tuple[int, int]] = {
    query_info: (24, 40),
    set_info: (16, 32),
    query_directory: (8, 32),
    ioctl: (8, 56),
    change_notify: (8, 32),
}
"""Where the file ID is in the body, and how long the fixed part is."""


@pytest.mark.parametrize("command", _COMMANDS)
def test_random_requests(command: Handler) -> None:
    random = Random(1)
    at, fixed_bytes = _COMMANDS[command]
    for _ in range(_ROUNDS):
        body = bytearray(random.randbytes(random.choice((0, 5, fixed_bytes, fixed_bytes + 60))))
        if len(body) >= at + 16:
            body[at : at + 16] = _FILE_ID
            body[2:4] = bytes((random.randrange(5), random.randrange(70)))
        opened = new_open(is_directory=random.random() < 0.5)
        request = FakeRequest(bytes(body), FakeShare(), opened)
        # A watch would wait for a change.
        request.may_pend = False
        try:
            run(command, request)
        except (SmbError, AttributeError) as error:
            # The share of this test cannot do everything that a valid request may ask for.
            if isinstance(error, AttributeError):
                assert "Fake" in str(error)
