"""Every request of the protocol is routed to its operation, or is known to be missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from etagere.protocol.file.decode import target
from etagere.protocol.file.operations import OPERATIONS as ROWS
from etagere.protocol.file.operations import FileOperation, find_operation
from etagere.protocol.http.messages import Request, RequestBody
from etagere.protocol.rest.exchange import Exchange
from tests.protocol.flows import CompleteBodyFlow

DATA: Final = Path(__file__).parents[2] / "data"
REQUESTS: Final[list[dict[str, str]]] = json.loads((DATA / "file_requests.json").read_text("utf-8"))
OPERATIONS: Final[dict[str, list[str]]] = json.loads((DATA / "operations.json").read_text("utf-8"))[
    "file"
]

MISSING: Final = set[str]()
"""Requests without a route."""
SOURCE: Final = {"x-ms-copy-source": "http://127.0.0.1/account/box/other"}
FROM_SOURCE: Final = {"File_StartCopy": SOURCE, "File_UploadRangeFromUrl": SOURCE}
"""Requests that are distinguished by their headers."""
PATHS: Final = {"service": "/", "share": "/box", "path": "/box/folder/file"}


def exchange(
    method: str, path: str, query: str = "", headers: dict[str, str] | None = None
) -> Exchange:
    fields = {name.encode(): value.encode() for name, value in (headers or {}).items()}
    body = RequestBody(CompleteBodyFlow(), 0)
    address = f"/account{path}?{query}".encode()
    return Exchange("file", Request(method, address, [], fields, body))


def route(
    method: str, level: str, query: str = "", headers: dict[str, str] | None = None
) -> FileOperation | None:
    return find_operation(exchange(method, PATHS[level], query, headers))


def query_of(request: dict[str, str]) -> str:
    return "&".join(f"{name}={request[name]}" for name in ("restype", "comp") if request[name])


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request["id"])
def test_requests_are_routed_to_their_operations(request_: dict[str, str]) -> None:
    headers = FROM_SOURCE.get(request_["id"])
    operation = route(request_["method"], request_["level"], query_of(request_), headers)
    if request_["id"] in MISSING:
        assert operation is None
        return
    assert operation is not None
    names = {name for name, ids in OPERATIONS.items() if request_["id"] in ids}
    assert names & set(operation.permissions)


@pytest.mark.parametrize(
    "request_",
    [each for each in REQUESTS if each["id"].startswith("Directory_")],
    ids=lambda request: request["id"],
)
def test_the_root_directory_has_the_address_of_its_share(request_: dict[str, str]) -> None:
    at_root, below = (
        route(request_["method"], level, query_of(request_)) for level in ("share", "path")
    )
    assert at_root is below


@pytest.mark.parametrize("query", ["restype=DIRECTORY", "RESTYPE=directory", "restype=Directory"])
def test_names_and_values_have_no_case(query: str) -> None:
    operation = route("PUT", "path", query)
    assert operation is not None
    assert operation.name == "create_directory"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_repeated_restype_or_comp_leads_nowhere(row: FileOperation) -> None:
    """The values of a repeated parameter are joined, so that no part of the server can choose
    another one of them than the others."""
    first = row.routes[0]
    for name, value in (("restype", first.restype), ("comp", first.comp)):
        if value:
            query = f"restype={first.restype}&comp={first.comp}&{name}={value}"
            assert route(first.method, first.level.name.lower(), query) is None


@pytest.mark.parametrize(
    ("path", "trailing_dot", "expected"),
    [
        ("/", "", ""),
        ("/box", "", "box"),
        ("/box/", "", "box"),
        ("/box/folder/file", "", "box/folder/file"),
        ("/box/folder%2Ffile", "", "box/folder/file"),
        ("/box/folder/", "", "box/folder"),
        ("/box/Folder/File", "", "box/Folder/File"),
        ("/box/file.", "", "box/file"),
        ("/box/file.", "false", "box/file"),
        ("/box/file.", "true", "box/file."),
        ("/box/file.", "TRUE", "box/file."),
        ("/box/folder.../file", "", "box/folder/file"),
        ("/box/../other/file", "", "box/../other/file"),
        ("/box//file", "", "box//file"),
        ("/box%2Ffile", "", "box/file"),
    ],
)
def test_the_target_is_what_the_operation_looks_up(
    path: str, trailing_dot: str, expected: str
) -> None:
    headers = {"x-ms-allow-trailing-dot": trailing_dot} if trailing_dot else None
    assert target(exchange("GET", path, headers=headers)) == expected
