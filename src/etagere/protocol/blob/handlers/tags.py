"""Operations on tags."""

from __future__ import annotations

from functools import partial

from etagere.engine.interface import Refused
from etagere.errors import Refusal
from etagere.model.containers import ContainerName
from etagere.model.tags import SetBlobTags
from etagere.operations.blob import tags
from etagere.operations.blob.tags import FindBlobs
from etagere.protocol import requests
from etagere.protocol.answers import XML
from etagere.protocol.blob import decode, decode_tags, uploads
from etagere.protocol.blob.handlers.base import Handling
from etagere.protocol.codecs import tags as codec
from etagere.protocol.exchange import Exchange
from etagere.protocol.http.messages import Response
from etagere.protocol.listings import listed


class TagHandlers(Handling):
    """Tags: set, shown, and found by."""

    async def set_blob_tags(self, exchange: Exchange) -> Response:
        document = await exchange.http.body.read(codec.BYTES_MAX)
        uploads.checked_document(exchange, document)
        told = codec.decode(document)
        if isinstance(told, Refusal):
            raise Refused(told)
        command = SetBlobTags(
            decode.blob_name(exchange),
            told,
            decode_tags.tag_conditions(exchange),
            decode.lease_id(exchange),
            decode.snapshot(exchange),
        )
        await self._engine.write(tags.set_blob_tags, command)
        return Response(204)

    async def get_blob_tags(self, exchange: Exchange) -> Response:
        command = decode_tags.get_blob_tags(exchange)
        shown = await self._engine.read(tags.get_blob_tags, command)
        return Response(200, [XML], codec.encode(shown.blob.tags))

    async def find_blobs_by_tags(self, exchange: Exchange) -> Response:
        return await self._found(exchange, None)

    async def find_blobs_by_tags_in_container(self, exchange: Exchange) -> Response:
        return await self._found(exchange, decode.container_name(exchange))

    async def _found(self, exchange: Exchange, container: ContainerName | None) -> Response:
        search = decode_tags.tag_search(exchange)
        requests.included(exchange, decode_tags.FOUND_DETAILS)
        asked = FindBlobs(
            exchange.signed.account,
            search,
            requests.page_limit(exchange),
            container,
            decode_tags.found_marker(exchange),
        )
        return await listed(
            self._engine,
            exchange.lane("search by tags"),
            tags.find_blobs,
            asked,
            partial(codec.found_rows, version=exchange.version),
            codec.found_start(
                search.written,
                requests.endpoint(exchange),
                exchange.parameter("marker"),
                exchange.parameter("maxresults"),
            ),
            codec.found_end,
            aside=True,
        )
