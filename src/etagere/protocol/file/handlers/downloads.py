"""Get File."""

from __future__ import annotations

from msgspec.structs import replace

from etagere.bodies.store import BodyReader
from etagere.model.files import EntryPath
from etagere.operations.file import ranges
from etagere.protocol.file import decode, decode_ranges, encode
from etagere.protocol.file.dependencies import FileDependencies
from etagere.protocol.http.messages import Response
from etagere.protocol.http.ranges import Range
from etagere.protocol.rest import downloads
from etagere.protocol.rest.downloads import FoundBytes, StoredMd5
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.requests import header_overrides
from etagere.protocol.rest.responses import Headers
from etagere.rules.file_ranges import FILE_BYTES_MAX
from etagere.rules.opens import RestAccess


async def get_file(exchange: Exchange, deps: FileDependencies) -> Response:
    async def opened(reader: BodyReader) -> Response:
        return await _opened(exchange, deps, reader)

    return await downloads.with_reader(deps.store, opened)


async def _opened(exchange: Exchange, deps: FileDependencies, reader: BodyReader) -> Response:
    opened = await _located(exchange, deps, downloads.requested_range(exchange))
    file = opened.file
    headers = _ACCEPT_RANGES + encode.file_headers(
        opened.result,
        header_overrides(exchange),
        is_snapshot=bool(exchange.parameter("sharesnapshot")),
        version=exchange.version,
    )
    found = FoundBytes(
        opened.plan, opened.start, opened.length, file.content.length, opened.is_range
    )
    md5 = StoredMd5(file.headers.content_md5, b"x-ms-content-md5")
    return await downloads.respond(exchange, reader, found, headers, md5)


async def _located(
    exchange: Exchange, deps: FileDependencies, asked: Range | None
) -> ranges.OpenedFile:
    """Returns the file and the location of its bytes, which is looked up in a thread if that may
    take long."""
    command = decode_ranges.open_file(exchange, asked)

    async def run(path: EntryPath) -> ranges.OpenedFile:
        brief = command
        if path is not command.ask.path:
            brief = replace(command, ask=replace(command.ask, path=path))
        opened = await deps.engine.read(ranges.open_file, brief)
        if opened is None:
            opened = await deps.engine.read_in_thread(
                ranges.open_file, replace(brief, brief=False), exchange.read_class("open_file")
            )
        assert opened is not None
        return opened

    return await deps.opens.rest(
        command.ask.path,
        RestAccess.READ,
        run,
        span=_span(asked),
        seconds_max=decode.wait_seconds(exchange),
    )


def _span(asked: Range | None) -> tuple[int, int]:
    """Returns the bytes that are read. The end is exclusive."""
    if asked is None:
        return 0, FILE_BYTES_MAX
    return asked.start, FILE_BYTES_MAX if asked.end is None else asked.end + 1


_ACCEPT_RANGES: Headers = [(b"Accept-Ranges", b"bytes")]
