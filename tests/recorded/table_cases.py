"""Recorded requests to the table service."""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.parse import quote

from tests.probes.client import Request, table_shared_key
from tests.probes.tokens import table_token
from tests.protocol.table.batches import BATCH_TYPE, change_set, part
from tests.recorded.cases import CaseContext, Catalogue
from tests.recorded.queue_cases import (
    BARE_POLICY,
    POLICY,
    add_service_properties,
    properties,
    secondary,
)
from tests.server import ACCOUNT, KEY, WRONG_KEY

TABLE: Final = Catalogue("table")
NOT_COMPARED: Final = {
    ("Table_Batch", 403, "AuthenticationFailed"): "recorded as JSON and as XML, unknown why",
    ("Table_UpdateEntity", 403, "AuthenticationFailed"): "as XML, once, unknown why",
}
"""Recorded responses without a case, and why."""

_MINIMAL: Final = "application/json;odata=minimalmetadata"
_FULL: Final = "application/json;odata=fullmetadata"
_NONE: Final = "application/json;odata=nometadata"
_DATA: Final = {"DataServiceVersion": "3.0", "Accept": _MINIMAL}
_WRITE: Final = {**_DATA, "Content-Type": _NONE}
_CHANGE: Final = {**_DATA, "Accept": "application/json", "Content-Type": "application/json"}
_XML: Final = {"Accept": "application/xml"}
_WRITE_XML: Final = {**_XML, "Content-Type": "application/xml"}
_SERVICE: Final = {"restype": "service", "comp": "properties"}
_OLD: Final = "W/\"datetime'2012-06-15T22%3A51%3A44.9662825Z'\""
_ENTITY: Final = {"PartitionKey": "p", "RowKey": "r", "value": 5}

add_service_properties(TABLE, _XML)


def create(context: CaseContext) -> str:
    context.do("POST", "Tables", {}, _WRITE, json.dumps({"TableName": context.name}))
    return context.name


def insert(context: CaseContext, row: str = "r") -> str:
    """Returns the path of an entity in a new table."""
    context.do("POST", create(context), {}, _WRITE, json.dumps({**_ENTITY, "RowKey": row}))
    return entity(context.name, row)


def entity(table: str, row: str = "r") -> str:
    return f"{table}(PartitionKey='p',RowKey='{row}')"


# Tables


@TABLE.case("Table_Query", 200)
def query_tables(context: CaseContext) -> Request:
    create(context)
    return context.request("GET", "Tables", {}, _DATA)


@TABLE.case("Table_Query", 200, name="none", share=45)
def query_no_tables(context: CaseContext) -> Request:
    return context.request("GET", "Tables", {"$filter": "TableName eq 'absent'"}, _DATA)


@TABLE.case(
    "Table_Query", 200, name="continuation", share=24, having={"x-ms-continuation-NextTableName"}
)
def query_some_tables(context: CaseContext) -> Request:
    for letter in "ab":
        body = json.dumps({"TableName": f"{context.name}{letter}"})
        context.do("POST", "Tables", {}, _WRITE, body)
    return context.request("GET", "Tables", {"$top": "1"}, _DATA)


@TABLE.case("Table_Create", 201)
def create_table(context: CaseContext) -> Request:
    return context.request("POST", "Tables", {}, _WRITE, json.dumps({"TableName": context.name}))


@TABLE.case("Table_Create", 409, "TableAlreadyExists")
def create_table_again(context: CaseContext) -> Request:
    return context.request("POST", "Tables", {}, _WRITE, json.dumps({"TableName": create(context)}))


@TABLE.case("Table_Delete", 204)
def delete_table(context: CaseContext) -> Request:
    headers = {"Accept": "application/json"}
    return context.request("DELETE", f"Tables('{create(context)}')", {}, headers)


@TABLE.case("Table_Delete", 404, "ResourceNotFound")
def delete_no_table(context: CaseContext) -> Request:
    headers = {"Accept": "application/json"}
    return context.request("DELETE", f"Tables('{context.name}')", {}, headers)


# Names of tables

for _code, _name in (
    ("InvalidResourceName", "1table"),
    ("InvalidResourceName", "my_table"),
    ("OutOfRangeInput", "aa"),
    ("OutOfRangeInput", "a" * 64),
):

    @TABLE.case("Table_Create", 400, _code, name=_name)
    def create_named(context: CaseContext, name: str = _name) -> Request:
        return context.request("POST", "Tables", {}, _WRITE, json.dumps({"TableName": name}))

    @TABLE.case("Table_InsertEntity", 400, _code, name=_name)
    def insert_named(context: CaseContext, name: str = _name) -> Request:
        return context.request("POST", name, {}, _WRITE, json.dumps(_ENTITY))

    @TABLE.case("Table_MergeEntity", 400, _code, name=_name)
    def merge_named(context: CaseContext, name: str = _name) -> Request:
        return context.request("PATCH", entity(name), {}, _CHANGE, json.dumps(_ENTITY))

    @TABLE.case("Table_DeleteEntity", 400, _code, name=_name)
    def delete_named(context: CaseContext, name: str = _name) -> Request:
        return context.request("DELETE", entity(name), {}, {**_DATA, "If-Match": "*"})

    @TABLE.case("Table_GetAccessPolicy", 400, _code, name=_name)
    def policy_named(context: CaseContext, name: str = _name) -> Request:
        return context.request("GET", name, {"comp": "acl"}, _XML)

    @TABLE.case("Table_Batch > Table_MergeEntity", 400, _code, name=_name)
    def merge_named_in_batch(context: CaseContext, name: str = _name) -> Request:
        return batch(context, _part(context, "PATCH", entity(name), _ENTITY))


# Entities


@TABLE.case("Table_InsertEntity", 201)
def insert_entity(context: CaseContext) -> Request:
    return context.request("POST", create(context), {}, _WRITE, json.dumps(_ENTITY))


for _accept, _suffix in ((_FULL, "full"), (_NONE, "none")):

    @TABLE.case("Table_InsertEntity", 201, name=f"metadata {_suffix}", share=10)
    def insert_with_metadata(context: CaseContext, accept: str = _accept) -> Request:
        headers = {**_WRITE, "Accept": accept}
        return context.request("POST", create(context), {}, headers, json.dumps(_ENTITY))

    @TABLE.case("Table_QueryEntities", 200, name=f"metadata {_suffix}", share=10)
    def query_with_metadata(context: CaseContext, accept: str = _accept) -> Request:
        insert(context)
        return context.request("GET", f"{context.name}()", {}, {**_DATA, "Accept": accept})

    @TABLE.case(
        "Table_QueryEntityWithPartitionAndRowKey", 200, name=f"metadata {_suffix}", share=20
    )
    def get_with_metadata(context: CaseContext, accept: str = _accept) -> Request:
        return context.request("GET", insert(context), {}, {**_DATA, "Accept": accept})


@TABLE.case("Table_InsertEntity", 201, name="return-content", share=6)
def insert_returning(context: CaseContext) -> Request:
    headers = {**_WRITE, "Prefer": "return-content"}
    return context.request("POST", create(context), {}, headers, json.dumps(_ENTITY))


@TABLE.case("Table_InsertEntity", 204)
def insert_without_content(context: CaseContext) -> Request:
    headers = {**_WRITE, "Prefer": "return-no-content"}
    return context.request("POST", create(context), {}, headers, json.dumps(_ENTITY))


@TABLE.case("Table_InsertEntity", 201, name="sas", share=30, signs=False)
def insert_by_sas(context: CaseContext) -> Request:
    token = table_token(ACCOUNT, KEY, create(context), sv=context.version)
    return token.put_on(context.request("POST", context.name, {}, _WRITE, json.dumps(_ENTITY)))


for _code, _what, _body in (
    ("PropertiesNeedValue", "no RowKey", {"PartitionKey": "p"}),
    ("PropertiesNeedValue", "no PartitionKey", {"RowKey": "r"}),
    ("PropertyNameTooLong", "", {**_ENTITY, "a" * 256: "badval"}),
    ("TooManyProperties", "", {**_ENTITY, **{f"key{n}": f"value{n}" for n in range(253)}}),
):

    @TABLE.case("Table_InsertEntity", 400, _code, name=_what)
    def insert_bad(context: CaseContext, body: dict[str, Any] = _body) -> Request:
        return context.request("POST", create(context), {}, _WRITE, json.dumps(body))


@TABLE.case("Table_InsertEntity", 403, "AuthenticationFailed", signs=False)
def insert_with_wrong_key(context: CaseContext) -> Request:
    sign = table_shared_key(ACCOUNT, WRONG_KEY)
    return sign(context.request("POST", create(context), {}, _WRITE, json.dumps(_ENTITY)))


@TABLE.case("Table_InsertEntity", 403, "AuthorizationFailure", signs=False)
def insert_outside_of_range(context: CaseContext) -> Request:
    ends = {"spk": "test", "srk": "test1", "epk": "test", "erk": "test1"}
    token = table_token(ACCOUNT, KEY, create(context), sv=context.version, **ends)
    return token.put_on(context.request("POST", context.name, {}, _WRITE, json.dumps(_ENTITY)))


@TABLE.case("Table_InsertEntity", 403, "AuthorizationPermissionMismatch", signs=False)
def insert_without_permission(context: CaseContext) -> Request:
    token = table_token(ACCOUNT, KEY, create(context), permissions="r", sv=context.version)
    return token.put_on(context.request("POST", context.name, {}, _WRITE, json.dumps(_ENTITY)))


@TABLE.case("Table_InsertEntity", 404, "TableNotFound")
def insert_into_no_table(context: CaseContext) -> Request:
    return context.request("POST", context.name, {}, _WRITE, json.dumps(_ENTITY))


@TABLE.case("Table_InsertEntity", 409, "EntityAlreadyExists")
def insert_again(context: CaseContext) -> Request:
    insert(context)
    return context.request("POST", context.name, {}, _WRITE, json.dumps(_ENTITY))


@TABLE.case("Table_QueryEntities", 200)
def query(context: CaseContext) -> Request:
    insert(context)
    return context.request("GET", f"{context.name}()", {"$filter": "PartitionKey eq 'p'"}, _DATA)


@TABLE.case("Table_QueryEntities", 200, name="none", share=43)
def query_nothing(context: CaseContext) -> Request:
    return context.request("GET", f"{create(context)}()", {}, _DATA)


@TABLE.case(
    "Table_QueryEntities",
    200,
    name="projection",
    share=10,
    elements=("/odata.metadata=<url>&$select=value",),
)
def query_projection(context: CaseContext) -> Request:
    insert(context)
    return context.request("GET", f"{context.name}()", {"$select": "value"}, _DATA)


@TABLE.case(
    "Table_QueryEntities",
    200,
    name="continuation",
    share=46,
    having={"x-ms-continuation-NextPartitionKey", "x-ms-continuation-NextRowKey"},
)
def query_page(context: CaseContext) -> Request:
    insert(context)
    body = json.dumps({**_ENTITY, "RowKey": "s"})
    context.do("POST", context.name, {}, _WRITE, body)
    return context.request("GET", f"{context.name}()", {"$top": "1"}, _DATA)


@TABLE.case("Table_QueryEntities", 400, "InvalidInput")
def query_bad_filter(context: CaseContext) -> Request:
    return context.request("GET", f"{create(context)}()", {"$filter": "aaa bbb ccc"}, _DATA)


@TABLE.case("Table_QueryEntityWithPartitionAndRowKey", 200)
def get(context: CaseContext) -> Request:
    return context.request("GET", insert(context), {}, _DATA)


@TABLE.case(
    "Table_QueryEntityWithPartitionAndRowKey",
    200,
    name="projection",
    share=12,
    elements=("/odata.metadata=<url>&$select=value",),
)
def get_projection(context: CaseContext) -> Request:
    return context.request("GET", insert(context), {"$select": "value"}, _DATA)


@TABLE.case("Table_QueryEntityWithPartitionAndRowKey", 404, "ResourceNotFound")
def get_nothing(context: CaseContext) -> Request:
    return context.request("GET", entity(create(context)), {}, _DATA)


for _operation, _method in (("Table_UpdateEntity", "PUT"), ("Table_MergeEntity", "PATCH")):

    @TABLE.case(_operation, 204)
    def change(context: CaseContext, method: str = _method) -> Request:
        headers = {**_CHANGE, "If-Match": "*"}
        return context.request(method, insert(context), {}, headers, json.dumps(_ENTITY))

    @TABLE.case(_operation, 204, name="upsert")
    def change_or_insert(context: CaseContext, method: str = _method) -> Request:
        return context.request(method, entity(create(context)), {}, _CHANGE, json.dumps(_ENTITY))

    @TABLE.case(_operation, 404, "ResourceNotFound")
    def change_nothing(context: CaseContext, method: str = _method) -> Request:
        headers = {**_CHANGE, "If-Match": "*"}
        return context.request(method, entity(create(context)), {}, headers, json.dumps(_ENTITY))

    @TABLE.case(_operation, 412, "UpdateConditionNotSatisfied")
    def change_other(context: CaseContext, method: str = _method) -> Request:
        headers = {**_CHANGE, "If-Match": _OLD}
        return context.request(method, insert(context), {}, headers, json.dumps(_ENTITY))


@TABLE.case("Table_MergeEntity", 400, "InvalidInput")
def merge_bad_value(context: CaseContext) -> Request:
    body = {**_ENTITY, "value": "7 days", "value@odata.type": "Edm.Boolean"}
    return context.request("PATCH", insert(context), {}, _CHANGE, json.dumps(body))


@TABLE.case("Table_DeleteEntity", 204)
def delete(context: CaseContext) -> Request:
    return context.request("DELETE", insert(context), {}, {**_DATA, "If-Match": "*"})


@TABLE.case("Table_DeleteEntity", 404, "ResourceNotFound")
def delete_nothing(context: CaseContext) -> Request:
    return context.request("DELETE", entity(create(context)), {}, {**_DATA, "If-Match": "*"})


@TABLE.case("Table_DeleteEntity", 412, "UpdateConditionNotSatisfied")
def delete_other(context: CaseContext) -> Request:
    return context.request("DELETE", insert(context), {}, {**_DATA, "If-Match": _OLD})


# Access policies and service properties: always XML

_ACL: Final = {"comp": "acl"}


@TABLE.case("Table_GetAccessPolicy", 200)
def get_no_policy(context: CaseContext) -> Request:
    return context.request("GET", create(context), _ACL, _XML)


@TABLE.case("Table_GetAccessPolicy", 200, name="policy", share=15)
def get_policy(context: CaseContext) -> Request:
    context.do("PUT", create(context), _ACL, _WRITE_XML, POLICY)
    return context.request("GET", context.name, _ACL, _XML)


@TABLE.case(
    "Table_GetAccessPolicy",
    200,
    name="bare policy",
    share=4,
    elements=("!SignedIdentifiers/SignedIdentifier/AccessPolicy",),
)
def get_bare_policy(context: CaseContext) -> Request:
    context.do("PUT", create(context), _ACL, _WRITE_XML, BARE_POLICY)
    return context.request("GET", context.name, _ACL, _XML)


@TABLE.case("Table_GetAccessPolicy", 404, "ResourceNotFound")
def get_policy_of_nothing(context: CaseContext) -> Request:
    return context.request("GET", context.name, _ACL, _XML)


@TABLE.case("Table_SetAccessPolicy", 204)
def set_policy(context: CaseContext) -> Request:
    return context.request("PUT", create(context), _ACL, _WRITE_XML, POLICY)


@TABLE.case("Table_SetAccessPolicy", 204, name="without a body", share=15)
def clear_policies(context: CaseContext) -> Request:
    return context.request("PUT", create(context), _ACL, _WRITE_XML)


@TABLE.case("Table_SetAccessPolicy", 400, "InvalidXmlDocument")
def set_too_many_policies(context: CaseContext) -> Request:
    rows = "".join(f"<SignedIdentifier><Id>id{n}</Id></SignedIdentifier>" for n in range(6))
    body = f"<SignedIdentifiers>{rows}</SignedIdentifiers>"
    return context.request("PUT", create(context), _ACL, _WRITE_XML, body)


@TABLE.case("Table_SetAccessPolicy", 404, "ResourceNotFound")
def set_policy_of_nothing(context: CaseContext) -> Request:
    return context.request("PUT", context.name, _ACL, _WRITE_XML, POLICY)


@TABLE.case("Table_SetAccessPolicy", 415, "MediaTypeNotSupported", versions=("2019-07-07",))
def set_policy_accepting_anything(context: CaseContext) -> Request:
    return context.request("PUT", create(context), _ACL, {**_WRITE_XML, "Accept": "*/*"}, POLICY)


@TABLE.case("Service_SetProperties", 400, "InvalidHeaderValue", versions=("12.0.0b1",))
def set_properties_of_no_version(context: CaseContext) -> Request:
    return context.request("PUT", "", _SERVICE, _WRITE_XML, properties("<Cors />"))


@TABLE.case("Service_SetProperties", 400, "InvalidQueryParameterValue")
def set_properties_of_a_table(context: CaseContext) -> Request:
    return context.request("PUT", create(context), _SERVICE, _WRITE_XML, properties("<Cors />"))


@TABLE.case("Service_GetProperties", 400, "InvalidQueryParameterValue")
def get_properties_of_a_table(context: CaseContext) -> Request:
    return context.request("GET", create(context), _SERVICE, _XML)


@TABLE.case("Service_SetProperties", 403, "AuthenticationFailed", signs=False)
def set_properties_with_wrong_key(context: CaseContext) -> Request:
    request = context.request("PUT", "", _SERVICE, _WRITE_XML, properties("<Cors />"))
    return table_shared_key(ACCOUNT, WRONG_KEY)(request)


@TABLE.case("Service_GetProperties", 403, "AuthenticationFailed", signs=False)
def get_properties_with_wrong_key(context: CaseContext) -> Request:
    return table_shared_key(ACCOUNT, WRONG_KEY)(context.request("GET", "", _SERVICE, _XML))


for _code, _status, _version in (
    ("InvalidAuthenticationInfo", 401, "2020-12-06"),
    ("AuthenticationFailed", 403, "2019-07-07"),
):

    @TABLE.case("Service_GetStatistics", _status, _code, signs=False, versions=(_version,))
    def statistics_by_bearer(context: CaseContext) -> Request:
        headers = {**_XML, "Authorization": "Bearer nothing"}
        return secondary(
            context.request("GET", "", {"restype": "service", "comp": "stats"}, headers)
        )


# Batches


def _part(context: CaseContext, method: str, path: str, body: Any = None, **headers: str) -> bytes:
    target = f"{context.endpoint}/{ACCOUNT}/{quote(path, safe='/(),=')}"
    accept = "application/json" if method in {"PUT", "PATCH"} else _MINIMAL
    sent = {"x_ms_version": context.version, "DataServiceVersion": "3.0", "Accept": accept}
    return part(method, target, body, **sent, **headers)


def batch(context: CaseContext, *parts: bytes) -> Request:
    headers = {
        "Content-Type": BATCH_TYPE,
        "Accept": "application/json",
        "DataServiceVersion": "3.0",
        "MaxDataServiceVersion": "3.0;NetFx",
    }
    return context.request("POST", "$batch", {}, headers, change_set(parts))


def _insertion(context: CaseContext, row: str = "r", prefer: str = "return-no-content") -> bytes:
    preference = {"Prefer": prefer} if prefer else {}
    return _part(context, "POST", context.name, {**_ENTITY, "RowKey": row}, **preference)


@TABLE.case("Table_Batch", 202)
def batch_of_insertions(context: CaseContext) -> Request:
    create(context)
    return batch(context, _insertion(context), _insertion(context, "s"))


@TABLE.case("Table_Batch", 202, name="refused", share=40)
def batch_refused(context: CaseContext) -> Request:
    insert(context)
    return batch(context, _insertion(context))


@TABLE.case("Table_Batch > Table_InsertEntity", 201)
def insert_with_content_in_batch(context: CaseContext) -> Request:
    context.do("POST", "Tables", {}, _WRITE, json.dumps({"TableName": context.name}))
    body = {"PartitionKey": "1", "RowKey": "r"}
    return batch(context, _part(context, "POST", context.name, body))


@TABLE.case("Table_Batch > Table_InsertEntity", 204)
def insert_in_batch(context: CaseContext) -> Request:
    create(context)
    return batch(context, _insertion(context))


@TABLE.case("Table_Batch > Table_InsertEntity", 400, "InvalidInput")
def insert_too_many_in_batch(context: CaseContext) -> Request:
    create(context)
    return batch(context, *(_insertion(context, str(row)) for row in range(101)))


@TABLE.case("Table_Batch > Table_InsertEntity", 404, "TableNotFound")
def insert_into_nothing_in_batch(context: CaseContext) -> Request:
    return batch(context, _insertion(context, prefer=""))


@TABLE.case("Table_Batch > Table_InsertEntity", 409, "EntityAlreadyExists")
def insert_again_in_batch(context: CaseContext) -> Request:
    insert(context)
    return batch(context, _insertion(context))


for _operation, _method in (("Table_UpdateEntity", "PUT"), ("Table_MergeEntity", "PATCH")):
    _inner = f"Table_Batch > {_operation}"

    @TABLE.case(_inner, 204)
    def change_in_batch(context: CaseContext, method: str = _method) -> Request:
        return batch(context, _part(context, method, insert(context), _ENTITY, If_Match="*"))

    @TABLE.case(_inner, 204, name="upsert")
    def change_or_insert_in_batch(context: CaseContext, method: str = _method) -> Request:
        return batch(context, _part(context, method, entity(create(context)), _ENTITY))

    @TABLE.case(_inner, 400, "InvalidDuplicateRow")
    def change_twice_in_batch(context: CaseContext, method: str = _method) -> Request:
        change = _part(context, method, insert(context), _ENTITY)
        return batch(context, change, change)


@TABLE.case("Table_Batch > Table_MergeEntity", 412, "UpdateConditionNotSatisfied")
def merge_other_in_batch(context: CaseContext) -> Request:
    return batch(context, _part(context, "PATCH", insert(context), _ENTITY, If_Match=_OLD))


@TABLE.case("Table_Batch > Table_DeleteEntity", 204)
def delete_in_batch(context: CaseContext) -> Request:
    return batch(context, _part(context, "DELETE", insert(context), If_Match="*"))


@TABLE.case("Table_Batch > Table_DeleteEntity", 404, "ResourceNotFound")
def delete_nothing_in_batch(context: CaseContext) -> Request:
    return batch(context, _part(context, "DELETE", entity(create(context)), If_Match="*"))


@TABLE.case("Table_Batch > Table_DeleteEntity", 412, "UpdateConditionNotSatisfied")
def delete_other_in_batch(context: CaseContext) -> Request:
    return batch(context, _part(context, "DELETE", insert(context), If_Match=_OLD))
