"""Messages: put, get, peek, update, delete and texts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from azure.storage.queue import (
    BinaryBase64DecodePolicy,
    BinaryBase64EncodePolicy,
    QueueClient,
    QueueMessage,
    QueueServiceClient,
    TextBase64DecodePolicy,
    TextBase64EncodePolicy,
)

from tests.sdk.harness import refused, with_headers
from tests.sdk.queue.clients import KIB_64, contents
from tests.server import eventually

WEEK = timedelta(days=7)
NOBODY = "5f6a9c52-8b0e-4f4e-9e76-3a7e3f1e2d10"


def take(queue: QueueClient, **options: Any) -> QueueMessage:
    taken = queue.receive_message(**options)
    assert taken is not None
    return taken


def moment(written: object) -> datetime:
    assert isinstance(written, datetime)
    return written


# Put


def test_a_new_message(queue: QueueClient) -> None:
    sent = queue.send_message("hello")
    assert moment(sent.expires_on) - moment(sent.inserted_on) == WEEK
    assert sent.next_visible_on == sent.inserted_on
    assert sent.pop_receipt
    (seen,) = queue.peek_messages()
    assert (seen.id, seen.content, seen.dequeue_count) == (sent.id, "hello", 0)
    assert (seen.inserted_on, seen.expires_on) == (sent.inserted_on, sent.expires_on)
    assert seen.pop_receipt is None


def test_time_to_live(queue: QueueClient) -> None:
    for seconds in (10, 10**6, 2**31 - 1):
        sent = queue.send_message("text", time_to_live=seconds)
        lives = moment(sent.expires_on) - moment(sent.inserted_on)
        assert lives == timedelta(seconds=seconds)
    for_ever = queue.send_message("text", time_to_live=-1)
    assert moment(for_ever.expires_on).year == 9999
    for seconds in (0, -2):
        with refused(400, "OutOfRangeQueryParameterValue") as error:
            queue.send_message("text", time_to_live=seconds)
        assert error.details["queryparametername"] == "messagettl"


def test_longer_times_to_live_need_later_versions(queue: QueueClient) -> None:
    old = with_headers(x_ms_version="2017-04-17")
    for seconds in (-1, 7 * 24 * 3600 + 1):
        with refused(400, "OutOfRangeQueryParameterValue"):
            queue.send_message("text", time_to_live=seconds, raw_request_hook=old)
    queue.send_message("text", time_to_live=7 * 24 * 3600, raw_request_hook=old)


def test_the_first_receipt_is_valid_at_once(queue: QueueClient) -> None:
    queue.delete_message(queue.send_message("deleted", visibility_timeout=60))
    sent = queue.send_message("old", visibility_timeout=60)
    updated = queue.update_message(sent, content="new", visibility_timeout=0)
    assert updated.pop_receipt != sent.pop_receipt
    assert contents(queue) == ["new"]
    with refused(404, "MessageNotFound"):
        queue.delete_message(sent)


@pytest.mark.parametrize(("hidden", "lives"), [(60, 60), (61, 60), (-1, 60), (604_801, -1)])
def test_visibility_timeout_beyond_the_limit(queue: QueueClient, hidden: int, lives: int) -> None:
    with refused(400, "OutOfRangeQueryParameterValue") as error:
        queue.send_message("text", visibility_timeout=hidden, time_to_live=lives)
    assert error.details["queryparametername"] == "visibilitytimeout"
    assert contents(queue) == []


# Get


def test_receive(queue: QueueClient) -> None:
    for number in range(40):
        queue.send_message(str(number))
    pages = [list(page) for page in queue.receive_messages(messages_per_page=32).by_page()]
    assert [len(page) for page in pages[:2]] == [32, 8]
    taken = [message for page in pages for message in page]
    assert [message.content for message in taken] == [str(number) for number in range(40)]
    for message in taken:
        assert message.dequeue_count == 1
        hidden = moment(message.next_visible_on) - moment(message.inserted_on)
        assert hidden >= timedelta(seconds=29)
    assert queue.receive_message() is None


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda it: list(it.receive_messages(messages_per_page=33)), "numofmessages"),
        (lambda it: list(it.receive_messages(messages_per_page=0)), "numofmessages"),
        (lambda it: it.receive_message(visibility_timeout=0), "visibilitytimeout"),
        (lambda it: it.receive_message(visibility_timeout=604_801), "visibilitytimeout"),
    ],
)
def test_numbers_out_of_range(
    queue: QueueClient, call: Callable[[QueueClient], object], name: str
) -> None:
    with refused(400, "OutOfRangeQueryParameterValue") as error:
        call(queue)
    assert error.details["queryparametername"] == name
    assert int(error.details["maximumallowed"]) > int(error.details["minimumallowed"]) == 1


def test_messages_become_visible_again(queue: QueueClient) -> None:
    """A received message, one that was initially hidden and one that expires, in real time. Others
    with long times show that these times count."""
    queue.send_message("held")
    queue.send_message("hidden", visibility_timeout=600)
    queue.send_message("kept", time_to_live=600)
    assert take(queue, visibility_timeout=600).content == "held"
    assert contents(queue) == ["kept"]
    queue.delete_message(take(queue))
    queue.send_message("taken")
    taken = take(queue, visibility_timeout=1)
    assert taken.content == "taken"
    queue.send_message("late", visibility_timeout=3)
    queue.send_message("short-lived", time_to_live=3)
    eventually(lambda: contents(queue) == ["taken", "late"], "two visible messages")
    # Nobody else received it meanwhile.
    queue.delete_message(taken)
    again = take(queue, visibility_timeout=60)
    assert (again.content, again.dequeue_count) == ("late", 1)
    assert queue.receive_message() is None


def test_receipts(queue: QueueClient) -> None:
    queue.send_message("text")
    taken = take(queue)
    shown = queue.update_message(taken, visibility_timeout=0)
    again = take(queue)
    assert again.dequeue_count == 2
    for stale in (taken, shown):
        with refused(404, "MessageNotFound"):
            queue.delete_message(stale)
        with refused(404, "MessageNotFound"):
            queue.update_message(stale, visibility_timeout=1)
    queue.delete_message(again.id, again.pop_receipt)
    with refused(404, "MessageNotFound"):
        queue.delete_message(again)


def test_unknown_receipts_and_ids(queue: QueueClient) -> None:
    sent = queue.send_message("text")
    for receipt in ("nonsense", "AAAA", "=", "é"):
        with refused(400, "InvalidQueryParameterValue"):
            queue.delete_message(sent.id, receipt)
    with refused(404, "MessageNotFound"):
        queue.delete_message(sent.id, "AAAAAAAAAAE=")
    for name in (NOBODY, "nonsense"):
        with refused(404, "MessageNotFound"):
            queue.delete_message(name, sent.pop_receipt)
    assert contents(queue) == ["text"]


# Update


def test_updates(queue: QueueClient) -> None:
    queue.send_message("short")
    held = take(queue)
    for text in ("x" * KIB_64, "s", "é" * 2_000, ""):
        # Given the message itself, the SDK would send its old text.
        updated = queue.update_message(
            held.id, held.pop_receipt, content=text, visibility_timeout=0
        )
        assert contents(queue) == [text]
        assert moment(updated.next_visible_on) >= moment(held.inserted_on)
        held = take(queue)
    assert held.dequeue_count == 5


def test_update_of_the_visibility_only(queue: QueueClient) -> None:
    for text in ("short", "x" * KIB_64):
        sent = queue.send_message(text, visibility_timeout=60)
        shown = queue.update_message(sent.id, sent.pop_receipt, visibility_timeout=0)
        assert contents(queue) == [text]
        hidden = queue.update_message(shown.id, shown.pop_receipt, visibility_timeout=60)
        assert contents(queue) == []
        queue.delete_message(hidden)


def test_a_message_cannot_be_hidden_beyond_its_expiry(queue: QueueClient) -> None:
    sent = queue.send_message("text", time_to_live=60)
    with refused(400, "OutOfRangeQueryParameterValue"):
        queue.update_message(sent, visibility_timeout=61)
    taken = take(queue, visibility_timeout=604_800)
    assert moment(taken.next_visible_on) > moment(taken.expires_on)


def test_clearing(queue: QueueClient) -> None:
    queue.send_message("hidden", visibility_timeout=60)
    queue.send_message("seen")
    held = take(queue)
    queue.clear_messages()
    queue.clear_messages()
    with refused(404, "MessageNotFound"):
        queue.delete_message(held)
    queue.send_message("next")
    assert contents(queue) == ["next"]


# Texts


@pytest.mark.parametrize(
    "text",
    ["", " ", "\n\t x \n", "<a b='c'>&amp;</a>", "]]>", "\"'", "été 書棚 🦄", "&#13;"],
)
def test_texts(queue: QueueClient, text: str) -> None:
    queue.send_message(text)
    assert contents(queue) == [text]
    taken = take(queue)
    assert taken.content == text
    queue.update_message(taken, content=f"{text}{text}", visibility_timeout=0)
    assert contents(queue) == [text * 2]


@pytest.mark.parametrize(("character", "bytes_each"), [("x", 1), ("&", 1), ("é", 2), ("🦄", 4)])
def test_64_kib_and_one_byte_more(queue: QueueClient, character: str, bytes_each: int) -> None:
    text = character * (KIB_64 // bytes_each)
    sent = queue.send_message(text)
    assert contents(queue) == [text]
    with refused(413, "RequestBodyTooLarge"):
        queue.send_message(text + ".")
    with refused(413, "RequestBodyTooLarge"):
        queue.update_message(sent, content=text + ".", visibility_timeout=0)
    assert contents(queue) == [text]


def test_a_page_of_the_longest_messages(queue: QueueClient) -> None:
    texts = [chr(ord("A") + number) * KIB_64 for number in range(32)]
    for text in texts:
        queue.send_message(text)
    assert contents(queue) == texts
    pages = queue.receive_messages(messages_per_page=32, max_messages=32).by_page()
    (page,) = map(list, pages)
    assert [message.content for message in page] == texts


def with_policies(queue: QueueClient, queues: QueueServiceClient, **policies: Any) -> QueueClient:
    return queues.get_queue_client(queue.queue_name, **policies)


def test_texts_in_base64(queues: QueueServiceClient, queue: QueueClient) -> None:
    encoding = with_policies(
        queue,
        queues,
        message_encode_policy=TextBase64EncodePolicy(),
        message_decode_policy=TextBase64DecodePolicy(),
    )
    text = "été\x00\ufffe <a>"
    encoding.send_message(text)
    assert take(encoding).content == text
    encoding.send_message("x" * (KIB_64 // 4 * 3))
    with refused(413, "RequestBodyTooLarge"):
        encoding.send_message("x" * (KIB_64 // 4 * 3 + 1))


def test_bytes_in_base64(queues: QueueServiceClient, queue: QueueClient) -> None:
    encoding = with_policies(
        queue,
        queues,
        message_encode_policy=BinaryBase64EncodePolicy(),
        message_decode_policy=BinaryBase64DecodePolicy(),
    )
    content = bytes(range(256))
    sent = encoding.send_message(content)
    assert contents(encoding) == [content]
    encoding.update_message(sent, content=content[::-1], visibility_timeout=0)
    assert take(encoding).content == content[::-1]
