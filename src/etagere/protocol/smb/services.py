"""What the commands of the SMB server work with."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from etagere.clock import Clock
from etagere.engine.interface import Engine
from etagere.metrics.counters import SmbCounters
from etagere.opens.contents import FileContents
from etagere.opens.table import OpenTable
from etagere.protocol.smb.session_table import SessionTable
from etagere.settings import Settings

if TYPE_CHECKING:
    from etagere.protocol.rest.cells import Cells
    from etagere.protocol.smb.draining import AccountDrains


@dataclass(frozen=True, slots=True, eq=False)
class SmbServices:
    """The dependencies of the SMB server."""

    engine: Engine
    opens: OpenTable
    contents: FileContents
    settings: Settings
    clock: Clock
    guid: bytes
    """Identifies the server; 16 bytes."""
    name: str
    """The NetBIOS name of the server."""
    drains: AccountDrains | None = None
    """None: accounts do not move."""
    session_table: SessionTable = field(default_factory=SessionTable)
    counters: SmbCounters = field(default_factory=SmbCounters)
    slow_seconds: float = math.inf
    """Requests that take longer are logged."""
    cells: Cells | None = None
    """None: there is one cell only."""
