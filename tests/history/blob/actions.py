"""The verbs as calls of the public SDK."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from azure.core import MatchConditions
from azure.core.pipeline import PipelineResponse
from azure.storage.blob import BlobBlock, BlobClient, BlobLeaseClient, BlobProperties, BlobType
from msgspec.structs import replace

from tests.history.blob.contents import PAGE_BYTES, pages_in, pages_of, part_of, tokens_in
from tests.history.blob.events import ACTS_ON_LEASE, ANY, Request, Seen, Verb

VERSION: Final = "version"
"""The name under which the metadata of a blob tells the token of its version, or of the write that
created it."""


def _options(request: Request) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if request.lease_id is not None:
        options["lease"] = request.lease_id
    if request.if_match == ANY:
        options["match_condition"] = MatchConditions.IfPresent
    elif request.if_match is not None:
        options |= {"etag": request.if_match, "match_condition": MatchConditions.IfNotModified}
    if request.if_none_match == ANY:
        options["match_condition"] = MatchConditions.IfMissing
    elif request.if_none_match is not None:
        options |= {"etag": request.if_none_match, "match_condition": MatchConditions.IfModified}
    return options


def _told(answer: Mapping[str, Any]) -> Seen:
    return Seen(answer["etag"], int(answer["last_modified"].timestamp()))


def _put(blob: BlobClient, request: Request) -> Seen:
    content, described = part_of(request.token), {VERSION: request.token}
    return _told(blob.upload_blob(content, overwrite=True, metadata=described, **_options(request)))


def _stage(blob: BlobClient, request: Request) -> Seen:
    blob.stage_block(request.block, part_of(request.token), **_options(request))
    return Seen()


def _commit(blob: BlobClient, request: Request) -> Seen:
    blocks = [BlobBlock(block) for block in request.blocks]
    described = {VERSION: request.token}
    return _told(blob.commit_block_list(blocks, metadata=described, **_options(request)))


def _describe(blob: BlobClient, request: Request) -> Seen:
    return _told(blob.set_blob_metadata({VERSION: request.token}, **_options(request)))


def _delete(blob: BlobClient, request: Request) -> Seen:
    blob.delete_blob("include", **_options(request))
    return Seen()


def _get(blob: BlobClient, request: Request) -> Seen:
    """The SDK asks twice if there was nothing at first: then both answers must say so, or else
    what it puts together was never there."""
    lengths: list[int] = []

    def hook(response: PipelineResponse[Any, Any]) -> None:
        lengths.append(int(response.http_response.headers.get("Content-Length", 0)))

    while True:
        downloaded = blob.download_blob(raw_response_hook=hook, **_options(request))
        content = downloaded.readall()
        if len(content) == lengths[-1]:
            break
    kind = downloaded.properties.blob_type
    tokens = pages_in(content) if kind is BlobType.PAGEBLOB else tokens_in(content)
    return _shown(downloaded.properties, tokens)


def _head(blob: BlobClient, request: Request) -> Seen:
    return _shown(blob.get_blob_properties(**_options(request)), None)


def _list_pages(blob: BlobClient, _request: Request) -> Seen:
    """The SDK keeps the rest of the answer to itself."""
    numbers: list[int] = []
    for found in blob.list_page_ranges():
        assert found.start is not None and found.end is not None
        numbers.extend(range(found.start // PAGE_BYTES, (found.end + 1) // PAGE_BYTES))
    return Seen(pages=tuple(numbers))


def _shown(properties: BlobProperties, content: tuple[str, ...] | None) -> Seen:
    token = properties.metadata[VERSION]
    seen = Seen(
        str(properties.etag),
        int(properties.last_modified.timestamp()),
        content=content,
        lease=str(properties.lease.state),
    )
    if properties.blob_type is BlobType.BLOCKBLOB:
        return replace(seen, version=token)
    seen = replace(seen, origin=token, length=int(properties.size))
    if properties.blob_type is BlobType.PAGEBLOB:
        return replace(seen, number=int(properties.page_blob_sequence_number or 0))
    blocks = properties.append_blob_committed_block_count
    sealed = bool(properties.is_append_blob_sealed)
    return replace(seen, blocks=None if blocks is None else int(blocks), sealed=sealed)


def _act_on_lease(blob: BlobClient, request: Request) -> Seen:
    lease = BlobLeaseClient(blob, request.lease_id or request.proposed_id)
    if request.verb is Verb.ACQUIRE:
        lease.acquire(-1 if request.seconds is None else request.seconds)
    elif request.verb is Verb.RENEW:
        lease.renew()
    elif request.verb is Verb.CHANGE:
        lease.change(str(request.proposed_id))
    else:
        lease.release()
    return _told({"etag": lease.etag, "last_modified": lease.last_modified})


def _break(blob: BlobClient, request: Request) -> Seen:
    """The SDK keeps the rest of the answer to itself."""
    return Seen(seconds=BlobLeaseClient(blob).break_lease(request.seconds))


# Append and page blobs


def _create_append(blob: BlobClient, request: Request) -> Seen:
    described = {VERSION: request.token}
    return _told(blob.create_append_blob(metadata=described, **_options(request)))


def _append(blob: BlobClient, request: Request) -> Seen:
    part = part_of(request.token)
    answer: Mapping[str, Any] = blob.append_block(part, **_position(request), **_options(request))
    length = int(answer["blob_append_offset"]) + len(part)
    return replace(_told(answer), length=length, blocks=answer["blob_committed_block_count"])


def _seal(blob: BlobClient, request: Request) -> Seen:
    answer = blob.seal_append_blob(**_position(request), **_options(request))
    return replace(_told(answer), sealed=answer["blob_sealed"])


def _position(request: Request) -> dict[str, Any]:
    return {} if request.position is None else {"appendpos_condition": request.position}


def _create_pages(blob: BlobClient, request: Request) -> Seen:
    size, described = request.count * PAGE_BYTES, {VERSION: request.token}
    options = _options(request)
    return _told(
        blob.create_page_blob(size, sequence_number=request.number, metadata=described, **options)
    )


def _put_pages(blob: BlobClient, request: Request) -> Seen:
    pages = pages_of(request.token, request.first, request.count)
    return _numbered(blob.upload_page(pages, **_page_options(request)))


def _clear_pages(blob: BlobClient, request: Request) -> Seen:
    return _numbered(blob.clear_page(**_page_options(request)))


def _page_options(request: Request) -> dict[str, Any]:
    options = _options(request)
    options |= {"offset": request.first * PAGE_BYTES, "length": request.count * PAGE_BYTES}
    if request.comparison:
        options[f"if_sequence_number_{request.comparison}"] = request.number
    return options


def _renumber(blob: BlobClient, request: Request) -> Seen:
    number = None if request.number is None else str(request.number)
    return _numbered(blob.set_sequence_number(request.action, number, **_options(request)))


def _resize(blob: BlobClient, request: Request) -> Seen:
    return _numbered(blob.resize_blob(request.count * PAGE_BYTES, **_options(request)))


def _numbered(answer: Mapping[str, Any]) -> Seen:
    return replace(_told(answer), number=int(answer["blob_sequence_number"]))


def _snapshot(blob: BlobClient, request: Request) -> Seen:
    answer: Mapping[str, Any] = blob.create_snapshot(**_options(request))
    return replace(_told(answer), snapshot=answer["snapshot"])


def _get_snapshot(blob: BlobClient, request: Request) -> Seen:
    """It has no lease."""
    return replace(_get(blob, request), lease="")


ACTIONS: Final[dict[Verb, Callable[[BlobClient, Request], Seen]]] = {
    **dict.fromkeys(ACTS_ON_LEASE, _act_on_lease),
    Verb.PUT: _put,
    Verb.STAGE: _stage,
    Verb.COMMIT: _commit,
    Verb.DESCRIBE: _describe,
    Verb.DELETE: _delete,
    Verb.GET: _get,
    Verb.HEAD: _head,
    Verb.BREAK: _break,
    Verb.CREATE_APPEND: _create_append,
    Verb.APPEND: _append,
    Verb.SEAL: _seal,
    Verb.CREATE_PAGES: _create_pages,
    Verb.PUT_PAGES: _put_pages,
    Verb.CLEAR_PAGES: _clear_pages,
    Verb.RENUMBER: _renumber,
    Verb.RESIZE: _resize,
    Verb.LIST_PAGES: _list_pages,
    Verb.SNAPSHOT: _snapshot,
    Verb.GET_SNAPSHOT: _get_snapshot,
}
