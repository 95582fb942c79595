"""Notifications of changes, byte by byte ([MS-FSCC] 2.7.1)."""

from __future__ import annotations

from etagere.opens.watches import ChangeAction, WatchedChange
from etagere.protocol.smb.commands.notify import encode_notifications


def test_rename() -> None:
    changes = [
        WatchedChange(ChangeAction.RENAMED_FROM, ("d", "a")),
        WatchedChange(ChangeAction.RENAMED_TO, ("b",)),
    ]
    assert encode_notifications(changes) == b"".join(
        [
            bytes.fromhex("14000000"),  # offset of the next one
            bytes.fromhex("04000000"),  # old name
            bytes.fromhex("06000000"),  # length of the name
            "d\\a".encode("utf-16-le"),
            bytes(2),  # alignment
            bytes.fromhex("00000000"),
            bytes.fromhex("05000000"),  # new name
            bytes.fromhex("02000000"),
            "b".encode("utf-16-le"),
        ]
    )
