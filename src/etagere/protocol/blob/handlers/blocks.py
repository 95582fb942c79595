"""Operations on blocks and lists of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from msgspec.structs import replace

from etagere.engine.interface import Fault, Refused, Unknown
from etagere.errors import Refusal
from etagere.model.blobs import (
    AbandonDraft,
    Blob,
    DraftPlan,
    PutBlock,
    PutBlockList,
    PutDraft,
)
from etagere.model.ids import new_id
from etagere.operations.blob import block_lists, staging
from etagere.protocol import requests
from etagere.protocol.answers import XML
from etagere.protocol.blob import decode, decode_tags, decode_tiers, encode, uploads
from etagere.protocol.blob.handlers.base import ENCRYPTED, Handling
from etagere.protocol.codecs import block_lists as codec
from etagere.protocol.exchange import Exchange
from etagere.protocol.http.messages import Response

# Longer lists are drafted: in one step they would keep others waiting for too long.
_BLOCKS_IN_ONE_STEP = 1_000
_LONG_DOCUMENT_BYTES = 64 << 10

T = TypeVar("T")


class BlockHandlers(Handling):
    """Blocks: staged, made a blob of, and listed."""

    async def put_block(self, exchange: Exchange) -> Response:
        decode.refuse_conditions(exchange)
        length = uploads.announced_length(exchange, uploads.BLOCK_BYTES_MAX)
        if not length:
            raise requests.invalid_header("Content-Length", "0")
        command = PutBlock(
            decode.blob_name(exchange),
            decode.block_name(exchange),
            uploads.NO_BODY,
            new_id(),
            decode.lease_id(exchange),
            exchange.permit.only_if_absent,
        )
        if length > uploads.FORESEEN_BYTES_MIN:
            await self._engine.read(staging.foresee_block, command)
        sent_md5 = decode.sent_md5(exchange)
        wants_md5 = sent_md5 is not None
        async with self._store.writer(length, inline=False, md5=wants_md5) as writer:
            body = await uploads.receive(exchange, writer)
            uploads.require_intact(exchange, body, writer.md5 if wants_md5 else None)
            await self._engine.write(staging.put_block, replace(command, body=body))
        headers = [encode.crc64_header(body.crc), *uploads.structured_headers(exchange), ENCRYPTED]
        if sent_md5 is not None:
            headers.append((b"Content-MD5", encode.digest_text(sent_md5)))
        return Response(201, headers)

    async def put_block_list(self, exchange: Exchange) -> Response:
        document = await exchange.http.body.read(codec.BYTES_MAX)
        checksums = uploads.checked_document(exchange, document)
        blocks = await _aside(codec.decode, document, long=len(document) > _LONG_DOCUMENT_BYTES)
        if isinstance(blocks, Refusal):
            raise Refused(blocks)
        command = PutBlockList(
            decode.blob_name(exchange),
            new_id(),
            blocks,
            decode.blob_headers(exchange, default_type=decode.DEFAULT_TYPE),
            requests.metadata(exchange),
            decode.write_conditions(exchange),
            decode.lease_id(exchange),
            exchange.permit.only_if_absent,
            decode_tiers.tier(exchange),
            decode_tags.tags(exchange),
        )
        blob = None
        if len(blocks) > _BLOCKS_IN_ONE_STEP:
            blob = await self._put_drafted(command)
        if blob is None:
            blob = await self._engine.write(block_lists.put_block_list, command)
        return Response(201, [*encode.stamp_headers(blob.stamp), *checksums, ENCRYPTED])

    async def _put_drafted(self, command: PutBlockList) -> Blob | None:
        """The same in many short steps and one that decides; None if somebody changed meanwhile
        what the draft was made of, so that nothing is decided yet."""
        draft = replace(command, content_id=new_id(), blocks=())
        blob: Blob | None = None
        try:
            plan = await self._drafted(command, draft.content_id)
            if plan is not None:
                decision = PutDraft(draft, plan.staging_stamp, plan.base_id)
                blob = await self._engine.write(block_lists.put_draft, decision)
        finally:
            if blob is None:
                with contextlib.suppress(Fault, Unknown):
                    abandoned = AbandonDraft(draft.content_id)
                    await self._engine.write(block_lists.abandon_draft, abandoned)
        return blob

    async def _drafted(self, command: PutBlockList, content_id: bytes) -> DraftPlan | None:
        """What the draft is made of; None if that has changed meanwhile."""
        first: DraftPlan | None = None
        async for plan in self._plans(command):
            if first is not None and (plan.staging_stamp, plan.base_id) != (
                first.staging_stamp,
                first.base_id,
            ):
                return None
            try:
                for step in block_lists.steps(plan, content_id, begins=first is None):
                    await self._engine.write(block_lists.extend_draft, step)
            except Refused:
                return None
            first = first or plan
        return first

    async def _plans(self, command: PutBlockList) -> AsyncIterator[DraftPlan]:
        """Of the whole list, or of one bit after the other, each of which takes so little that it
        need not be done aside: a thread would make others wait longer than that."""
        if await self._engine.read(block_lists.has_base, command):
            yield await self._engine.read_aside(block_lists.plan_draft, command)
            return
        count = block_lists.DRAFTED_PIECES_MAX
        for at in range(0, len(command.blocks), count):
            bit = replace(command, blocks=command.blocks[at : at + count])
            yield await self._engine.read(block_lists.plan_draft, bit)

    async def get_block_list(self, exchange: Exchange) -> Response:
        decode.refuse_conditions(exchange)
        command = decode.get_block_list(exchange)
        shown = await self._read(
            exchange, block_lists.get_block_list, command, command.blob.container, aside=True
        )
        headers = [XML]
        length = 0
        if shown.blob is not None:
            headers += encode.stamp_headers(shown.blob.stamp)
            length = shown.blob.content.length
        headers.append((b"x-ms-blob-content-length", b"%d" % length))
        count = len(shown.committed) + len(shown.uncommitted)
        body = await _aside(codec.encode, shown, command, long=count > _BLOCKS_IN_ONE_STEP)
        return Response(200, headers, body)


async def _aside(call: Callable[..., T], *arguments: object, long: bool) -> T:
    """What takes long is done in a thread, so that others have their turn."""
    return await asyncio.to_thread(call, *arguments) if long else call(*arguments)
