"""Users may do in every service what the REST reference lets their role do, with a bearer token or
by delegation: a user delegation SAS grants what both its letters and the rights of the user allow.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Final

import pytest

from tests.authorization import ROLES, RULES
from tests.probes.answers import (
    AUTHENTICATION_FAILED,
    NO_AUTHENTICATION,
    PERMISSION_MISMATCH,
    Code,
    refusal_fault,
)
from tests.probes.blob.operations import BlobTarget
from tests.probes.callers import (
    OUT_OF_SCOPE,
    TIMESTAMP,
    Case,
    deciding_letters,
    every_letter,
    find_faults,
    letters_refused,
    request_for,
    service_kinds,
)
from tests.probes.client import Client, Request
from tests.probes.delegation_tokens import (
    SERVICES,
    UserDelegationKey,
    delegation_token,
    get_key,
    key_request,
)
from tests.probes.file.operations import FileOperation, FileTarget
from tests.probes.service import Operation, ServiceFixture
from tests.probes.services import OPERATIONS, each_operation
from tests.probes.token_kinds import SERVICE_LETTERS, TokenKind
from tests.probes.tokens import account_token
from tests.server import ACCOUNT, KEY, SECOND_ACCOUNT, SECOND_KEYS, Server, served
from tests.tokens import unsigned

NOBODY: Final = "nobody"
"""A group of users with a role in another account only."""
RESTRICTED: Final = (409, "FileOAuthManagementApiRestrictedToSrp")
NOT_FOUND: Final = (404, "ResourceNotFound")
"""The answer to users of operations that need the account key."""


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
        assert server.stop() == 0
        assert "Traceback" not in server.log()


@cache
def _bearer_token(group: str) -> str:
    """Returns a token of the user in a group."""
    user = str(uuid.uuid5(uuid.NAMESPACE_URL, group))
    return unsigned(oid=user, groups=[group])


# Bearer tokens


def _case(operation: Operation[Any], role: str) -> Case:
    def request(target: Any) -> Request:
        token = ("Authorization", f"Bearer {_bearer_token(role)}")
        sent = operation.request(target).framed().having(token)
        if operation.service == "file":
            sent = sent.having(("x-ms-file-request-intent", "backup"))
        return sent

    if not operation.rule.actions:
        return Case(role, request, (NOT_FOUND,))
    allowed = role != NOBODY and operation.rule.allows_user(role, operation.service)
    return Case(role, request, () if allowed else (PERMISSION_MISMATCH,))


def _telling_roles(service: str) -> Iterator[str]:
    """Yields the roles in a service, and those that grant everything elsewhere."""
    yield from (role for role in ROLES if service in ROLES[role])
    yield from (f"{other}-owner" for other in RULES if other != service)
    yield NOBODY


@each_operation
def test_roles(fixture: ServiceFixture[Any], operation: Operation[Any]) -> None:
    cases = [_case(operation, role) for role in _telling_roles(operation.service)]
    with fixture.target_for(operation) as target:
        assert not list(find_faults(fixture, operation, target, cases))


@pytest.mark.parametrize("service", ["file"])
def test_users_do_not_manage_shares_in_early_versions(
    fixture: ServiceFixture[Any], service: str
) -> None:
    target = FileTarget("early", permission_key="1*1")
    for operation in OPERATIONS:
        if not isinstance(operation, FileOperation) or operation.level not in {"service", "share"}:
            continue
        case = _case(operation, f"{service}-owner")
        request = case.request(target).setting("x-ms-version", "2024-08-04")
        answer = fixture.client.ask(request)
        # The permissions of a share are those of files.
        if ("comp", "filepermission") not in operation.query:
            assert not refusal_fault(answer, RESTRICTED), operation
            assert operation.method == "HEAD" or b"does not support bearer tokens" in answer.body
        else:
            assert answer.code in {"ShareNotFound", "FileInvalidPermissionKey"}


# User delegation


def _may_delegate(role: str, service: str) -> bool:
    actions = ROLES[role].get(service, frozenset())
    return not actions.isdisjoint({"generateUserDelegationKey", "*"})


@pytest.mark.parametrize("service", SERVICES)
def test_user_delegation_keys(fixture: ServiceFixture[Any], service: str) -> None:
    for role in ROLES:
        answer = fixture.client.ask(key_request(_bearer_token(role)))
        expected = (200, "") if _may_delegate(role, service) else PERMISSION_MISMATCH
        assert (answer.status, answer.code) == expected, role


@pytest.mark.parametrize("service", SERVICES)
def test_only_users_get_user_delegation_keys(fixture: ServiceFixture[Any], service: str) -> None:
    unsigned_request = key_request("").lacking("Authorization")
    token = account_token(ACCOUNT, KEY, services=SERVICE_LETTERS[service])
    for request, expected in (
        (fixture.sign_as_owner(unsigned_request), AUTHENTICATION_FAILED),
        (token.put_on(unsigned_request), PERMISSION_MISMATCH),
        (unsigned_request, NO_AUTHENTICATION),
    ):
        assert not refusal_fault(fixture.client.ask(request), expected)


@pytest.fixture(scope="module")
def delegation_keys(probed_server: Server) -> dict[tuple[str, str], UserDelegationKey]:
    """The keys of the users with each role, by service and role."""
    keys = {}
    for service in SERVICES:
        with Client(probed_server.endpoints[service]) as client:
            for role in ROLES:
                if _may_delegate(role, service):
                    keys[service, role] = get_key(client, _bearer_token(role))
    return keys


def _resource(kind: TokenKind, operation: Operation[Any], target: Any) -> str:
    """Returns the path of the resource that a token of this kind is for."""
    creates = getattr(operation, "creates", False)
    if isinstance(target, BlobTarget):
        blob = target.free_blob if creates else target.blob
        below = {"c": "", "d": f"/{target.blob.partition('/')[0]}"}.get(kind.resource, f"/{blob}")
        return f"{target.container}{below}"
    if isinstance(target, FileTarget) and isinstance(operation, FileOperation):
        below = operation.path(target) or target.file
        return target.share if kind.resource == "s" else f"{target.share}/{below}"
    name: str = target.queue
    return name


_NO_RESOURCE: Final = {"queue"}
"""Kinds of tokens without the parameter `sr`."""


def _delegated(
    operation: Operation[Any], kind: TokenKind, role: str, key: UserDelegationKey, letters: str
) -> Case:
    need = kind.need(operation)
    refusals: tuple[Code, ...] = ()
    if need is None:
        refusals = (*OUT_OF_SCOPE, PERMISSION_MISMATCH)
    elif not need.suffices(letters):
        refusals = letters_refused(operation, letters)
    elif not operation.rule.allows_user(role, operation.service):
        refusals = (PERMISSION_MISMATCH,)

    def request(target: Any) -> Request:
        options = {"sp": letters}
        if kind.resource not in _NO_RESOURCE:
            options["sr"] = kind.resource
        if kind.resource == "d":
            options["sdd"] = "1"
        snapshot = TIMESTAMP if kind.resource in {"bs", "bv"} else ""
        path = _resource(kind, operation, target)
        token = delegation_token(key, operation.service, path, snapshot=snapshot, **options)
        return token.put_on(request_for(kind, operation, target))

    return Case(f"{kind} {letters} of {role}", request, refusals)


Keys = dict[tuple[str, str], UserDelegationKey]


def _delegation_cases(operation: Operation[Any], keys: Keys, *, all_pairs: bool) -> Iterator[Case]:
    owner = f"{operation.service}-owner"
    for kind in service_kinds(operation):
        need = kind.need(operation)
        for (service, role), key in keys.items():
            if service != operation.service:
                continue
            letters: Iterable[str] = (kind.letters,)
            if need is not None and (role == owner or all_pairs):
                letters = (every_letter if all_pairs else deciding_letters)(need, kind)
            elif role != owner and not (all_pairs or kind.has_policies):
                # The kinds of resources are tried with the rights of the owner.
                continue
            for held in letters:
                yield _delegated(operation, kind, role, key, held)


each_delegable_operation: Final = pytest.mark.parametrize(
    "operation",
    [
        pytest.param(each, id=str(each), marks=each.marks)
        for each in OPERATIONS
        if each.service in SERVICES
    ],
)


@each_delegable_operation
def test_user_delegation(
    fixture: ServiceFixture[Any], delegation_keys: Keys, operation: Operation[Any]
) -> None:
    cases = _delegation_cases(operation, delegation_keys, all_pairs=False)
    with fixture.target_for(operation) as target:
        assert not list(find_faults(fixture, operation, target, cases))


@pytest.mark.long
@each_delegable_operation
def test_every_letter_and_role_in_user_delegation(
    fixture: ServiceFixture[Any], delegation_keys: Keys, operation: Operation[Any]
) -> None:
    cases = _delegation_cases(operation, delegation_keys, all_pairs=True)
    with fixture.target_for(operation) as target:
        assert not list(find_faults(fixture, operation, target, cases))
