"""The table of permissions per operation: completeness and effect."""

from __future__ import annotations

import json
from itertools import product
from typing import Any, NamedTuple

import msgspec
import pytest

from etagere.auth import permissions
from etagere.auth.file_permissions import RENAME_DIRECTORY_SOURCE, RENAME_FILE_SOURCE
from etagere.auth.permissions import Permission, Permit, Public, check_absent, check_public
from etagere.auth.principal import (
    Anonymous,
    KeyOwner,
    Principal,
    TokenKind,
    User,
    covers,
)
from etagere.auth.roles import Right
from etagere.auth.sas import ACCOUNT_LETTERS, LETTERS, SERVICE_LETTERS
from etagere.errors import Refusal
from tests.auth.callers import account_token, authorize, code, token
from tests.auth.samples import DATA
from tests.permissions import PERMISSIONS
from tests.probes.service import Operation
from tests.probes.services import SERVICES

OPERATIONS: dict[str, dict[str, list[str]]] = json.loads(
    (DATA / "operations.json").read_text("utf-8")
)
BLOB = sorted(name.partition(".")[2] for name in PERMISSIONS if name.startswith("blob."))
TARGETS = {"s": "", "so": "", "c": "c", "o": "c/b", "sco": "c/b", "co": "c"}


class Scope(NamedTuple):
    """The resource of a token for everything that the requests of the probes are sent to."""

    resource: str
    name: str


SCOPES = {
    "c": Scope("c", "probe"),
    "queue": Scope("", "probe"),
    "table": Scope("", "probe"),
    "s": Scope("s", "probe"),
}
"""By the name of the resource in the rules."""
PROBED = [
    operation
    for service in SERVICES.values()
    for operation in service.operations
    if not operation.name.startswith(("head_of_", "group_of_"))
]


def authorize_probe(
    principal: Principal, operation: Operation[Any], *, version: str = ""
) -> Permit | Refusal:
    """Authorizes the sender of a request of the probes, whose path tells the level."""
    level = getattr(operation, "level", "") or getattr(operation, "path", "")
    of_service = level in {"service", "", "Tables", "Tables('{table}')", "$batch"}
    target = "" if of_service else "probe" if level in {"container", "share"} else "probe/x"
    name = f"{operation.service}.{operation.row}"
    return authorize(principal, name, target, version=version)


def is_permitted(principal: Principal, operation: Operation[Any]) -> bool:
    permit = authorize_probe(principal, operation)
    creates = getattr(operation, "creates", False)
    return isinstance(permit, Permit) and (creates or not permit.only_if_absent)


# The table


def test_operations_are_those_of_the_reference() -> None:
    """Compares the counts with the number of operations in each service's public reference."""
    counts = {service: len({i for ids in names.values() for i in ids})
              for service, names in OPERATIONS.items()}  # fmt: skip
    assert counts == {"blob": 77, "queue": 20, "table": 17, "file": 56, "dfs": 20}


@pytest.mark.parametrize("operation", PERMISSIONS)
def test_rows_are_consistent(operation: str) -> None:
    need = PERMISSIONS[operation]
    assert set(need.resource_types) <= set("sco")
    letters = (need.account_letters or "") + (need.letters_if_absent or "")
    assert set(letters) <= {
        *ACCOUNT_LETTERS,
        "|",
    }
    assert bool(need.resources) is (need.service_letters is not None)
    service = operation.partition(".")[0]
    assert service in SERVICE_LETTERS
    for resource in need.resources:
        assert set(need.service_letters or "") <= {*LETTERS[service, resource], "|"}


# Required permissions: the same as those of the REST reference, for every request of the probes


@pytest.mark.parametrize("operation", PROBED, ids=str)
def test_permissions_of_operations(operation: Operation[Any]) -> None:
    """Tries account tokens, and tokens for the whole container, queue, table or share."""
    service, rule = operation.service, operation.rule
    for kind in SERVICES[service].token_kinds:
        if kind.resource not in {"", *SCOPES}:
            continue
        need = kind.need(operation)
        held = [kind.letters]
        if need is not None:
            held += [*need.minimal(kind.letters), *need.maximal_insufficient(kind.letters)]
        for letters, types in product(held, "sco"):
            if kind.resource:
                scope = SCOPES[kind.resource]
                caller = token(letters, scope.resource, scope.name, service=service)
                allowed = need is not None and need.suffices(letters)
            else:
                caller = account_token(letters, types=types)
                allowed = need is not None and types in need.places and need.suffices(letters)
            assert is_permitted(caller, operation) is allowed, (kind, letters, types)
    for other in {*SERVICE_LETTERS} - {service, "dfs"}:
        wrong = account_token(services=SERVICE_LETTERS[other])
        assert code(authorize_probe(wrong, operation)) == "AuthorizationServiceMismatch"
    outcome = authorize_probe(Anonymous("a"), operation, version="2020-12-06")
    if rule.public:
        assert outcome == Permit(public=Public[rule.public.upper()])
    else:
        assert code(outcome) == "NoAuthenticationInformation"


def test_an_entity_group_needs_no_permission_of_its_own() -> None:
    """Each part needs what it would need alone; anonymous requests are refused before the parts."""
    group = "table.entity_group_transaction"
    for caller in (
        token("r", "", "people", service="table"),
        account_token("r", "t", "o"),
        account_token("", "t", "s"),
        KeyOwner("a"),
    ):
        assert authorize(caller, group, "") == Permit()
    assert code(authorize(account_token("raud", "bqf"), group, "")) == (
        "AuthorizationServiceMismatch"
    )
    assert code(authorize(token("r", "", "people", service="queue"), group, "")) == (
        "AuthorizationServiceMismatch"
    )
    anonymous = authorize(Anonymous("a"), group, "", version="2020-12-06")
    assert code(anonymous) == "NoAuthenticationInformation"


CREATES_FILE = {"create_file", "copy_file", "rename_file", "rename_directory"}


@pytest.mark.parametrize(
    "name", [name.partition(".")[2] for name in PERMISSIONS if name.startswith("file.")]
)
def test_only_if_absent_of_files(name: str) -> None:
    """`c` alone does not suffice to replace a file."""
    for caller in (account_token("c"), token("c", "s", "s", service="file")):
        outcome = authorize(caller, f"file.{name}", "s/d/f")
        if isinstance(outcome, Permit):
            assert outcome.only_if_absent is (name in CREATES_FILE)


@pytest.mark.parametrize(
    ("needed", "resource", "scope", "letters", "target", "expected"),
    [
        (RENAME_FILE_SOURCE, "s", "s", "rw", "s/f", ""),
        (RENAME_FILE_SOURCE, "f", "s/f", "rw", "s/f", ""),
        (RENAME_FILE_SOURCE, "f", "s/f", "wd", "s/f", "AuthorizationPermissionMismatch"),
        (RENAME_FILE_SOURCE, "f", "s/f", "rd", "s/f", "AuthorizationPermissionMismatch"),
        (RENAME_FILE_SOURCE, "f", "s/f", "rw", "s/g", "AuthorizationFailure"),
        (RENAME_DIRECTORY_SOURCE, "s", "s", "rw", "s/d", ""),
        (RENAME_DIRECTORY_SOURCE, "f", "s/d", "rcwd", "s/d", "AuthorizationFailure"),
        (RENAME_DIRECTORY_SOURCE, "s", "s", "cwdl", "s/d", "AuthorizationPermissionMismatch"),
    ],
)
def test_sources_of_renames(
    needed: Permission, resource: str, scope: str, letters: str, target: str, expected: str
) -> None:
    holder = token(letters, resource, scope, service="file")
    assert code(permissions.authorize(holder, "file", needed, target)) == expected


@pytest.mark.parametrize("name", PERMISSIONS)
def test_a_shared_key_allows_everything_but_user_delegation_keys(name: str) -> None:
    outcome = authorize(KeyOwner("a"), name, "c/b")
    if name.endswith(".get_user_delegation_key"):
        assert code(outcome) == "AuthenticationFailed"
    else:
        assert outcome == Permit()


@pytest.mark.parametrize("service", ["blob", "queue", "file"])
def test_only_users_get_user_delegation_keys(service: str) -> None:
    operation = f"{service}.get_user_delegation_key"
    others: list[Principal] = [
        account_token(),
        token(LETTERS["blob", "c"]),
        token(LETTERS["blob", "c"], kind=TokenKind.DELEGATION),
        Anonymous("a"),
    ]
    for holder in others:
        assert isinstance(authorize(holder, operation, ""), Refusal)
    for rights, is_allowed in ((Right.DELEGATE, True), (~Right.DELEGATE, False)):
        user = User(account="a", object_id="o", tenant_id="t", rights={service: rights})
        assert isinstance(authorize(user, operation, ""), Permit) is is_allowed


@pytest.mark.parametrize("name", PERMISSIONS)
def test_delegated_tokens_have_the_rights_of_their_user(name: str) -> None:
    """Whatever letters it has, a token allows an operation only if its user may execute it."""
    service = name.partition(".")[0]
    permission = PERMISSIONS[name]
    if service == "table" or permission.service_letters is None:
        return
    resource = min(permission.resources)
    letters = LETTERS[service, resource]
    holder = token(letters, resource, "c", service=service, kind=TokenKind.DELEGATION)
    target = "c"
    assert isinstance(authorize(holder, name, target), Permit)
    required = permission.right
    for right in Right:
        for rights in (right, ~right):
            outcome = authorize(msgspec.structs.replace(holder, rights=rights), name, target)
            assert isinstance(outcome, Permit) is (required in rights)


@pytest.mark.parametrize("name", BLOB)
def test_a_token_without_permissions_allows_nothing_on_a_blob(name: str) -> None:
    free = {"blob_batch", "get_account_information", "blob_batch_in_container"}
    outcome = authorize(account_token(""), f"blob.{name}", "c/b")
    assert isinstance(outcome, Permit) is (name in free)


# Create, but do not overwrite


@pytest.mark.parametrize(
    ("permissions", "only_if_absent"), [("c", True), ("w", False), ("cw", False), ("rc", True)]
)
@pytest.mark.parametrize("name", ["put_blob", "put_blob_from_url", "copy_blob"])
def test_create_without_write(name: str, permissions: str, only_if_absent: bool) -> None:
    for caller in (account_token(permissions), token(permissions)):
        permit = authorize(caller, f"blob.{name}", "c/b")
        assert permit == Permit(only_if_absent=only_if_absent)
        assert check_absent(permit, exists=False) is None
        expected = "UnauthorizedBlobOverwrite" if only_if_absent else ""
        assert code(check_absent(permit, exists=True)) == expected


def test_additional_permissions_of_a_request() -> None:
    assert authorize(token("w"), "blob.put_blob", "c/b") == Permit()
    assert code(authorize(token("w"), "blob.put_blob", "c/b", also="t")) == (
        "AuthorizationPermissionMismatch"
    )
    assert authorize(token("wt"), "blob.put_blob", "c/b", also="t") == Permit()
    assert authorize(token("ct"), "blob.put_blob", "c/b", also="t") == Permit(only_if_absent=True)
    assert authorize(KeyOwner("a"), "blob.put_blob", "c/b", also="t") == Permit()


# The scope of a token


@pytest.mark.parametrize(
    ("resource", "scope", "operation", "target", "expected"),
    [
        ("c", "c", "get_blob", "c/b", ""),
        ("c", "c", "get_blob", "cc/b", "AuthorizationFailure"),
        ("c", "c", "get_blob", "$root/c", "AuthorizationFailure"),
        ("b", "c/b", "get_blob", "c/b", ""),
        ("b", "c/b", "get_blob", "c/b/x", "AuthorizationFailure"),
        ("b", "c/b", "list_blobs", "c", "AuthorizationFailure"),
        ("b", "$root/c", "list_blobs", "c", "AuthorizationFailure"),
        ("d", "c/d", "get_blob", "c/d/x", ""),
        ("d", "c/d", "get_blob", "c/dx", "AuthorizationFailure"),
        ("d", "c/d", "put_blob", "c/d/x", ""),
        ("d", "c/d", "list_blobs", "c", ""),
        ("d", "c/d", "list_blobs", "other", "AuthorizationFailure"),
        ("d", "c/d", "find_blobs_by_tags_in_container", "c", "AuthorizationFailure"),
        # A token for a snapshot or version must not touch the blob itself.
        ("bs", "c/b", "get_blob", "c/b", ""),
        ("bs", "c/b", "delete_blob", "c/b", ""),
        ("bs", "c/b", "put_blob", "c/b", "AuthorizationFailure"),
        ("bs", "c/b", "set_blob_metadata", "c/b", "AuthorizationFailure"),
        ("bv", "c/b", "delete_blob", "c/b", "AuthorizationFailure"),
        ("bv", "c/b", "get_blob", "c/b", ""),
        ("bv", "c/b", "acquire_blob_lease", "c/b", "AuthorizationFailure"),
        ("bv", "c/b", "snapshot_blob", "c/b", "AuthorizationFailure"),
        ("c", "c", "blob_batch_in_container", "c", ""),
        ("c", "c", "blob_batch", "", "AuthorizationFailure"),
        ("b", "c/b", "get_account_information", "c/b", ""),
        ("b", "c/b", "get_account_information", "", "AuthorizationFailure"),
    ],
)
def test_scope(resource: str, scope: str, operation: str, target: str, expected: str) -> None:
    holder = token(LETTERS["blob", resource], resource, scope)
    assert code(authorize(holder, f"blob.{operation}", target)) == expected


def test_tokens_of_other_services() -> None:
    for service, resource in (("queue", ""), ("table", ""), ("file", "s")):
        holder = token("r", resource, "c", service=service)
        assert code(authorize(holder, "blob.get_blob", "c/b")) == "AuthorizationServiceMismatch"
    assert authorize(token("r", service="dfs"), "blob.get_blob", "c/b") == Permit()


@pytest.mark.parametrize(
    ("service", "resource", "scope", "target", "expected"),
    [
        ("queue", "", "q", "q", True),
        ("queue", "", "q", "q/messages", True),
        ("queue", "", "q", "qq", False),
        ("table", "", "t", "T", True),
        ("file", "s", "s", "s/d/f", True),
        ("file", "f", "s/f", "s/f", True),
        ("file", "f", "s/f", "s", False),
        ("file", "f", "s/f", "s/f/g", False),
        ("file", "f", "s/f", "s/F", False),
        ("file", "f", "s/f.", "s/f", False),
        ("file", "s", "s", "s2/f", False),
        ("file", "s", "s", "s", True),
    ],
)
def test_covers(service: str, resource: str, scope: str, target: str, expected: bool) -> None:
    assert covers(token("r", resource, scope, service=service), target) is expected


# Anonymous access


@pytest.mark.parametrize(
    ("operation", "allowed", "version", "expected"),
    [
        ("get_blob", Public.BLOB, "", ""),
        ("get_blob", Public.CONTAINER, "", ""),
        ("get_blob", Public.NOTHING, "", "ResourceNotFound"),
        ("get_blob", Public.NOTHING, "2019-07-07", "ResourceNotFound"),
        ("get_blob", Public.NOTHING, "2019-12-12", "NoAuthenticationInformation"),
        ("list_blobs", Public.BLOB, "2026-10-06", "NoAuthenticationInformation"),
        ("list_blobs", Public.CONTAINER, "2026-10-06", ""),
    ],
)
def test_public_containers(operation: str, allowed: Public, version: str, expected: str) -> None:
    permit = authorize(Anonymous("a"), f"blob.{operation}", "c/b", version=version)
    assert isinstance(permit, Permit)
    assert code(check_public(permit, allowed, version=version)) == expected
    refusal = check_public(permit, allowed, account_allows=False, version=version)
    assert code(refusal) == "PublicAccessNotPermitted"


def test_anonymous_writes_are_refused() -> None:
    assert code(authorize(Anonymous("a"), "blob.put_blob", "c/b")) == "ResourceNotFound"
    assert code(authorize(Anonymous("a"), "blob.put_blob", "c/b", version="2020-10-02")) == (
        "NoAuthenticationInformation"
    )


def test_an_authenticated_caller_needs_no_public_container() -> None:
    permit = authorize(KeyOwner("a"), "blob.get_blob", "c/b")
    assert isinstance(permit, Permit)
    assert check_public(permit, Public.NOTHING, account_allows=False) is None
