"""Access to queues: keys, account and queue tokens, stored policies."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from azure.storage.queue import (
    AccessPolicy,
    QueueClient,
    QueueServiceClient,
)

from tests.sdk.blob.clients import blob_service
from tests.sdk.harness import HOUR, WRONG_CREDENTIALS, now, refused
from tests.sdk.queue.clients import account_token, contents, queue_service, queue_token, sas_client
from tests.server import SECOND_ACCOUNT, SECOND_KEYS, WRONG_KEY, Server, unique

MISMATCH = "AuthorizationPermissionMismatch"
OUT_OF_REACH = "AuthorizationFailure"

Action = Callable[[QueueClient, Any], Any]
"""An operation on a queue with one message, given its last receipt."""

ON_MESSAGES: dict[str, tuple[str, str, Action]] = {
    # Permissions needed in a queue token ("": none is enough) and in an account token.
    "put": ("a", "a", lambda queue, _: queue.send_message("new")),
    "get": ("p", "p", lambda queue, _: queue.receive_message()),
    "peek": ("r", "r", lambda queue, _: queue.peek_messages()),
    "update": ("u", "u", lambda queue, held: queue.update_message(held, content="new")),
    "delete": ("p", "p", lambda queue, held: queue.delete_message(held)),
    "clear": ("", "d", lambda queue, _: queue.clear_messages()),
}
ON_QUEUES: dict[str, tuple[str, str, Action]] = {
    "metadata": ("r", "r", lambda queue, _: queue.get_queue_properties()),
    "describe": ("", "w", lambda queue, _: queue.set_queue_metadata({"a": "b"})),
    "delete": ("", "d", lambda queue, _: queue.delete_queue()),
    "policies": ("", "", lambda queue, _: queue.get_queue_access_policy()),
    "permit": ("", "", lambda queue, _: queue.set_queue_access_policy({})),
}


# Keys


@pytest.mark.parametrize("key", SECOND_KEYS, ids=["first", "second"])
def test_both_keys_of_an_account(server: Server, key: str) -> None:
    with queue_service(server, SECOND_ACCOUNT, key) as service:
        queue = service.create_queue(unique("second"))
        queue.send_message("text")
        assert contents(queue) == ["text"]
        queue.delete_queue()


@pytest.mark.parametrize(("account", "key"), WRONG_CREDENTIALS)
def test_wrong_keys(server: Server, account: str, key: str) -> None:
    with queue_service(server, account, key) as service:
        with refused(403, "AuthenticationFailed"):
            list(service.list_queues())
        with refused(403, "AuthenticationFailed"):
            service.create_queue("never")
        with refused(403, "AuthenticationFailed"):
            service.get_queue_client("never").send_message("never")


def test_accounts_are_isolated(server: Server, queue: QueueClient) -> None:
    queue.send_message("mine")
    with queue_service(server, SECOND_ACCOUNT, SECOND_KEYS[0]) as other:
        namesake = other.get_queue_client(queue.queue_name)
        with refused(404, "QueueNotFound"):
            namesake.peek_messages()
        namesake.create_queue()
        assert contents(namesake) == []
        namesake.delete_queue()
    assert contents(queue) == ["mine"]


def test_connection_strings(server: Server, queue: QueueClient) -> None:
    text = server.connection_string("queue")
    with QueueServiceClient.from_connection_string(text) as service:
        assert service.get_queue_client(queue.queue_name).get_queue_properties().metadata == {}


# Permissions


def require(client: QueueClient, action: Action, held: Any, code: str) -> None:
    with client:
        if code:
            with refused(403, code):
                action(client, held)
        else:
            action(client, held)


@pytest.mark.parametrize("kind", [*ON_MESSAGES, *(f"{kind} queue" for kind in ON_QUEUES)])
@pytest.mark.parametrize("letter", "raup")
def test_permissions_of_queue_tokens(queue: QueueClient, kind: str, letter: str) -> None:
    on_queue = kind.endswith(" queue")
    table = ON_QUEUES if on_queue else ON_MESSAGES
    needed, _, action = table[kind.removesuffix(" queue")]
    held = queue.send_message("text")
    code = OUT_OF_REACH if not needed else "" if letter == needed else MISMATCH
    require(sas_client(queue, queue_token(queue, permission=letter)), action, held, code)


@pytest.mark.parametrize("kind", ON_MESSAGES)
@pytest.mark.parametrize("letter", "rwdlacup")
def test_permissions_of_account_tokens_on_messages(
    queue: QueueClient, kind: str, letter: str
) -> None:
    _, needed, action = ON_MESSAGES[kind]
    held = queue.send_message("text")
    code = "" if letter == needed else MISMATCH
    require(sas_client(queue, account_token(letter, "o")), action, held, code)


@pytest.mark.parametrize("kind", ON_QUEUES)
@pytest.mark.parametrize("letter", "rwdlacup")
def test_permissions_of_account_tokens_on_queues(
    queue: QueueClient, kind: str, letter: str
) -> None:
    _, needed, action = ON_QUEUES[kind]
    held = queue.send_message("text")
    code = "" if letter == needed else MISMATCH
    require(sas_client(queue, account_token(letter, "c")), action, held, code)


def test_permissions_of_account_tokens_on_the_service(server: Server) -> None:
    with QueueServiceClient(server.url("queue"), account_token("l", "s"), retry_total=0) as client:
        list(client.list_queues())
        with refused(403, MISMATCH):
            client.get_service_properties()
        with refused(403, "AuthorizationResourceTypeMismatch"):
            client.create_queue("never")
    for letter in "cw":
        token = account_token(letter, "c")
        with QueueServiceClient(server.url("queue"), token, retry_total=0) as client:
            name = unique("created")
            client.create_queue(name)
            with queue_service(server) as owner:
                owner.delete_queue(name)


def test_resource_types_of_account_tokens(queue: QueueClient) -> None:
    for types in ("s", "c", "sc"):
        client = sas_client(queue, account_token("raup", types))
        with client, refused(403, "AuthorizationResourceTypeMismatch"):
            client.send_message("never")
    client = sas_client(queue, account_token("r", "so"))
    with client, refused(403, "AuthorizationResourceTypeMismatch"):
        client.get_queue_properties()


# Scope of tokens


def test_tokens_are_limited_to_their_queue(queues: QueueServiceClient, queue: QueueClient) -> None:
    other = queues.create_queue(unique("other"))
    with sas_client(other, queue_token(queue)) as client, refused(403, "AuthenticationFailed"):
        client.send_message("never")
    service_url = queue.url.rsplit("/", 1)[0]
    service = QueueServiceClient(service_url, queue_token(queue), retry_total=0)
    with service, refused(403, "AuthenticationFailed"):
        list(service.list_queues())
    assert contents(other) == []
    other.delete_queue()


def test_tokens_for_another_service(server: Server, queue: QueueClient) -> None:
    client = sas_client(queue, account_token("raup", "sco", services="b"))
    with client, refused(403, "AuthorizationServiceMismatch"):
        client.send_message("never")
    with blob_service(server) as blobs:
        container = blobs.get_container_client(queue.queue_name)
        assert not container.exists()


@pytest.mark.parametrize(
    ("start", "expiry", "valid"),
    [(-HOUR, HOUR, True), (HOUR, 2 * HOUR, False), (-2 * HOUR, -HOUR, False)],
    ids=["now", "later", "before"],
)
def test_times(queue: QueueClient, start: timedelta, expiry: timedelta, valid: bool) -> None:
    window = {"start": now() + start, "expiry": now() + expiry}
    for token in (queue_token(queue, **window), account_token("r", "o", **window)):
        _, _, peek = ON_MESSAGES["peek"]
        require(sas_client(queue, token), peek, None, "" if valid else "AuthenticationFailed")


def test_addresses_and_protocols(queue: QueueClient) -> None:
    for options in ({"ip": "127.0.0.1"}, {"ip": "127.0.0.0-127.0.0.9"}, {"protocol": "https,http"}):
        with sas_client(queue, queue_token(queue, **options)) as client:
            client.peek_messages()
    for options, code in (
        ({"ip": "10.0.0.1"}, "AuthorizationSourceIPMismatch"),
        ({"protocol": "https"}, "AuthorizationProtocolMismatch"),
    ):
        with sas_client(queue, queue_token(queue, **options)) as client, refused(403, code):
            client.peek_messages()


def test_forged_tokens(queue: QueueClient) -> None:
    for token in (
        queue_token(queue, account_key=WRONG_KEY),
        queue_token(queue, permission="r").replace("sp=r", "sp=raup"),
    ):
        with sas_client(queue, token) as client, refused(403, "AuthenticationFailed"):
            client.peek_messages()


# Stored policies


def test_policies_take_effect_and_are_revoked_at_once(queue: QueueClient) -> None:
    queue.send_message("text")
    token = queue_token(queue, permission=None, expiry=None, policy_id="it")
    with sas_client(queue, token) as client:
        for _ in range(10):
            queue.set_queue_access_policy({"it": AccessPolicy("r", now() + HOUR)})
            assert contents(client) == ["text"]
            with refused(403, MISMATCH):
                client.send_message("never")
            queue.set_queue_access_policy({"it": AccessPolicy("a", now() + HOUR)})
            with refused(403, MISMATCH):
                client.peek_messages()
            queue.set_queue_access_policy({"it": AccessPolicy("r", now() - HOUR)})
            with refused(403, "AuthenticationFailed"):
                client.peek_messages()
            queue.set_queue_access_policy({"other": AccessPolicy("r", now() + HOUR)})
            with refused(403, "AuthenticationFailed"):
                client.peek_messages()
            queue.set_queue_access_policy({})
            with refused(403, "AuthenticationFailed"):
                client.peek_messages()


def test_tokens_supply_what_the_policy_leaves_out(queue: QueueClient) -> None:
    queue.set_queue_access_policy({"it": AccessPolicy(permission="r")})
    token = queue_token(queue, permission=None, policy_id="it")
    with sas_client(queue, token) as client:
        client.peek_messages()
    both = queue_token(queue, permission="r", policy_id="it")
    with sas_client(queue, both) as client, refused(403, "AuthenticationFailed"):
        client.peek_messages()


def test_deleting_a_queue_revokes_its_policies(queue: QueueClient) -> None:
    queue.set_queue_access_policy({"it": AccessPolicy("r", now() + HOUR)})
    token = queue_token(queue, permission=None, expiry=None, policy_id="it")
    with sas_client(queue, token) as client:
        client.peek_messages()
        queue.delete_queue()
        queue.create_queue()
        with refused(403, "AuthenticationFailed"):
            client.peek_messages()
