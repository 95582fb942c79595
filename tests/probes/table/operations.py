"""Every operation of the table service, as a request that succeeds if its sender is authorized."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Final, NamedTuple

from tests.probes.client import VERSION, Pairs, Request
from tests.probes.service import POLICIES, PROPERTIES, Operation
from tests.probes.token_kinds import ACCOUNT_KIND, TokenKind
from tests.probes.tokens import TABLE_LETTERS, Token, table_token
from tests.protocol.table.batches import BATCH_TYPE, change_set, part, single_query
from tests.server import ACCOUNT, KEY

JSON: Final = ("Content-Type", "application/json")
NEW: Final = b'{"PartitionKey":"p","RowKey":"new","Age":37}'
CHANGED: Final = b'{"Age":37}'


class TableTarget(NamedTuple):
    """An existing table with the entity (p, r), and a name that is free."""

    table: str
    account: str = ACCOUNT

    @property
    def free(self) -> str:
        return f"{self.table}New"


@dataclass(frozen=True)
class TableOperation(Operation[TableTarget]):
    """An operation of the table service."""

    service: ClassVar[str] = "table"

    path: str
    """The path below the account, with names of the target in braces."""
    query: Pairs = ()
    headers: Pairs = ()
    body: bytes = b""
    """The body, with names of the target in angle brackets."""
    secondary: bool = False
    """Whether it is sent to the secondary endpoint."""

    @property
    def changes_state(self) -> bool:
        return self.method not in {"GET", "HEAD"} and self.row != "query_entities"

    def request(self, target: TableTarget) -> Request:
        account = f"{target.account}{'-secondary' if self.secondary else ''}"
        path = f"/{account}/{self.path.format(table=target.table, free=target.free)}"
        body = self.body.replace(b"<table>", target.table.encode())
        body = body.replace(b"<free>", target.free.encode())
        headers = (("x-ms-version", VERSION), *self.headers)
        return Request(self.method, path, self.query, headers, body)


ENTITY: Final = "{table}(PartitionKey='p',RowKey='r')"
ANY: Final = ("If-Match", "*")
_INSIDE: Final = "/<table>(PartitionKey='p',RowKey='r')"


def _operation(
    row: str,
    method: str,
    path: str,
    *query: tuple[str, str],
    body: bytes = b"",
    headers: Pairs = (),
    name: str = "",
) -> TableOperation:
    return TableOperation(name or row, row, method, path, query, headers, body)


def _group(row: str, request: bytes) -> TableOperation:
    headers = (("Content-Type", BATCH_TYPE),)
    return TableOperation(
        f"group_of_{row}", row, "POST", "$batch", (), headers, change_set([request])
    )


_SERVICE: Final = ("restype", "service")

OPERATIONS: Final = (
    _operation("get_table_service_properties", "GET", "", _SERVICE, ("comp", "properties")),
    _operation(
        "set_table_service_properties", "PUT", "", _SERVICE, ("comp", "properties"), body=PROPERTIES
    ),
    replace(
        _operation("get_table_service_stats", "GET", "", _SERVICE, ("comp", "stats")),
        secondary=True,
    ),
    _operation("query_tables", "GET", "Tables"),
    _operation("create_table", "POST", "Tables", body=b'{"TableName":"<free>"}', headers=(JSON,)),
    _operation("delete_table", "DELETE", "Tables('{table}')"),
    _operation("get_table_acl", "GET", "{table}", ("comp", "acl")),
    _operation("set_table_acl", "PUT", "{table}", ("comp", "acl"), body=POLICIES),
    _operation("query_entities", "GET", "{table}()"),
    _operation("query_entities", "GET", ENTITY, name="get_entity"),
    _operation("insert_entity", "POST", "{table}", body=NEW, headers=(JSON,)),
    _operation("update_entity", "PUT", ENTITY, body=CHANGED, headers=(JSON, ANY)),
    _operation("merge_entity", "MERGE", ENTITY, body=CHANGED, headers=(JSON, ANY)),
    _operation("insert_or_replace_entity", "PUT", ENTITY, body=CHANGED, headers=(JSON,)),
    _operation("insert_or_merge_entity", "PATCH", ENTITY, body=CHANGED, headers=(JSON,)),
    _operation("delete_entity", "DELETE", ENTITY, headers=(ANY,)),
    _operation(
        "merge_entity",
        "POST",
        ENTITY,
        body=CHANGED,
        headers=(JSON, ANY, ("X-HTTP-Method", "MERGE")),
        name="merge_tunneled_in_post",
    ),
    _operation(
        "delete_entity",
        "POST",
        ENTITY,
        headers=(ANY, ("X-HTTP-Method", "DELETE")),
        name="delete_tunneled_in_post",
    ),
    _group("insert_entity", part("POST", "/<table>", NEW)),
    _group("update_entity", part("PUT", _INSIDE, CHANGED, If_Match="*")),
    _group("merge_entity", part("MERGE", _INSIDE, CHANGED, If_Match="*")),
    _group("insert_or_replace_entity", part("PUT", _INSIDE, CHANGED)),
    _group("insert_or_merge_entity", part("PATCH", _INSIDE, CHANGED)),
    _group("delete_entity", part("DELETE", _INSIDE, If_Match="*")),
    TableOperation(
        "group_of_query_entities",
        "query_entities",
        "POST",
        "$batch",
        (),
        (("Content-Type", BATCH_TYPE),),
        single_query(part("GET", "/<table>()")),
    ),
)


def _table_token(
    _operation: TableOperation,
    target: TableTarget,
    *,
    account: str = ACCOUNT,
    key: str = KEY,
    **options: str,
) -> Token:
    return table_token(account, key, target.table, **options)


TABLE_KIND: Final = TokenKind(
    "table",
    TABLE_LETTERS,
    _table_token,
    "table",
    has_policies=True,
)
TOKEN_KINDS: Final = (ACCOUNT_KIND, TABLE_KIND)
