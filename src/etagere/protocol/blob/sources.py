"""The sources of copies and of uploads from URLs: blobs of this store or of another server.

    async with await deps.sources.open(exchange, UPLOAD) as source:
        if isinstance(source, LocalSource):
            ...     # source.found identifies the version; its record is source.blob
        async for chunk in source.chunks():
            ...

A *local* source is looked up in the ledger, never fetched, whatever name of this server its URL
has. Access is checked as for a request of the caller with nothing but the URL. A *remote* source is
fetched only if the operator allows its host.

A source that cannot be read is refused with an `UnreadSource`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from etagere.auth.permissions import READ_BLOB, Permit, Public, authorize, refuse_anonymous
from etagere.auth.principal import Anonymous, KeyOwner
from etagere.auth.request import is_text
from etagere.bodies.contents import require_intact
from etagere.bodies.store import BodyStore
from etagere.engine.interface import C, Engine, ReadTxn, Refused, T, unwrap
from etagere.errors import Refusal
from etagere.model.blobs import Blob, BlobName, GetBlob, OpenBlob
from etagere.model.conditions import Conditions
from etagere.model.sources import SourceBlob
from etagere.operations.blob import blobs
from etagere.protocol.blob import decode, decode_sources
from etagere.protocol.blob.permitted import read_permitted
from etagere.protocol.http.ranges import Range
from etagere.protocol.rest.authentication import Authenticator
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.ranges import source_range
from etagere.protocol.rest.refusals import unread_source, unread_source_for
from etagere.protocol.rest.requests import invalid_header
from etagere.protocol.sources import addresses
from etagere.protocol.sources.addresses import SourceAddress
from etagere.protocol.sources.local import LocalSource
from etagere.protocol.sources.remote import UPLOAD_SECONDS_MAX, RemoteSource, too_large
from etagere.rules import conditions as condition_rules
from etagere.rules import copies as copy_rules
from etagere.rules import tags as tag_rules
from etagere.settings import CopySource

if TYPE_CHECKING:
    from etagere.protocol.sources.fetching import Fetcher

__all__ = ["LocalSource", "RemoteSource", "Source", "Sources"]

Source = LocalSource | RemoteSource


class SourceUse(NamedTuple):
    """The use that a source is opened for."""

    is_copy: bool
    """Unmet conditions are refused as `SourceConditionNotMet` (412); otherwise as a source that
    could not be read (304 or 412)."""
    owner_reads: bool = False
    """Whether an account key that signed the request grants access to all sources of the account;
    otherwise the URL must have a token, or the container must be public."""
    reads: bool = True
    """Whether the bytes are read. Otherwise a local source has no `chunks` and no range, and is
    found quickly, whatever its size."""
    seconds_max: float | None = UPLOAD_SECONDS_MAX
    """The maximum time to read a remote source; None: as long as it keeps sending."""


COPY: Final = SourceUse(is_copy=True, owner_reads=True, reads=False, seconds_max=None)
INCREMENTAL_COPY: Final = SourceUse(is_copy=True, owner_reads=True, reads=False)
SYNCHRONOUS_COPY: Final = SourceUse(is_copy=True)
UPLOAD: Final = SourceUse(is_copy=False)


class Sources:
    """Opens the sources of requests."""

    def __init__(
        self,
        engine: Engine,
        store: BodyStore,
        authenticator: Authenticator,
        allowed: tuple[CopySource, ...],
        port: int,
    ) -> None:
        """`allowed` are the other servers that may be read; `port` is that of the blob service."""
        self._engine = engine
        self._store = store
        self._authenticator = authenticator
        self._allowed = allowed
        self._port = port
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
        written = decode_sources.copy_source(exchange)
        source = addresses.parse(written)
        if source is None or not is_text(written):
            raise invalid_header("x-ms-copy-source", written.partition("?")[0])
        asked = source_range(exchange)
        conditions = decode_sources.source_conditions(exchange)
        needs_tags = reads_tags or conditions.if_tags is not None
        if precheck is not None:
            await precheck()
        request = exchange.request
        host = exchange.header("host") or ""
        is_allowed = addresses.is_allowed(source, self._allowed)
        if addresses.is_this_server(source, host, request.scheme, self._port) or (
            not is_allowed and addresses.is_public_endpoint_of(source, request.account)
        ):
            opened = await self._open_local(exchange, source, asked, use, conditions, needs_tags)
            if bytes_max is not None and opened.length > bytes_max:
                await opened.close()
                raise too_large(bytes_max)
            return opened
        if self._fetcher is None or not is_allowed:
            message = "The source is on a server that this one must not read from."
            raise unread_source(403, "AuthorizationFailure", message)
        if not written.isascii() or reads_tags:
            raise invalid_header("x-ms-copy-source", source.without_secrets())
        forwarded = decode_sources.forwarded_conditions(exchange)
        try:
            return await self._fetcher.fetch(source, forwarded, asked, bytes_max, use.seconds_max)
        except Refused as refused:
            if use.is_copy and refused.refusal.facts.get("CopySourceStatusCode") in (304, 412):
                raise Refused(Refusal("SourceConditionNotMet")) from None
            raise

    # Local sources

    async def _open_local(
        self,
        exchange: Exchange,
        source: SourceAddress,
        asked: Range | None,
        use: SourceUse,
        conditions: Conditions,
        needs_tags: bool,
    ) -> LocalSource:
        asking = _request_for(exchange, source)
        try:
            if asking.parameter("versionid") is not None:
                raise Refused(Refusal("UnsupportedQueryParameter"))
            name, snapshot = decode.blob_name(asking), decode.snapshot(asking)
            permit = await self._permit(exchange, asking, name, use, needs_tags)
            ask = GetBlob(name, snapshot=snapshot)
            reader = self._store.open_reader()
            try:
                if use.reads:
                    opened = await self._opened(exchange, permit, ask, asked, use, conditions)
                    blob = opened.result.blob
                    require_intact(opened.plan)
                    reader.limit_to(opened.plan)
                else:
                    opened = None
                    shown = await self._read(exchange, permit, blobs.get_blob, ask, name)
                    blob = shown.blob
                    _check(blob, conditions, is_copy=use.is_copy)
                    reader.limit_to(b"")
            except BaseException:
                reader.close()
                raise
        except _Unfit:
            raise
        except Refused as refused:
            raise unread_source_for(refused.refusal) from None
        found = SourceBlob(name, snapshot, blob.stamp)
        return LocalSource(source.without_secrets(), found, blob, opened, reader)

    async def _permit(
        self,
        exchange: Exchange,
        asking: Exchange,
        name: BlobName,
        use: SourceUse,
        needs_tags: bool,
    ) -> Permit:
        """Authorizes the read like a separate request with nothing but the URL."""
        principal = await self._authenticator.authenticate_source(exchange, asking)
        owner = exchange.principal
        if (
            use.owner_reads
            and isinstance(principal, Anonymous)
            and isinstance(owner, KeyOwner)
            and owner.account == principal.account
        ):
            principal = owner
        target = f"{name.container.name}/{name.name}"
        permit = unwrap(
            authorize(
                principal,
                "blob",
                READ_BLOB,
                target,
                extra_letters="t" if needs_tags else "",
                version=exchange.version,
            )
        )
        if needs_tags and permit.public is not Public.NOTHING:
            # Public access includes blobs, but not their tags.
            raise Refused(refuse_anonymous(exchange.version))
        return permit

    async def _opened(
        self,
        exchange: Exchange,
        permit: Permit,
        ask: GetBlob,
        asked: Range | None,
        use: SourceUse,
        conditions: Conditions,
    ) -> blobs.OpenedBlob:
        first, last = (None, None) if asked is None else (asked.start, asked.end)
        for brief in (True, False):
            command = _OpenSource(OpenBlob(ask, first, last, brief), conditions, use.is_copy)
            opened = await self._read(
                exchange, permit, _open_source, command, ask.blob, in_thread=not brief
            )
            if opened is not None:
                return opened
        raise RuntimeError("what may take long is not given up")

    async def _read(
        self,
        exchange: Exchange,
        permit: Permit,
        operation: Callable[[ReadTxn, C], T],
        command: C,
        name: BlobName,
        *,
        in_thread: bool = False,
    ) -> T:
        version = exchange.version
        read_class = exchange.read_class(operation.__name__) if in_thread else None
        return await read_permitted(
            self._engine, permit, version, operation, command, name.container, read_class=read_class
        )


def _fetcher() -> Fetcher:
    """Imports the HTTP client, only in servers that need it, at start."""
    from etagere.protocol.sources.fetching import Fetcher  # noqa: PLC0415

    return Fetcher()


def _request_for(exchange: Exchange, source: SourceAddress) -> Exchange:
    """Returns the request that the caller could have sent for the source."""
    # A token for HTTPS only is not valid if the request was sent over HTTP.
    is_encrypted = source.scheme == exchange.request.scheme == "https"
    return exchange.nested(
        "GET",
        f"{source.path}?{source.query}",
        {},
        host=source.authority,
        scheme="https" if is_encrypted else "http",
    )


class _Unfit(Refused):
    """A local source that does not meet the conditions, or cannot be copied. Unlike other refusals
    of its read, this is the response to the request."""


class _OpenSource(NamedTuple):
    """The source to open, and its conditions."""

    command: OpenBlob
    conditions: Conditions
    is_copy: bool


def _open_source(txn: ReadTxn, asked: _OpenSource) -> blobs.OpenedBlob | None:
    """Opens a source; conditions are checked before the range, as in any read."""
    result = blobs.get_blob(txn, asked.command.ask)
    _check(result.blob, asked.conditions, is_copy=asked.is_copy)
    return blobs.open_found(txn, asked.command, result)


def _check(blob: Blob, conditions: Conditions, *, is_copy: bool) -> None:
    """Refuses a local source that does not meet the conditions, or cannot be copied."""
    judge = condition_rules.check_source if is_copy else condition_rules.check_source_read
    unmet = judge(conditions, blob.stamp)
    if unmet is None:
        unmet = tag_rules.check_condition(conditions.if_tags, blob.tags)
    refusal = unmet or copy_rules.check_source(blob)
    if refusal is None:
        return
    if not is_copy:
        raise _Unfit(unread_source_for(refusal).refusal)
    if refusal is unmet:
        raise _Unfit(Refusal("SourceConditionNotMet", unmet.facts))
    raise _Unfit(refusal)
