"""The commands of SMB2 and the functions that execute them ([MS-SMB2] 3.3.5)."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from typing import Final, NamedTuple

from etagere.protocol.smb.header import Command
from etagere.protocol.smb.requests import Handler


class CommandRow(NamedTuple):
    """A command that works on a session; `needs_tree` says whether also on a tree."""

    handler: Handler
    structure_size: int
    """The structure size that the body of a request begins with."""
    needs_tree: bool = True


_COMMANDS: Final = {
    Command.CREATE: ("create", "create", 57),
    Command.CLOSE: ("close", "close", 24),
    Command.FLUSH: ("read_write", "flush", 24),
    Command.READ: ("read_write", "read", 49),
    Command.WRITE: ("read_write", "write", 49),
    Command.LOCK: ("locks", "lock", 48),
    Command.IOCTL: ("ioctl", "ioctl", 57),
    Command.QUERY_DIRECTORY: ("directories", "query_directory", 33),
    Command.CHANGE_NOTIFY: ("notify", "change_notify", 32),
    Command.QUERY_INFO: ("query_info", "query_info", 41),
    Command.SET_INFO: ("set_info", "set_info", 33),
    # The acknowledgement of an oplock has 24 bytes, that of a lease 36.
    Command.OPLOCK_BREAK: ("breaks", "oplock_break", 0),
}
"""Module in `commands`, function, and structure size of the request; 0: checked by the function."""


def command_table() -> Mapping[int, CommandRow]:
    """Returns the commands that are there."""
    rows: dict[int, CommandRow] = {}
    for command, (module, function, structure_size) in _COMMANDS.items():
        path = f"etagere.protocol.smb.commands.{module}"
        if importlib.util.find_spec(path) is not None:
            handler = getattr(importlib.import_module(path), function, None)
            if handler is not None:
                rows[command] = CommandRow(handler, structure_size)
    return rows
