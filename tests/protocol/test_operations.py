"""The tables of operations are complete and agree with the catalogue."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

import pytest

from etagere.protocol.blob import operations as blob
from etagere.protocol.file import operations as file
from etagere.protocol.queue import operations as queue
from etagere.protocol.rest.operations import Operation, Route, index_routes
from etagere.protocol.table import operations as table
from tests.server import ROOT

CATALOGUE: Final[dict[str, dict[str, list[str]]]] = json.loads(
    (ROOT / "tests/data/operations.json").read_text("utf-8")
)
TABLES: Final[Mapping[str, Sequence[Operation]]] = {
    "blob": blob.OPERATIONS,
    "queue": queue.OPERATIONS,
    "table": table.OPERATIONS,
    "file": file.OPERATIONS,
}
NOT_SERVED: Final = {
    "blob": {
        "delete_blob_immutability_policy",
        "delete_blob_permanently",
        "delete_blob_version",
        "query_blob_contents",
        "rename_container",
        "restore_container",
        "set_blob_expiry",
        "set_blob_immutability_policy",
        "set_blob_legal_hold",
        "undelete_blob",
    },
    "queue": set[str](),
    "table": set[str](),
    "file": set[str](),
}
"""Operations of the catalogue without a row."""
PREFLIGHT: Final = {service: {f"preflight_{service}_request"} for service in TABLES}
"""Answered for every address, before the operation is looked up."""

each_service = pytest.mark.parametrize("service", TABLES)


def served(service: str) -> list[str]:
    return [name for operation in TABLES[service] for name in operation.permissions]


@each_service
def test_every_operation_of_the_catalogue_has_a_row_or_is_known_to_be_missing(service: str) -> None:
    rows = served(service)
    assert len(rows) == len(set(rows))
    assert set(rows) | NOT_SERVED[service] | PREFLIGHT[service] == set(CATALOGUE[service])
    assert not set(rows) & NOT_SERVED[service]


@each_service
def test_every_row_has_a_route_and_a_handler_of_its_name(service: str) -> None:
    for operation in TABLES[service]:
        assert operation.routes
        assert callable(operation.handler)
        named = getattr(operation.handler, "__name__", operation.name)
        shared = operation.name.replace(f"_{service}_service_", "_service_")
        assert named in {operation.name, shared, "<lambda>"}


def test_a_route_leads_to_one_operation() -> None:
    doubled = (*queue.OPERATIONS, queue.OPERATIONS[0])
    with pytest.raises(ValueError, match="two operations have the route"):
        index_routes(doubled)


def test_a_variant_without_a_row_leads_to_the_row_without_a_variant() -> None:
    index = index_routes(blob.OPERATIONS, blob.Source)
    for source in blob.Source:
        assert index["GET", blob.BLOB, "", "", source].name == "get_blob"
        assert index["PUT", blob.BLOB, "page", "", source].name == "put_page_from_url"
    assert index[Route("PUT", blob.BLOB)].name == "put_blob"
    assert index[Route("PUT", blob.BLOB, variant=blob.Source.COPY)].name == "copy_blob"
