"""Queues: create, metadata, policies, list and delete."""

from __future__ import annotations

from typing import Any

import pytest
from azure.storage.queue import AccessPolicy, QueueClient, QueueServiceClient

from tests.sdk.harness import HOUR, ResponseRecorder, now, refused
from tests.sdk.queue.clients import contents
from tests.server import unique


def test_create_twice(queues: QueueServiceClient) -> None:
    queue = queues.get_queue_client(unique("made"))
    answer = ResponseRecorder()
    queue.create_queue(metadata={"Colour": "red"}, raw_response_hook=answer)
    assert answer.status == 201
    # The SDK reports that nothing was left to do.
    with refused(204, "QueueAlreadyExists"):
        queue.create_queue(metadata={"Colour": "red"})
    with refused(409, "QueueAlreadyExists"):
        queue.create_queue(metadata={"Colour": "blue"})
    with refused(409, "QueueAlreadyExists"):
        queue.create_queue()
    queue.delete_queue(raw_response_hook=answer)
    assert answer.status == 204


def test_delete_and_recreate(queue: QueueClient) -> None:
    for number in range(5):
        queue.send_message(f"message {number}")
        queue.delete_queue()
        with refused(404, "QueueNotFound"):
            queue.get_queue_properties()
        queue.create_queue(metadata={"Number": str(number)})
        shown = queue.get_queue_properties()
        assert shown.metadata == {"Number": str(number)}
        assert shown.approximate_message_count == 0
        assert contents(queue) == []


def test_a_missing_queue(queues: QueueServiceClient) -> None:
    queue = queues.get_queue_client(unique("missing"))
    calls = (
        queue.delete_queue,
        queue.get_queue_properties,
        lambda: queue.set_queue_metadata({}),
        queue.get_queue_access_policy,
        lambda: queue.set_queue_access_policy({}),
        lambda: queue.send_message("text"),
        queue.receive_message,
        queue.peek_messages,
        queue.clear_messages,
    )
    for call in calls:
        with refused(404, "QueueNotFound"):
            call()


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("ab", "OutOfRangeInput"),
        ("a" * 64, "OutOfRangeInput"),
        ("Upper", "InvalidResourceName"),
        ("a--b", "InvalidResourceName"),
        ("-ab", "InvalidResourceName"),
        ("a_b", "InvalidResourceName"),
    ],
)
def test_invalid_names(queues: QueueServiceClient, name: str, code: str) -> None:
    with refused(400, code):
        queues.create_queue(name)


# Metadata


def test_metadata(queue: QueueClient) -> None:
    described: dict[str, str]
    for described in ({"Colour": "red", "size": "A4"}, {"Other": "1"}, {}):
        queue.set_queue_metadata(described)
        assert queue.get_queue_properties().metadata == described


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        ({"1name": "value"}, "InvalidMetadata"),
        ({"name": "x" * 9_000}, "MetadataTooLarge"),
    ],
)
def test_invalid_metadata(queue: QueueClient, metadata: dict[str, str], code: str) -> None:
    with refused(400, code):
        queue.set_queue_metadata(metadata)


def test_the_number_of_messages(queue: QueueClient) -> None:
    def count() -> int | None:
        return queue.get_queue_properties().approximate_message_count

    assert count() == 0
    for _ in range(3):
        queue.send_message("text")
    queue.send_message("hidden", visibility_timeout=60)
    assert count() == 4
    taken = queue.receive_message()
    assert taken is not None
    assert count() == 4
    queue.delete_message(taken)
    assert count() == 3
    queue.clear_messages()
    assert count() == 0


# Policies


def test_policies_round_trip(queue: QueueClient) -> None:
    start, expiry = (now().replace(microsecond=0, tzinfo=None) + part for part in (-HOUR, HOUR))
    policies = {f"policy {n}": AccessPolicy("raup", expiry, start) for n in range(5)}
    queue.set_queue_access_policy(policies)
    found: dict[str, Any] = queue.get_queue_access_policy()
    assert list(found) == list(policies)
    for policy in found.values():
        assert policy.permission == "raup"
        assert str(policy.start).startswith(start.isoformat())
        assert str(policy.expiry).startswith(expiry.isoformat())
    queue.set_queue_access_policy({})
    assert queue.get_queue_access_policy() == {}


def test_unknown_permissions_in_policies(queue: QueueClient) -> None:
    for letters in ("w", "rr", "raupd", "R"):
        with refused(400, "InvalidXmlNodeValue"):
            queue.set_queue_access_policy({"it": AccessPolicy(letters, now() + HOUR)})


# Lists


def test_lists(queues: QueueServiceClient) -> None:
    prefix = unique("listed")
    names = [f"{prefix}-{letter}" for letter in "abcdefg"]
    for name in reversed(names):
        queues.create_queue(name, metadata={"Its": name})
    listed = queues.list_queues(name_starts_with=prefix, include_metadata=True)
    assert [(found.name, found.metadata) for found in listed] == [
        (name, {"Its": name}) for name in names
    ]
    assert [found.metadata for found in queues.list_queues(name_starts_with=names[0])] == [None]
    pages = queues.list_queues(name_starts_with=prefix, results_per_page=3).by_page()
    assert [[found.name for found in page] for page in pages] == [names[:3], names[3:6], names[6:]]
    for name in names:
        queues.delete_queue(name)
    assert list(queues.list_queues(name_starts_with=prefix)) == []


def test_pages_continue_at_the_marker(queues: QueueServiceClient) -> None:
    prefix = unique("paged")
    names = [f"{prefix}-{number}" for number in range(4)]
    for name in names:
        queues.create_queue(name)
    first: Any = queues.list_queues(name_starts_with=prefix, results_per_page=2).by_page()
    assert [found.name for found in next(first)] == names[:2]
    # The next queue may be deleted by then.
    queues.delete_queue(names[2])
    rest = queues.list_queues(name_starts_with=prefix).by_page(first.continuation_token)
    assert [found.name for page in rest for found in page] == names[3:]
    for name in (*names[:2], names[3]):
        queues.delete_queue(name)


def test_invalid_markers(queues: QueueServiceClient) -> None:
    for marker in ("no marker!", "*", "_w=="):
        with refused(400, "InvalidMarker"):
            list(queues.list_queues().by_page(marker))
