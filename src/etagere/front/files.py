"""The front end of the file service.

There is one such process: it holds the table of open files, which all clients of a share have in
common.
"""

from __future__ import annotations

from etagere.front.process import Assembly, Base
from etagere.opens.table import OpenTable
from etagere.protocol.file.service import FileService

SERVICES = ("file",)


def assemble(base: Base) -> Assembly:
    """Returns the service. The other front ends run the jobs that maintain the store."""
    service = FileService(
        base.engine,
        base.authenticator,
        base.access_log,
        base.share,
        store=base.store,
        settings=base.settings,
        opens=OpenTable(base.engine),
    )
    return Assembly((service,), ())
