"""Every operation of the table service, as a request that succeeds if its sender may send it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from tests.probes.client import VERSION, Pairs, Request, Signer, dated, hmac_sha256
from tests.probes.operations import POLICIES, PROPERTIES
from tests.probes.tokens import Token, moment
from tests.protocol.table.batches import BATCH_TYPE, change_set, part, single_query
from tests.server import ACCOUNT

TABLE_LETTERS: Final = "raud"
JSON: Final = ("Content-Type", "application/json")
NEW: Final = b'{"PartitionKey":"p","RowKey":"new","Age":37}'
CHANGED: Final = b'{"Age":37}'


class Place(NamedTuple):
    """A table that is there, with the entity (p, r), and a name that is free."""

    table: str
    account: str = ACCOUNT

    @property
    def free(self) -> str:
        return f"{self.table}New"


@dataclass(frozen=True)
class Form:
    """One row: a form of request, and the row of the table of permissions that it needs."""

    name: str
    row: str
    method: str
    path: str
    """Below the account, with the parts of a place in braces."""
    query: Pairs = ()
    headers: Pairs = ()
    body: bytes = b""
    """With the parts of a place in angle brackets."""
    secondary: bool = False

    def __str__(self) -> str:
        return self.name

    @property
    def changes(self) -> bool:
        return self.method not in {"GET", "HEAD"} and self.row != "query_entities"

    def request(self, place: Place) -> Request:
        account = f"{place.account}{'-secondary' if self.secondary else ''}"
        path = f"/{account}/{self.path.format(table=place.table, free=place.free)}"
        body = self.body.replace(b"<table>", place.table.encode())
        body = body.replace(b"<free>", place.free.encode())
        headers = (("x-ms-version", VERSION), *self.headers)
        return Request(self.method, path, self.query, headers, body)


ENTITY: Final = "{table}(PartitionKey='p',RowKey='r')"
ANY: Final = ("If-Match", "*")
_INSIDE: Final = "/<table>(PartitionKey='p',RowKey='r')"


def _form(
    row: str,
    method: str,
    path: str,
    *query: tuple[str, str],
    body: bytes = b"",
    headers: Pairs = (),
    name: str = "",
) -> Form:
    return Form(name or row, row, method, path, query, headers, body)


def _group(row: str, request: bytes) -> Form:
    headers = (("Content-Type", BATCH_TYPE),)
    return Form(f"group_of_{row}", row, "POST", "$batch", (), headers, change_set([request]))


_SERVICE: Final = ("restype", "service")

FORMS: Final = (
    _form("get_table_service_properties", "GET", "", _SERVICE, ("comp", "properties")),
    _form(
        "set_table_service_properties", "PUT", "", _SERVICE, ("comp", "properties"), body=PROPERTIES
    ),
    replace(
        _form("get_table_service_stats", "GET", "", _SERVICE, ("comp", "stats")), secondary=True
    ),
    _form("query_tables", "GET", "Tables"),
    _form("create_table", "POST", "Tables", body=b'{"TableName":"<free>"}', headers=(JSON,)),
    _form("delete_table", "DELETE", "Tables('{table}')"),
    _form("get_table_acl", "GET", "{table}", ("comp", "acl")),
    _form("set_table_acl", "PUT", "{table}", ("comp", "acl"), body=POLICIES),
    _form("query_entities", "GET", "{table}()"),
    _form("query_entities", "GET", ENTITY, name="get_entity"),
    _form("insert_entity", "POST", "{table}", body=NEW, headers=(JSON,)),
    _form("update_entity", "PUT", ENTITY, body=CHANGED, headers=(JSON, ANY)),
    _form("merge_entity", "MERGE", ENTITY, body=CHANGED, headers=(JSON, ANY)),
    _form("insert_or_replace_entity", "PUT", ENTITY, body=CHANGED, headers=(JSON,)),
    _form("insert_or_merge_entity", "PATCH", ENTITY, body=CHANGED, headers=(JSON,)),
    _form("delete_entity", "DELETE", ENTITY, headers=(ANY,)),
    _form(
        "merge_entity",
        "POST",
        ENTITY,
        body=CHANGED,
        headers=(JSON, ANY, ("X-HTTP-Method", "MERGE")),
        name="merge_inside_of_a_post",
    ),
    _form(
        "delete_entity",
        "POST",
        ENTITY,
        headers=(ANY, ("X-HTTP-Method", "DELETE")),
        name="delete_inside_of_a_post",
    ),
    _group("insert_entity", part("POST", "/<table>", NEW)),
    _group("update_entity", part("PUT", _INSIDE, CHANGED, If_Match="*")),
    _group("merge_entity", part("MERGE", _INSIDE, CHANGED, If_Match="*")),
    _group("insert_or_replace_entity", part("PUT", _INSIDE, CHANGED)),
    _group("insert_or_merge_entity", part("PATCH", _INSIDE, CHANGED)),
    _group("delete_entity", part("DELETE", _INSIDE, If_Match="*")),
    Form(
        "group_of_query_entities",
        "query_entities",
        "POST",
        "$batch",
        (),
        (("Content-Type", BATCH_TYPE),),
        single_query(part("GET", "/<table>()")),
    ),
)


# Signatures: tables sign neither headers nor lengths


def _resource(account: str, request: Request) -> str:
    comp = dict(request.query).get("comp")
    return f"/{account}{request.path}" + (f"?comp={comp}" if comp is not None else "")


def table_key(account: str, key: str) -> Signer:
    def sign(request: Request) -> Request:
        request = dated(request)
        lines = [request.method, request.header("content-md5") or ""]
        lines += [request.header("content-type") or ""]
        lines += [request.header("x-ms-date") or request.header("date") or ""]
        signature = hmac_sha256(key, "\n".join([*lines, _resource(account, request)]))
        return request.having(("Authorization", f"SharedKey {account}:{signature}"))

    return sign


def table_key_lite(account: str, key: str) -> Signer:
    def sign(request: Request) -> Request:
        request = dated(request)
        date = request.header("x-ms-date") or request.header("date") or ""
        signature = hmac_sha256(key, f"{date}\n{_resource(account, request)}")
        return request.having(("Authorization", f"SharedKeyLite {account}:{signature}"))

    return sign


def table_token(
    account: str, key: str, table: str, *, permissions: str = TABLE_LETTERS, **options: str
) -> Token:
    """For a table. With a stored policy (`si`) it says nothing else."""
    fields = {"sv": VERSION, "tn": table}
    if "si" not in options:
        fields |= {"sp": permissions, "st": moment(hours=-1), "se": moment(hours=1)}
    fields |= options
    lines = [fields.get(name, "") for name in ("sp", "st", "se")]
    lines += [f"/table/{account}/{table.lower()}"]
    lines += [fields.get(name, "") for name in ("si", "sip", "spr", "sv")]
    lines += [fields.get(name, "") for name in ("spk", "srk", "epk", "erk")]
    return Token({**fields, "sig": hmac_sha256(key, "\n".join(lines))})
