"""The table service, as live runs and the command line need it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from azure.core import MatchConditions
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import HttpResponseError
from azure.data.tables import TableClient, UpdateMode

from tests.history.events import Refused
from tests.history.service import (
    ANSWER_SECONDS_MAX,
    RESOURCE,
    Clients,
    HistoryService,
    SdkConnection,
    credential,
)
from tests.history.table.checker import Finding, check_history
from tests.history.table.events import (
    ANY,
    CONDITIONAL,
    LOG,
    MERGES,
    PROPERTIES,
    Change,
    Done,
    Entity,
    History,
    Operation,
    Request,
    Verb,
)
from tests.history.table.workloads import PARTITIONS, ROWS, EntityChooser
from tests.history.texts import text_of, token_in

VERSION: Final = "Version"
"""The property with the token of the change that made the version."""


def _entity(partition: str, change: Change) -> dict[str, str]:
    entity = {"PartitionKey": partition, "RowKey": change.row}
    if change.verb is Verb.DELETE:
        return entity
    written = {name: text_of(change.token) for name in PROPERTIES if name in change.properties}
    return {**entity, VERSION: change.token, **written}


def _options(change: Change) -> dict[str, Any]:
    if change.verb in CONDITIONAL and change.if_match != ANY:
        return {"etag": change.if_match, "match_condition": MatchConditions.IfNotModified}
    return {}


def _mode(change: Change) -> UpdateMode:
    return UpdateMode.MERGE if change.verb in MERGES else UpdateMode.REPLACE


def _in_group(partition: str, change: Change) -> Any:
    """The change as an operation of a transaction."""
    entity, options = _entity(partition, change), _options(change)
    if change.verb is Verb.INSERT:
        return ("create", entity)
    if change.verb is Verb.DELETE:
        return ("delete", entity, options)
    kind = "update" if change.verb in CONDITIONAL else "upsert"
    return (kind, entity, {"mode": _mode(change), **options})


def _change(table: TableClient, partition: str, change: Change) -> Done | Refused:
    entity, options = _entity(partition, change), _options(change)
    if change.verb is Verb.DELETE:
        return _delete(table, entity, options)
    response: Any
    if change.verb is Verb.INSERT:
        response = table.create_entity(entity)
    elif change.verb in CONDITIONAL:
        response = table.update_entity(entity, _mode(change), **options)
    else:
        response = table.upsert_entity(entity, _mode(change))
    return Done((response["etag"],))


def _delete(table: TableClient, entity: dict[str, str], options: dict[str, Any]) -> Done | Refused:
    """The SDK does not report that there was no entity."""
    statuses: list[int] = []
    table.delete_entity(
        entity["PartitionKey"],
        entity["RowKey"],
        raw_response_hook=lambda response: statuses.append(response.http_response.status_code),
        **options,
    )
    return Refused("ResourceNotFound") if statuses[-1] == 404 else Done(("",))


def _read(table: TableClient, partition: str, row: str) -> Done:
    found: Any = table.get_entity(partition, row)
    tokens = tuple(token_in(found[name]) if name in found else "" for name in PROPERTIES)
    return Done((found.metadata["etag"],), Entity(found[VERSION], tokens))


def _named_key(url: str) -> AzureNamedKeyCredential:
    found = credential(url)
    return AzureNamedKeyCredential(found["account_name"], found["account_key"])


class TableConnection(SdkConnection):
    """A client of the table service."""

    def connect(self, url: str) -> TableClient:
        return TableClient(
            url,
            RESOURCE,
            credential=_named_key(url),
            retry_total=0,
            connection_timeout=ANSWER_SECONDS_MAX,
            read_timeout=ANSWER_SECONDS_MAX,
        )

    def error_code(self, error: HttpResponseError) -> str:
        """The SDK does not translate every error; then the code is in the body."""
        code: Any = getattr(error, "error_code", None)
        if code is None and error.response is not None:
            code = json.loads(error.response.text())["odata.error"]["code"]
        return str(getattr(code, "value", code))

    def execute(self, client: Any, request: Request) -> Done | Refused:
        if request.verb is Verb.GET:
            return _read(client, request.partition, request.row)
        if request.verb is Verb.GROUP:
            group = [_in_group(request.partition, change) for change in request.changes]
            response = client.submit_transaction(group)
            return Done(tuple(each.get("etag") or "" for each in response))
        (change,) = request.changes
        return _change(client, request.partition, change)


class TableHistoryService(HistoryService[Operation]):
    """Clients that read and change a few entities, alone and in groups; some are killed."""

    name: ClassVar[str] = "table"
    log = LOG
    clients = Clients(permanent=4, replaced=1)

    def create_resource(self, url: str) -> None:
        with TableClient(url, RESOURCE, credential=_named_key(url)) as table:
            table.create_table()

    def connect(self, address: Path) -> TableConnection:
        return TableConnection(address)

    def chooser(self, seed: int, client: int, workloads: Sequence[str]) -> EntityChooser:
        return EntityChooser(seed, client)

    def final_operations(
        self, address: Path, workloads: Sequence[str], operations: Sequence[Operation]
    ) -> list[Operation]:
        connection = self.connect(address)
        found = [
            self.perform(connection, -1, Request(Verb.GET, partition, row))
            for partition in PARTITIONS
            for row in ROWS
        ]
        connection.close()
        return found

    def check(self, history: History) -> list[Finding]:
        return check_history(history)


SERVICE: Final = TableHistoryService()
