"""Users with bearer tokens may do in every service what the REST reference lets their role do."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.authorization import ROLES
from tests.probes.answers import PERMISSION_MISMATCH
from tests.probes.callers import Case, find_faults
from tests.probes.client import Request
from tests.probes.service import Operation, ServiceFixture
from tests.probes.services import each_operation
from tests.server import SECOND_ACCOUNT, SECOND_KEYS, Server, served

NOBODY: Final = "nobody"
"""A user with a role in another account only."""
USER: Final = "6f9619ff-8b86-d011-b42d-00cf4fc964ff"


@pytest.fixture(scope="module")
def probed_server(tmp_path_factory: pytest.TempPathFactory, endless: str) -> Iterator[Server]:
    """A server that accepts unsigned tokens, with a group of users for each role."""
    directory = tmp_path_factory.mktemp("probed") / "data"
    account = ":".join((SECOND_ACCOUNT, *SECOND_KEYS))
    flags = ["--account", account, "--copy-source", endless, "--oauth", "development"]
    for role in ROLES:
        flags += ["--oauth-role", f"{role}={role}"]
    flags += ["--oauth-role", f"{NOBODY}=owner@{SECOND_ACCOUNT}"]
    with served(directory, *flags) as server:
        yield server
        assert "Traceback" not in server.log()
        assert server.stop() == 0


def bearer_token(*groups: str) -> str:
    """Returns an unsigned token of a user in these groups."""
    claims = {"oid": USER, "tid": USER, "groups": groups, "exp": int(time.time()) + 3600}
    parts = ({"alg": "none", "typ": "JWT"}, claims)
    encoded = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts)
    return b".".join((*encoded, b"")).decode()


def _case(operation: Operation[Any], role: str) -> Case:
    token = bearer_token(role)

    def request(target: Any) -> Request:
        sent = operation.request(target).framed().having(("Authorization", f"Bearer {token}"))
        if operation.service == "file":
            sent = sent.having(("x-ms-file-request-intent", "backup"))
        return sent

    allowed = role != NOBODY and operation.rule.allows_user(role, operation.service)
    return Case(role, request, () if allowed else (PERMISSION_MISMATCH,))


@each_operation
def test_roles(fixture: ServiceFixture[Any], operation: Operation[Any]) -> None:
    cases = [_case(operation, role) for role in (*ROLES, NOBODY)]
    with fixture.target_for(operation) as target:
        assert not list(find_faults(fixture, operation, target, cases))
