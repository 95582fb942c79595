"""The front end of the file service.

There is one such process: it holds the table of open files, which all clients of a share have in
common.
"""

from __future__ import annotations

import os
import socket

from etagere.clock import SystemClock
from etagere.front.process import JOB_PAUSE_SECONDS, Assembly, FrontEndContext
from etagere.jobs.copying import FILE_COPIES, Copying
from etagere.jobs.supervision import Job
from etagere.opens.contents import FileContents
from etagere.opens.remote import OpensServer
from etagere.opens.table import OpenTable
from etagere.protocol.file.service import FileService
from etagere.protocol.smb.draining import AccountDrains
from etagere.protocol.smb.services import SmbServices
from etagere.protocol.smb.session_table import SessionTable
from etagere.protocol.sources.opening import Sources

SERVICES = ("file", "smb")
_NETBIOS_NAME_CHARACTERS_MAX = 15
_GUID_BYTES = 16
_DRAIN_PAUSE_SECONDS = 1.0
"""How often the process looks for accounts that are to move to another cell."""
_GATHERED_BUDGET_DIVISOR = 3
"""Gathered writes may take this fraction of the memory budget, 1/3."""


def assemble(context: FrontEndContext) -> Assembly:
    """Returns the service. The other front ends run garbage collection, but only the process that
    writes a segment can seal it, and each process has to close the segments that were removed."""
    return assemble_with(context, OpenTable(context.engine))


def assemble_with(context: FrontEndContext, opens: OpenTable) -> Assembly:
    """Returns the service with this table of opens."""
    engine, store, settings = context.engine, context.store, context.settings
    sources = Sources(
        engine, store, context.authenticator, settings.copy_sources, context.ports, opens
    )
    copying = Copying(engine, store, context.coordinator, FILE_COPIES)
    service = FileService(
        engine,
        context.authenticator,
        context.access_log,
        context.share,
        store=store,
        settings=settings,
        opens=opens,
        sources=sources,
        copying=copying,
    )
    jobs = [
        Job("maintaining segments", store.maintain, JOB_PAUSE_SECONDS),
        Job("ending copies", copying.fail_abandoned, JOB_PAUSE_SECONDS),
    ]
    closing = [
        ("end copies", copying.close),
        ("close sources", sources.close),
        ("end deletions", opens.close),
    ]
    contents = _contents(context, opens) if settings.smb else None
    sessions = SessionTable()
    drains = None
    if settings.account_map is not None:
        drains = AccountDrains(engine, opens, contents, sessions)
        jobs.append(Job("draining accounts", drains.run, _DRAIN_PAUSE_SECONDS))
    smb = None
    if contents is not None:
        smb = _smb_services(context, opens, contents, sessions, drains)
        closing.append(("store gathered writes", contents.close))
    others = OpensServer(context.directory, opens, contents)
    # Closed last: without it, other processes would miss the gathered writes.
    closing.append(("end operations of other processes", others.close))
    return Assembly((service,), jobs, closing, smb, counted=(opens,))


def _contents(context: FrontEndContext, opens: OpenTable) -> FileContents:
    return FileContents(
        context.engine,
        context.store,
        opens,
        context.memory,
        SystemClock(),
        bytes_max=context.config.memory_budget_bytes // _GATHERED_BUDGET_DIVISOR,
    )


def _smb_services(
    context: FrontEndContext,
    opens: OpenTable,
    contents: FileContents,
    sessions: SessionTable,
    drains: AccountDrains | None,
) -> SmbServices:
    return SmbServices(
        context.engine,
        opens,
        contents,
        context.settings,
        SystemClock(),
        guid=os.urandom(_GUID_BYTES),
        name=_netbios_name(socket.gethostname()),
        drains=drains,
        session_table=sessions,
        slow_seconds=context.config.slow_seconds,
        cells=context.authenticator.cells,
    )


def _netbios_name(host: str) -> str:
    """Returns the name of this machine for SMB clients."""
    return host.partition(".")[0].upper()[:_NETBIOS_NAME_CHARACTERS_MAX] or "ETAGERE"
