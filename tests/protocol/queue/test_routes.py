"""Every documented form of request is routed to its operation, or is known to be missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from etagere.engine.memory import MemoryEngine
from etagere.protocol.access_log import AccessLog
from etagere.protocol.queue.operations import find_operation
from etagere.protocol.queue.service import QueueService
from etagere.protocol.rest.authentication import Authenticator
from etagere.settings import Settings
from tests.protocol.queue.exchanges import exchange
from tests.server import ROOT

REQUESTS: Final[list[dict[str, str]]] = json.loads(
    Path(__file__).with_name("requests.json").read_text("utf-8")
)
OPERATIONS: Final[dict[str, list[str]]] = json.loads(
    (ROOT / "tests/data/operations.json").read_text("utf-8")
)["queue"]

MISSING: Final = set[str]()
"""Operations without a route."""
NO_ROUTE: Final = {"Preflight"}
"""Operations of every URL."""

LEVELS: Final = {
    "service": None,
    "queue": "",
    "messages": "/messages",
    "message": "/messages/5f6a9c52-8b0e-4f4e-9e76-3a7e3f1e2d10",
}


def routed(method: str, level: str, comp: str = "", peekonly: str = "") -> str | None:
    return found(method, LEVELS[level], f"comp={comp}&peekonly={peekonly}")


def found(method: str, below: str | None, query: str = "") -> str | None:
    """Returns the operation of a request; `below` None is the service."""
    operation = find_operation(exchange(query, below=below, method=method))
    return None if operation is None else operation.name


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request["id"])
def test_requests_are_routed_to_their_operations(request_: dict[str, str]) -> None:
    form = dict(request_)
    name = form.pop("id")
    found = routed(**form)
    if name in MISSING:
        assert found is None
    else:
        assert found is not None
        assert name in OPERATIONS[found]


def test_every_operation_is_tested() -> None:
    asked = {request["id"] for request in REQUESTS} | NO_ROUTE
    assert asked == {name for names in OPERATIONS.values() for name in names}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("method", ["PATCH", "TRACE", "COPY", "MERGE", "get", ""])
def test_unsupported_methods(method: str, level: str) -> None:
    assert routed(method, level) is None
    assert routed(method, level, "metadata") is None


@pytest.mark.parametrize("comp", ["metadata", "acl", "list", "lease", "x"])
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
@pytest.mark.parametrize("level", ["messages", "message"])
def test_messages_have_no_components(method: str, level: str, comp: str) -> None:
    assert routed(method, level, comp) is None


def test_messages_are_not_read_by_head() -> None:
    assert routed("HEAD", "messages") is None
    assert routed("HEAD", "messages", peekonly="true") is None


def test_peekonly_needs_get() -> None:
    assert routed("DELETE", "messages", peekonly="true") == "clear_messages"
    assert routed("POST", "messages", peekonly="true") == "put_message"


@pytest.mark.parametrize(
    "below", ["message", "Messages", "messages/", "messages//", "messages/a/b", "x", "/messages"]
)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
def test_unknown_paths(method: str, below: str) -> None:
    assert found(method, f"/{below}") is None


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("", "get_messages"),
        ("peekonly=true", "peek_messages"),
        ("PeekOnly=True", "peek_messages"),
        ("peekonly=false", "get_messages"),
        ("peekonly=", "get_messages"),
        ("peekonly=1", "get_messages"),
        ("peekonly=true&peekonly=true", "get_messages"),
    ],
)
def test_values_of_peekonly(query: str, name: str) -> None:
    engine = MemoryEngine()
    service = QueueService(engine, Authenticator(engine, Settings(), {}), AccessLog())
    routed_to = service.route(exchange(query, below="/messages", method="GET"))
    assert (routed_to.operation.name, routed_to.target) == (name, "tray")


def test_components_ignore_case() -> None:
    assert routed("GET", "service", "LIST") == "list_queues"
    assert routed("GET", "queue", "Metadata") == "get_queue_metadata"
