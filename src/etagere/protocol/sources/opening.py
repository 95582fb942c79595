"""The sources of copies and of uploads from URLs: blobs and files of this store, or what another
server sends.

    async with await deps.sources.open(exchange, UPLOAD) as source:
        if isinstance(source, LocalSource):
            ...     # source.found identifies the version
        async for chunk in source.chunks():
            ...

A *local* source is looked up in the ledger, never fetched, whatever name of this server its URL
has and whichever process serves it, unless its account is in another cell. A *remote* source is
fetched only if the operator allows its host.

A source that cannot be read is refused with an `UnreadSource`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from etagere.auth.principal import Anonymous, KeyOwner, Principal, User
from etagere.auth.request import is_text
from etagere.bodies.plans import require_intact
from etagere.bodies.store import BodyStore
from etagere.engine.interface import Engine, Refused
from etagere.errors import Refusal
from etagere.model.blobs import Blob
from etagere.model.conditions import Conditions
from etagere.opens.remote import RestOpens
from etagere.operations.file.changes import file_node
from etagere.protocol.file import decode as file_decode
from etagere.protocol.http.ranges import Range
from etagere.protocol.rest.authentication import Authenticator
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.ranges import source_range
from etagere.protocol.rest.refusals import unread_source, unread_source_for
from etagere.protocol.rest.requests import invalid_header
from etagere.protocol.sources import addresses, requests
from etagere.protocol.sources.addresses import SourceAddress
from etagere.protocol.sources.local import LocalSource, StoredObject
from etagere.protocol.sources.lookup import (
    SOURCE_TRAILING_DOT,
    Lookup,
    authorize_blob,
    authorize_file,
)
from etagere.protocol.sources.remote import UPLOAD_SECONDS_MAX, RemoteSource, too_large
from etagere.rules import conditions as condition_rules
from etagere.rules import copies as copy_rules
from etagere.rules import file_copies as file_copy_rules
from etagere.rules import tags as tag_rules
from etagere.settings.values import CopySource

if TYPE_CHECKING:
    from etagere.protocol.rest.cells import Cells
    from etagere.protocol.sources.fetching import Fetcher

__all__ = ["LocalSource", "RemoteSource", "Source", "Sources"]

Source = LocalSource | RemoteSource


class SourceUse(NamedTuple):
    """The use that a source is opened for."""

    is_copy: bool
    """Unmet conditions are refused as `SourceConditionNotMet` (412); otherwise as a source that
    could not be read (304 or 412)."""
    owner_reads: bool = False
    """Whether the caller may read sources of the same account and service, if an account key
    signed the request or the caller is a user; otherwise the URL must have a token, or the
    container must be public."""
    may_authorize: bool = False
    """Whether the request may have a bearer token for the source."""
    reads: bool = True
    """Whether the bytes are read. Otherwise a local source has no `chunks` and no range, and is
    found quickly, whatever its size."""
    seconds_max: float | None = UPLOAD_SECONDS_MAX
    """The maximum time to read a remote source; None: as long as it keeps sending."""


COPY: Final = SourceUse(is_copy=True, owner_reads=True, reads=False, seconds_max=None)
COPY_OF_BYTES: Final = COPY._replace(reads=True)
INCREMENTAL_COPY: Final = SourceUse(is_copy=True, owner_reads=True, reads=False)
SYNCHRONOUS_COPY: Final = SourceUse(is_copy=True, may_authorize=True)
UPLOAD: Final = SourceUse(is_copy=False, may_authorize=True)


class Sources:
    """Opens the sources of requests."""

    def __init__(
        self,
        engine: Engine,
        store: BodyStore,
        authenticator: Authenticator,
        allowed: tuple[CopySource, ...],
        ports: Mapping[str, int],
        opens: RestOpens | None = None,
    ) -> None:
        """`allowed` are the other servers that may be read; `ports` are those of this server's
        services, by name. `opens` are the open files; None: there are none."""
        self._engine = engine
        self._store = store
        self._authenticator = authenticator
        self._allowed = allowed
        self._ports = ports
        self._opens = opens
        self._fetcher = _fetcher() if allowed else None

    async def close(self) -> None:
        if self._fetcher is not None:
            await self._fetcher.close()

    async def open(
        self,
        exchange: Exchange,
        use: SourceUse,
        *,
        bytes_max: int | None = None,
        reads_tags: bool = False,
        precheck: Callable[[], Awaitable[None]] | None = None,
    ) -> Source:
        """Opens the source of `x-ms-copy-source`, or its range of `x-ms-source-range`, if it meets
        the conditions `x-ms-source-if-*`. Close it, or use it as a context manager.

        `bytes_max`: what is longer is refused. `reads_tags`: the tags are copied, for which a
        token needs `t`, as it does for `x-ms-source-if-tags`. `precheck` refuses what the
        destination would refuse; it is called after the request was decoded and before anything
        is read.

        Raises `Refused`: with `InvalidHeaderValue` for an invalid URL, and with an `UnreadSource`
        for a source that does not exist, may not be read or could not be.
        """
        written = requests.copy_source(exchange)
        source = addresses.parse(written)
        if source is None or not is_text(written):
            raise invalid_header("x-ms-copy-source", written.partition("?")[0])
        authorization = requests.source_headers(exchange, may_authorize=use.may_authorize)
        asked = source_range(exchange)
        file_decode.switch(exchange, SOURCE_TRAILING_DOT)
        conditions = requests.source_conditions(exchange)
        needs_tags = reads_tags or conditions.if_tags is not None
        if precheck is not None:
            await precheck()
        request = exchange.request
        host = exchange.header("host") or ""
        is_allowed = addresses.is_allowed(source, self._allowed)
        service = addresses.service_here(source, host, request.scheme, request.service, self._ports)
        if service is None and not is_allowed:
            service = addresses.service_of_public_endpoint(source, request.account)
        if service is not None:
            asking = _request_for(exchange, source, service, authorization)
            local = _LocalAddress(source, service, asking)
            cells = self._authenticator.cells
            cell = "" if cells is None else await cells.look_up(asking)
            if cells is not None and cell:
                return await self._open_in_cell(
                    cells, cell, exchange, local, asked, use, bytes_max, reads_tags=reads_tags
                )
            opened = await self._open_local(exchange, local, asked, use, conditions, needs_tags)
            if bytes_max is not None and opened.length > bytes_max:
                await opened.close()
                raise too_large(bytes_max)
            return opened
        if self._fetcher is None or not is_allowed:
            message = "The source is on a server that this one must not read from."
            raise unread_source(403, "AuthorizationFailure", message)
        if not written.isascii() or reads_tags:
            raise invalid_header("x-ms-copy-source", source.without_secrets())
        if authorization and source.scheme != "https":
            # Anybody on the way could use the token.
            raise invalid_header("x-ms-copy-source", source.without_secrets())
        forwarded = requests.forwarded_conditions(exchange)
        if authorization:
            forwarded |= {**authorization, "x-ms-version": exchange.version}
        with _refusing_unmet_conditions(use):
            return await self._fetcher.fetch(source, forwarded, asked, bytes_max, use.seconds_max)

    async def _open_in_cell(
        self,
        cells: Cells,
        cell: str,
        exchange: Exchange,
        local: _LocalAddress,
        asked: Range | None,
        use: SourceUse,
        bytes_max: int | None,
        *,
        reads_tags: bool,
    ) -> RemoteSource:
        if reads_tags:
            raise invalid_header("x-ms-copy-source", local.address.without_secrets())
        from etagere.protocol.sources.other_cells import fetch  # noqa: PLC0415

        with _refusing_unmet_conditions(use):
            return await fetch(
                cells,
                cell,
                local.address,
                local.asking,
                requests.forwarded_conditions(exchange),
                asked,
                bytes_max,
                use.seconds_max,
            )

    # Local sources

    async def _open_local(
        self,
        exchange: Exchange,
        local: _LocalAddress,
        asked: Range | None,
        use: SourceUse,
        conditions: Conditions,
        needs_tags: bool,
    ) -> LocalSource:
        def check(stored: StoredObject) -> None:
            _check(stored, conditions, is_copy=use.is_copy)

        try:
            lookup = await self._authorize(exchange, local, use, needs_tags)
            reader = self._store.open_reader()
            try:
                if use.reads:
                    found, stored, opened = await lookup.open(check, asked)
                    plan = b"" if opened is None else opened.plan
                    require_intact(plan)
                    reader.limit_to(plan)
                else:
                    found, stored, opened = await lookup.find(check)
                    reader.limit_to(b"")
            except BaseException:
                reader.close()
                raise
        except _UnfitSource:
            raise
        except Refused as refused:
            raise unread_source_for(refused.refusal, local.service) from None
        return LocalSource(local.address.without_secrets(), found, stored, opened, reader)

    async def _authorize(
        self, exchange: Exchange, local: _LocalAddress, use: SourceUse, needs_tags: bool
    ) -> Lookup:
        """Authorizes the read like a separate request with nothing but the URL and the bearer
        token for it."""
        asking = local.asking
        principal: Principal = await self._authenticator.authenticate_source(exchange, asking)
        owner = exchange.principal
        if (
            use.owner_reads
            and local.service == exchange.request.service
            and isinstance(principal, Anonymous)
            and isinstance(owner, KeyOwner | User)
            and owner.account == principal.account
        ):
            principal = owner
        if local.service == "file":
            return authorize_file(
                self._engine, self._opens, exchange, asking, principal, is_copy=use.is_copy
            )
        return authorize_blob(self._engine, exchange, asking, principal, needs_tags)


class _LocalAddress(NamedTuple):
    """The address of a source in this store."""

    address: SourceAddress
    service: str
    asking: Exchange
    """The request that the caller could have sent for the source."""


@contextlib.contextmanager
def _refusing_unmet_conditions(use: SourceUse) -> Iterator[None]:
    """Refuses a copy whose source, on another server, does not meet the conditions."""
    try:
        yield
    except Refused as refused:
        if use.is_copy and refused.refusal.facts.get("CopySourceStatusCode") in (304, 412):
            raise Refused(Refusal("SourceConditionNotMet")) from None
        raise


def _fetcher() -> Fetcher:
    """Imports the HTTP client, only in servers that need it, at start."""
    from etagere.protocol.sources.fetching import Fetcher  # noqa: PLC0415

    return Fetcher()


def _request_for(
    exchange: Exchange, source: SourceAddress, service: str, authorization: Mapping[str, str]
) -> Exchange:
    """Returns the request that the caller could have sent for the source. `authorization` are the
    headers that authorize the read."""
    # A token for HTTPS only is not valid if the request was sent over HTTP.
    is_encrypted = source.scheme == exchange.request.scheme == "https"
    fields = dict(authorization)
    trailing_dot = exchange.header(SOURCE_TRAILING_DOT)
    if trailing_dot is not None:
        fields[SOURCE_TRAILING_DOT] = trailing_dot
    return exchange.nested(
        "GET",
        f"{source.path}?{source.query}",
        fields,
        host=source.authority,
        scheme="https" if is_encrypted else "http",
        service=service,
    )


class _UnfitSource(Refused):
    """A local source that does not meet the conditions, or cannot be copied. Unlike other refusals
    of its read, this is the response to the request."""


def _check(stored: StoredObject, conditions: Conditions, *, is_copy: bool) -> None:
    """Refuses a local source that does not meet the conditions, or cannot be copied."""
    judge = condition_rules.check_source if is_copy else condition_rules.check_source_read
    unmet = judge(conditions, stored.stamp)
    if unmet is None:
        tags = stored.tags if isinstance(stored, Blob) else ()
        unmet = tag_rules.check_condition(conditions.if_tags, tags)
    refusal = unmet
    if refusal is None and isinstance(stored, Blob):
        refusal = copy_rules.check_source(stored)
    elif refusal is None and not isinstance(stored, Blob):
        refusal = file_copy_rules.check_not_pending(file_node(stored))
    if refusal is None:
        return
    if not is_copy:
        service = "blob" if isinstance(stored, Blob) else "file"
        raise _UnfitSource(unread_source_for(refusal, service).refusal)
    if refusal is unmet:
        raise _UnfitSource(Refusal("SourceConditionNotMet", unmet.facts))
    raise _UnfitSource(refusal)
