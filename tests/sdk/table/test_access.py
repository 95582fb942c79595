"""Access to tables: keys, account and table tokens, stored policies."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.data.tables import TableAccessPolicy, TableClient, TableServiceClient, UpdateMode

from tests.sdk.harness import HOUR, WRONG_CREDENTIALS, now, refused
from tests.sdk.table.clients import (
    account_token,
    row_keys,
    sas_client,
    table_service,
    table_token,
    unique_table,
)
from tests.server import (
    ACCOUNT,
    SECOND_ACCOUNT,
    SECOND_KEYS,
    WRONG_KEY,
    Server,
)

MISMATCH: Final = "AuthorizationPermissionMismatch"
OUT_OF_REACH: Final = "AuthorizationFailure"
FAILED: Final = "AuthenticationFailed"

Action = Callable[[TableClient], Any]
"""An operation on a table with one entity."""

OLD: Final[dict[str, Any]] = {"PartitionKey": "p", "RowKey": "old", "Age": 36}
NEW: Final[dict[str, Any]] = {"PartitionKey": "p", "RowKey": "new"}

ON_ENTITIES: Final[dict[str, tuple[str, Action]]] = {
    # Permissions needed, in a table token as well as in an account token.
    "query": ("r", row_keys),
    "get": ("r", lambda table: table.get_entity("p", "old")),
    "insert": ("a", lambda table: table.create_entity(NEW)),
    "merge": ("u", lambda table: table.update_entity(OLD, mode=UpdateMode.MERGE)),
    "replace": ("u", lambda table: table.update_entity(OLD, mode=UpdateMode.REPLACE)),
    "upsert": ("au", lambda table: table.upsert_entity(OLD, mode=UpdateMode.REPLACE)),
    "upsert by merge": ("au", lambda table: table.upsert_entity(NEW, mode=UpdateMode.MERGE)),
    "delete": ("d", lambda table: table.delete_entity("p", "old")),
    "group of inserts": ("a", lambda table: table.submit_transaction([("create", NEW)])),
    "group of updates": ("u", lambda table: table.submit_transaction([("update", OLD)])),
    "group of upserts": ("au", lambda table: table.submit_transaction([("upsert", OLD)])),
    "group of deletes": ("d", lambda table: table.submit_transaction([("delete", OLD)])),
}
ON_TABLES: Final[dict[str, tuple[str, Action]]] = {
    # Permissions of which an account token needs one; no table token is enough.
    "create": ("cw", lambda table: table.create_table()),
    "delete": ("d", lambda table: table.delete_table()),
    "policies": ("", lambda table: table.get_table_access_policy()),
    "permit": ("", lambda table: table.set_table_access_policy({})),
}


def require(client: TableClient, action: Action, code: str) -> None:
    with client:
        if code:
            with refused(403, code):
                action(client)
        else:
            action(client)


# Keys


@pytest.mark.parametrize("key", SECOND_KEYS, ids=["first", "second"])
def test_both_keys_of_an_account(server: Server, key: str) -> None:
    with table_service(server, SECOND_ACCOUNT, key) as service:
        table = service.create_table(unique_table("Second"))
        table.create_entity(NEW)
        assert row_keys(table) == ["new"]
        table.delete_table()


@pytest.mark.parametrize(("account", "key"), WRONG_CREDENTIALS)
def test_wrong_keys(server: Server, account: str, key: str) -> None:
    with table_service(server, account, key) as service:
        table = service.get_table_client("Never")
        for call in (
            lambda: list(service.list_tables()),
            lambda: service.create_table("Never"),
            lambda: table.create_entity(NEW),
            lambda: row_keys(table),
            lambda: table.submit_transaction([("create", NEW)]),
        ):
            with refused(403, FAILED):
                call()


def test_accounts_are_isolated(server: Server, table: TableClient) -> None:
    table.create_entity(OLD)
    with table_service(server, SECOND_ACCOUNT, SECOND_KEYS[0]) as other:
        namesake = other.get_table_client(table.table_name)
        with refused(404, "TableNotFound"):
            row_keys(namesake)
        namesake.create_table()
        assert row_keys(namesake) == []
        namesake.delete_table()
    assert row_keys(table) == ["old"]


def test_connection_strings(server: Server, table: TableClient) -> None:
    text = server.connection_string("table")
    with TableClient.from_connection_string(text, table.table_name) as client:
        client.create_entity(NEW)
    assert row_keys(table) == ["new"]


# Permissions


@pytest.mark.parametrize("kind", ON_ENTITIES)
def test_permissions_of_table_tokens(server: Server, table: TableClient, kind: str) -> None:
    needed, action = ON_ENTITIES[kind]
    table.create_entity(OLD)
    for letters in ("r", "a", "u", "d", "rad", "rud"):
        code = "" if set(needed) <= set(letters) else MISMATCH
        token = table_token(table.table_name, permission=letters)
        if code:
            require(sas_client(server, table.table_name, token), action, code)
    token = table_token(table.table_name, permission=needed)
    require(sas_client(server, table.table_name, token), action, "")


@pytest.mark.parametrize("kind", ON_TABLES)
def test_table_tokens_cannot_manage_the_table(
    server: Server, table: TableClient, kind: str
) -> None:
    _, action = ON_TABLES[kind]
    require(
        sas_client(server, table.table_name, table_token(table.table_name)), action, OUT_OF_REACH
    )


@pytest.mark.parametrize("kind", ON_ENTITIES)
def test_permissions_of_account_tokens_on_entities(
    server: Server, table: TableClient, kind: str
) -> None:
    needed, action = ON_ENTITIES[kind]
    table.create_entity(OLD)
    rest = "".join(letter for letter in "rwdlacup" if letter not in needed)
    require(sas_client(server, table.table_name, account_token(rest, "o")), action, MISMATCH)
    require(sas_client(server, table.table_name, account_token(needed, "o")), action, "")


@pytest.mark.parametrize("kind", ON_TABLES)
@pytest.mark.parametrize("letter", "rwdlacup")
def test_permissions_of_account_tokens_on_tables(server: Server, kind: str, letter: str) -> None:
    needed, action = ON_TABLES[kind]
    name = unique_table("Letters")
    with table_service(server) as service:
        if kind != "create":
            service.create_table(name)
        code = "" if letter in needed else MISMATCH
        require(sas_client(server, name, account_token(letter, "c")), action, code)
        service.delete_table(name)


def test_permissions_of_account_tokens_on_the_service(server: Server) -> None:
    def service(letters: str, types: str) -> TableServiceClient:
        credential = AzureSasCredential(account_token(letters, types))
        return TableServiceClient(server.url("table"), credential=credential, retry_total=0)

    with service("l", "s") as client:
        list(client.list_tables())
        with refused(403, MISMATCH):
            client.get_service_properties()
        with refused(403, "AuthorizationResourceTypeMismatch"):
            client.create_table("Never")
    with service("rwdacup", "sco") as client, refused(403, MISMATCH):
        list(client.list_tables())


def test_resource_types_of_account_tokens(server: Server, table: TableClient) -> None:
    for types in ("s", "c", "sc"):
        client = sas_client(server, table.table_name, account_token("raud", types))
        with client, refused(403, "AuthorizationResourceTypeMismatch"):
            client.create_entity(NEW)


# Scope of tokens


def test_tokens_are_limited_to_their_table(
    server: Server, tables: TableServiceClient, table: TableClient
) -> None:
    other = tables.create_table(unique_table("Other"))
    token = table_token(table.table_name)
    for action in (row_keys, lambda client: client.create_entity(NEW)):
        require(sas_client(server, other.table_name, token), action, FAILED)
    credential = AzureSasCredential(token)
    service = TableServiceClient(server.url("table"), credential=credential, retry_total=0)
    with service:
        for call in (lambda: list(service.list_tables()), lambda: service.create_table("Never")):
            with refused(403, OUT_OF_REACH):
                call()
    assert row_keys(other) == []
    other.delete_table()


def test_table_names_in_tokens_ignore_case(server: Server, table: TableClient) -> None:
    table.create_entity(OLD)
    for signed in (table.table_name, table.table_name.upper(), table.table_name.lower()):
        with sas_client(server, table.table_name.swapcase(), table_token(signed)) as client:
            assert row_keys(client) == ["old"]
            client.submit_transaction([("update", OLD)])


@pytest.mark.parametrize(
    ("start", "expiry", "valid"),
    [(-HOUR, HOUR, True), (HOUR, 2 * HOUR, False), (-2 * HOUR, -HOUR, False)],
    ids=["now", "later", "before"],
)
def test_times(
    server: Server, table: TableClient, start: timedelta, expiry: timedelta, valid: bool
) -> None:
    window = {"start": now() + start, "expiry": now() + expiry}
    for token in (table_token(table.table_name, **window), account_token("r", "o", **window)):
        require(sas_client(server, table.table_name, token), row_keys, "" if valid else FAILED)


def test_addresses_and_protocols(server: Server, table: TableClient) -> None:
    for options, code in (
        ({"ip_address_or_range": "127.0.0.1"}, ""),
        ({"ip_address_or_range": "127.0.0.0-127.0.0.9"}, ""),
        ({"protocol": "https,http"}, ""),
        ({"ip_address_or_range": "10.0.0.1"}, "AuthorizationSourceIPMismatch"),
        ({"protocol": "https"}, "AuthorizationProtocolMismatch"),
    ):
        token = table_token(table.table_name, **options)
        require(sas_client(server, table.table_name, token), row_keys, code)


def test_forged_tokens(server: Server, table: TableClient) -> None:
    wrong = AzureNamedKeyCredential(ACCOUNT, WRONG_KEY)
    name = table.table_name
    for token in (
        table_token(name, credential=wrong),
        table_token(name, permission="r").replace("sp=r", "sp=raud"),
        table_token(name, start_pk="a", end_pk="b").replace("epk=b", "epk=z"),
        table_token(name, start_pk="a", end_pk="b").replace("&epk=b", ""),
        table_token(f"{name}x").replace(f"tn={name}x", f"tn={name}"),
    ):
        require(sas_client(server, name, token), row_keys, FAILED)


# Stored policies


def test_policies_take_effect_and_are_revoked_at_once(server: Server, table: TableClient) -> None:
    table.create_entity(OLD)
    token = table_token(table.table_name, permission=None, expiry=None, policy_id="it")

    def keep(permission: str, expiry: timedelta = HOUR, name: str = "it") -> None:
        policy = TableAccessPolicy(permission=permission, expiry=now() + expiry, start=now() - HOUR)
        table.set_table_access_policy({name: policy})

    revocations: tuple[Callable[[], None], ...] = (
        lambda: keep("r", -HOUR),
        lambda: keep("r", name="other"),
        lambda: table.set_table_access_policy({}),
    )
    with sas_client(server, table.table_name, token) as client:
        for _ in range(3):
            keep("r")
            assert row_keys(client) == ["old"]
            with refused(403, MISMATCH):
                client.create_entity(NEW)
            keep("u")
            client.submit_transaction([("update", OLD)])
            with refused(403, MISMATCH):
                row_keys(client)
            for revoke in revocations:
                revoke()
                with refused(403, FAILED):
                    row_keys(client)
                with refused(403, FAILED):
                    client.submit_transaction([("update", OLD)])


def test_deleting_a_table_revokes_its_policies(server: Server, table: TableClient) -> None:
    policy = TableAccessPolicy(permission="r", expiry=now() + HOUR, start=now() - HOUR)
    table.set_table_access_policy({"it": policy})
    token = table_token(table.table_name, permission=None, expiry=None, policy_id="it")
    with sas_client(server, table.table_name, token) as client:
        row_keys(client)
        table.delete_table()
        table.create_table()
        with refused(403, FAILED):
            row_keys(client)
