"""The handlers of the queue service: one function per operation, each named in its row."""

from __future__ import annotations

import base64
from functools import partial

from etagere.model.ids import new_id
from etagere.model.queues import (
    ClearMessages,
    CreateQueue,
    DeleteMessage,
    DeleteQueue,
    GetMessages,
    ListQueues,
    PutMessage,
    SetQueueAccess,
    SetQueueMetadata,
    UpdateMessage,
)
from etagere.operations.queue import messages, queues
from etagere.protocol.http.messages import Response
from etagere.protocol.queue import decode, encode
from etagere.protocol.queue.messages import peek_all_messages, take_messages
from etagere.protocol.rest import requests
from etagere.protocol.rest.access_policies import policies_response, read_policies
from etagere.protocol.rest.dependencies import Dependencies
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.listings import listed
from etagere.protocol.rest.metadata import metadata_headers, read_metadata
from etagere.protocol.rest.responses import XML, http_date
from etagere.protocol.time_slices import run_in_slices
from etagere.rules.queues import PUT_RETURNS_MESSAGE_SINCE, check_queue_name

_DETAILS = frozenset({"metadata"})


# Queues


async def list_queues(exchange: Exchange, deps: Dependencies) -> Response:
    asked = ListQueues(
        exchange.request.account,
        requests.page_limit(exchange),
        requests.text_parameter(exchange, "prefix"),
        _marker(exchange),
    )
    include = requests.included(exchange, _DETAILS)
    return await listed(
        deps.engine,
        exchange.read_class("listing"),
        queues.list_queues,
        asked,
        partial(encode.queue_rows, include=include),
        encode.queues_start(exchange),
        encode.queues_end,
    )


async def create_queue(exchange: Exchange, deps: Dependencies) -> Response:
    name, metadata = decode.queue_name(exchange), read_metadata(exchange)
    command = CreateQueue(name, new_id(), metadata)
    return Response(201 if await deps.engine.write(queues.create_queue, command) else 204)


async def delete_queue(exchange: Exchange, deps: Dependencies) -> Response:
    await deps.engine.write(queues.delete_queue, DeleteQueue(decode.queue_name(exchange)))
    return Response(204)


async def get_queue_metadata(exchange: Exchange, deps: Dependencies) -> Response:
    name, read_class = decode.queue_name(exchange), exchange.read_class("count of messages")
    counted = await deps.engine.read_in_thread(
        queues.count_messages, queues.CountMessages(name), read_class
    )
    messages = counted.messages
    while counted.rest is not None:
        command = queues.CountMessages(name, counted.rest)
        counted = await deps.engine.read_in_thread(queues.count_messages, command, read_class)
        messages += counted.messages
    count = (b"x-ms-approximate-messages-count", b"%d" % messages)
    return Response(200, [*metadata_headers(counted.queue.metadata), count])


async def set_queue_metadata(exchange: Exchange, deps: Dependencies) -> Response:
    command = SetQueueMetadata(decode.queue_name(exchange), read_metadata(exchange))
    await deps.engine.write(queues.set_queue_metadata, command)
    return Response(204)


async def get_queue_acl(exchange: Exchange, deps: Dependencies) -> Response:
    queue = await deps.engine.read(queues.get_queue, decode.queue_name(exchange))
    return policies_response(queue.policies)


async def set_queue_acl(exchange: Exchange, deps: Dependencies) -> Response:
    policies = await read_policies(exchange)
    command = SetQueueAccess(decode.queue_name(exchange), policies)
    await deps.engine.write(queues.set_queue_access, command)
    return Response(204)


# Messages


async def put_message(exchange: Exchange, deps: Dependencies) -> Response:
    hidden, lives = decode.new_message_times(exchange)
    text = await decode.message_text(exchange)
    command = PutMessage(decode.queue_name(exchange), new_id(), text, hidden, lives)
    shown = await deps.engine.write(messages.put_message, command)
    if exchange.version < PUT_RETURNS_MESSAGE_SINCE:
        return Response(201)
    return Response(201, [XML], encode.put(shown))


async def get_messages(exchange: Exchange, deps: Dependencies) -> Response:
    command = GetMessages(
        decode.queue_name(exchange), decode.count(exchange), decode.get_timeout_seconds(exchange)
    )
    read_class = exchange.read_class("search for messages")
    taken = await take_messages(deps.engine, command, read_class)
    # The messages are hidden now: no error may be sent in place of this response.
    return Response(200, [XML], await run_in_slices(encode.taken(taken)), has_effect=True)


async def peek_messages(exchange: Exchange, deps: Dependencies) -> Response:
    queue, count = decode.queue_name(exchange), decode.count(exchange)
    read_class = exchange.read_class("search for messages")
    peeked = await peek_all_messages(deps.engine, queue, count, read_class)
    return Response(200, [XML], await run_in_slices(encode.peeked(peeked)))


async def update_message(exchange: Exchange, deps: Dependencies) -> Response:
    command = UpdateMessage(
        decode.queue_name(exchange),
        decode.message_id(exchange),
        decode.receipt(exchange),
        decode.update_timeout_seconds(exchange),
        await decode.optional_text(exchange),
    )
    updated = (await deps.engine.write(messages.update_message, command)).message
    return Response(
        204,
        [
            (b"x-ms-popreceipt", encode.receipt_text(updated).encode()),
            (b"x-ms-time-next-visible", http_date(updated.visible).encode()),
        ],
    )


async def delete_message(exchange: Exchange, deps: Dependencies) -> Response:
    command = DeleteMessage(
        decode.queue_name(exchange), decode.message_id(exchange), decode.receipt(exchange)
    )
    await deps.engine.write(messages.delete_message, command)
    return Response(204)


async def clear_messages(exchange: Exchange, deps: Dependencies) -> Response:
    command = ClearMessages(decode.queue_name(exchange), new_id())
    await deps.engine.write(queues.clear_messages, command)
    return Response(204)


def _marker(exchange: Exchange) -> str:
    """Returns the first name of a page, from the marker."""
    written = exchange.parameter("marker")
    if not written:
        return ""
    try:
        name = base64.b64decode(written, b"-_", validate=True).decode("ascii")
    except ValueError:
        name = ""
    if check_queue_name(name) is not None:
        raise requests.bad_parameter("InvalidMarker", "marker", written)
    return name
