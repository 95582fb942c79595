"""The table of permissions per operation: completeness and effect."""

from __future__ import annotations

import json

import msgspec
import pytest

from etagere.auth import permissions
from etagere.auth.permissions import (
    RENAME_DIRECTORY_SOURCE,
    RENAME_FILE_SOURCE,
    Permission,
    Permit,
    Public,
    check_absent,
    check_public,
)
from etagere.auth.principal import (
    Anonymous,
    KeyOwner,
    Principal,
    TokenHolder,
    TokenKind,
    User,
    covers,
)
from etagere.auth.roles import ALL_RIGHTS, NO_RIGHT, Right
from etagere.auth.sas import ACCOUNT_LETTERS, LETTERS, SERVICE_LETTERS
from etagere.errors import Refusal
from tests.auth.samples import DATA
from tests.permissions import PERMISSIONS

OPERATIONS: dict[str, dict[str, list[str]]] = json.loads(
    (DATA / "operations.json").read_text("utf-8")
)
BLOB = sorted(name.partition(".")[2] for name in PERMISSIONS if name.startswith("blob."))
TARGETS = {"s": "", "so": "", "c": "c", "o": "c/b", "sco": "c/b", "co": "c"}


def account_token(
    permissions: str = ACCOUNT_LETTERS, services: str = "bqtf", types: str = "sco"
) -> TokenHolder:
    return TokenHolder(
        account="a",
        kind=TokenKind.ACCOUNT,
        version="2020-12-06",
        permissions=permissions,
        services=services,
        resource_types=types,
    )


def token(
    permissions: str,
    resource: str = "c",
    scope: str = "c",
    *,
    service: str = "blob",
    kind: TokenKind = TokenKind.SERVICE,
) -> TokenHolder:
    return TokenHolder(
        account="a",
        kind=kind,
        version="2020-12-06",
        permissions=permissions,
        service=service,
        resource=resource,
        scope=scope,
    )


def authorize(
    principal: Principal, operation: str, target: str, *, also: str = "", version: str = ""
) -> Permit | Refusal:
    service = operation.partition(".")[0]
    return permissions.authorize(
        principal, service, PERMISSIONS[operation], target, extra_letters=also, version=version
    )


def code(outcome: Permit | Refusal | None) -> str:
    return outcome.code if isinstance(outcome, Refusal) else ""


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


# Required permissions: operation, account token, service token, anonymous

EXPECTED = [
    ("get_blob", "o", "r", "r", Public.BLOB),
    ("get_blob_properties", "o", "r", "r", Public.BLOB),
    ("get_blob_metadata", "o", "r", "r", Public.BLOB),
    ("get_block_list", "o", "r", "r", Public.BLOB),
    ("get_page_ranges", "o", "r", "r", Public.BLOB),
    ("get_blob_tags", "o", "t", "t", None),
    ("put_blob", "o", "cw", "cw", None),
    ("copy_blob", "o", "cw", "cw", None),
    ("put_block", "o", "w", "w", None),
    ("put_block_list", "o", "w", "w", None),
    ("append_block", "o", "aw", "aw", None),
    ("snapshot_blob", "o", "cw", "cw", None),
    ("set_blob_metadata", "o", "w", "w", None),
    ("set_blob_tier", "o", "w", "w", None),
    ("acquire_blob_lease", "o", "w", "w", None),
    ("break_blob_lease", "o", "dw", "dw", None),
    ("delete_blob", "o", "d", "d", None),
    ("list_blobs", "c", "l", "l", Public.CONTAINER),
    ("find_blobs_by_tags_in_container", "c", "f", "f", None),
    ("create_container", "c", "cw", "", None),
    ("delete_container", "c", "d", "", None),
    ("get_container_properties", "c", "r", "", Public.CONTAINER),
    ("get_container_metadata", "c", "r", "", Public.CONTAINER),
    ("get_container_acl", "c", "", "", None),
    ("set_container_acl", "c", "", "", None),
    ("break_container_lease", "c", "dw", "", None),
    ("list_containers", "s", "l", "", None),
    ("set_blob_service_properties", "s", "w", "", None),
    ("get_blob_service_stats", "s", "r", "", None),
    ("find_blobs_by_tags", "so", "f", "", None),
]


@pytest.mark.parametrize(("name", "types", "account", "service", "public"), EXPECTED)
def test_permissions_of_blob_operations(
    name: str, types: str, account: str, service: str, public: Public | None
) -> None:
    operation = f"blob.{name}"
    target = TARGETS[types]
    for letter in ACCOUNT_LETTERS:
        outcome = authorize(account_token(letter), operation, target)
        assert isinstance(outcome, Permit) is (letter in account), letter
        if letter not in account:
            assert code(outcome) == "AuthorizationPermissionMismatch"
        for resource_type in "sco":
            outcome = authorize(account_token(letter, types=resource_type), operation, target)
            if resource_type not in types:
                assert code(outcome) == "AuthorizationResourceTypeMismatch"
        outcome = authorize(account_token(letter, services="qtf"), operation, target)
        assert code(outcome) == "AuthorizationServiceMismatch"
    for letter in LETTERS["blob", "c"]:
        for kind in (TokenKind.SERVICE, TokenKind.DELEGATION):
            outcome = authorize(token(letter, kind=kind), operation, target)
            assert isinstance(outcome, Permit) is (letter in service), letter
            if not service:
                assert code(outcome) == "AuthorizationFailure"
            elif letter not in service:
                assert code(outcome) == "AuthorizationPermissionMismatch"
    outcome = authorize(Anonymous("a"), operation, target, version="2020-12-06")
    if public is None:
        assert code(outcome) == "NoAuthenticationInformation"
    else:
        assert outcome == Permit(public=public)


# The same for queues: operation, type, account token, service token

QUEUE = [
    ("list_queues", "s", "l", ""),
    ("get_queue_service_properties", "s", "r", ""),
    ("set_queue_service_properties", "s", "w", ""),
    ("get_queue_service_stats", "s", "r", ""),
    ("create_queue", "c", "cw", ""),
    ("delete_queue", "c", "d", ""),
    ("get_queue_metadata", "c", "r", "r"),
    ("set_queue_metadata", "c", "w", ""),
    ("get_queue_acl", "c", "", ""),
    ("set_queue_acl", "c", "", ""),
    ("put_message", "o", "a", "a"),
    ("get_messages", "o", "p", "p"),
    ("peek_messages", "o", "r", "r"),
    ("update_message", "o", "u", "u"),
    ("delete_message", "o", "p", "p"),
    ("clear_messages", "o", "d", ""),
]


def test_every_queue_operation_is_tested() -> None:
    seldom = {"preflight_queue_request", "get_user_delegation_key"}
    assert {name for name, *_ in QUEUE} == OPERATIONS["queue"].keys() - seldom


@pytest.mark.parametrize(("name", "type_", "account", "service"), QUEUE)
def test_permissions_of_queue_operations(name: str, type_: str, account: str, service: str) -> None:
    operation = f"queue.{name}"
    target = "" if type_ == "s" else "q"
    for letter in ACCOUNT_LETTERS:
        outcome = authorize(account_token(letter), operation, target)
        assert isinstance(outcome, Permit) is (letter in account), letter
        for other in set("sco") - {type_}:
            outcome = authorize(account_token(letter, types=other), operation, target)
            assert code(outcome) == "AuthorizationResourceTypeMismatch"
        outcome = authorize(account_token(letter, services="btf"), operation, target)
        assert code(outcome) == "AuthorizationServiceMismatch"
    for letter in LETTERS["queue", ""]:
        mine = token(letter, "", "q", service="queue")
        assert isinstance(authorize(mine, operation, target), Permit) is (letter in service)
        for other_token in (
            token(letter, "", "other", service="queue"),
            token(letter, "c", "q"),
        ):
            assert isinstance(authorize(other_token, operation, target), Refusal)
    outcome = authorize(Anonymous("a"), operation, target, version="2020-12-06")
    assert code(outcome) == "NoAuthenticationInformation"
    assert authorize(KeyOwner("a"), operation, target) == Permit()


# The same for tables: operation, types, account token, service token

TABLE = [
    ("get_table_service_properties", "s", "r", ""),
    ("set_table_service_properties", "s", "w", ""),
    ("get_table_service_stats", "s", "r", ""),
    ("query_tables", "sc", "l", ""),
    ("create_table", "c", "c|w", ""),
    ("delete_table", "c", "d", ""),
    ("get_table_acl", "c", "", ""),
    ("set_table_acl", "c", "", ""),
    ("query_entities", "o", "r", "r"),
    ("insert_entity", "o", "a", "a"),
    ("update_entity", "o", "u", "u"),
    ("merge_entity", "o", "u", "u"),
    ("insert_or_replace_entity", "o", "au", "au"),
    ("insert_or_merge_entity", "o", "au", "au"),
    ("delete_entity", "o", "d", "d"),
]


def test_every_table_operation_is_tested() -> None:
    seldom = {"preflight_table_request", "entity_group_transaction"}
    assert {name for name, *_ in TABLE} == OPERATIONS["table"].keys() - seldom


def suffices(held: str, letters: str) -> bool:
    return any(choice and set(choice) <= set(held) for choice in letters.split("|"))


@pytest.mark.parametrize(("name", "types", "account", "service"), TABLE)
def test_permissions_of_table_operations(name: str, types: str, account: str, service: str) -> None:
    operation = f"table.{name}"
    target = "" if types in {"s", "sc"} else "People"
    for held in (*ACCOUNT_LETTERS, "au", "cw", "rwdxylcpfti"):
        outcome = authorize(account_token(held), operation, target)
        assert isinstance(outcome, Permit) is suffices(held, account), held
        for other in set("sco") - set(types):
            outcome = authorize(account_token(held, types=other), operation, target)
            assert code(outcome) == "AuthorizationResourceTypeMismatch"
        outcome = authorize(account_token(held, services="bqf"), operation, target)
        assert code(outcome) == "AuthorizationServiceMismatch"
    for held in (*LETTERS["table", ""], "au", "rud", "rad", "raud"):
        mine = token(held, "", "people", service="table")
        assert isinstance(authorize(mine, operation, target), Permit) is suffices(held, service)
        for other_token in (
            token(held, "", "other", service="table"),
            token(held, "", "people", service="queue"),
            token(held, "c", "people"),
        ):
            assert isinstance(authorize(other_token, operation, target), Refusal)
    outcome = authorize(Anonymous("a"), operation, target, version="2020-12-06")
    assert code(outcome) == "NoAuthenticationInformation"
    assert authorize(KeyOwner("a"), operation, target) == Permit()


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


# The same for files: operation, types, letters, and resources that a service token may be for

FILE = [
    ("list_shares", "s", "l", ""),
    ("get_file_service_properties", "s", "r", ""),
    ("set_file_service_properties", "s", "w", ""),
    ("create_share", "c", "c|w", ""),
    ("get_share_properties", "c", "r", ""),
    ("delete_share", "c", "d", ""),
    ("set_share_properties", "c", "w", ""),
    ("get_share_metadata", "c", "r", ""),
    ("set_share_metadata", "c", "w", ""),
    ("get_share_acl", "c", "", ""),
    ("set_share_acl", "c", "", ""),
    ("get_share_stats", "c", "r", ""),
    ("acquire_share_lease", "c", "w", ""),
    ("renew_share_lease", "c", "w", ""),
    ("change_share_lease", "c", "w", ""),
    ("release_share_lease", "c", "w", ""),
    ("break_share_lease", "c", "w", ""),
    ("snapshot_share", "c", "c|w", ""),
    ("restore_share", "c", "w", ""),
    ("create_permission", "c", "wd", "s"),
    ("get_permission", "c", "r", "s"),
    ("list_directories_and_files", "c", "l", "s"),
    ("create_directory", "o", "c|w", "s"),
    ("get_directory_properties", "o", "r", "s"),
    ("delete_directory", "o", "d", "s"),
    ("set_directory_properties", "o", "w", "s"),
    ("get_directory_metadata", "o", "r", "s"),
    ("set_directory_metadata", "o", "w", "s"),
    ("rename_directory", "o", "c|w", "s"),
    ("create_file", "o", "c|w", "sf"),
    ("get_file", "o", "r", "sf"),
    ("get_file_properties", "o", "r", "sf"),
    ("delete_file", "o", "d", "sf"),
    ("set_file_properties", "o", "w", "sf"),
    ("get_file_metadata", "o", "r", "sf"),
    ("set_file_metadata", "o", "w", "sf"),
    ("acquire_file_lease", "o", "w", "sf"),
    ("change_file_lease", "o", "w", "sf"),
    ("release_file_lease", "o", "w", "sf"),
    ("break_file_lease", "o", "w", "sf"),
    ("rename_file", "o", "c|w", "sf"),
    ("put_range", "o", "w", "sf"),
    ("put_range_from_url", "o", "w", "sf"),
    ("list_ranges", "o", "r", "sf"),
    ("copy_file", "o", "c|w", "sf"),
    ("abort_copy_file", "o", "w", "sf"),
    ("create_symbolic_link", "o", "c|w", "sf"),
    ("get_symbolic_link", "o", "r", "sf"),
    ("create_hard_link", "o", "rw", "s"),
    ("list_handles", "co", "l", "s"),
    ("force_close_handles", "co", "w", "s"),
]
CREATES_FILE = {"create_file", "copy_file", "rename_file", "rename_directory"}


def test_every_file_operation_is_tested() -> None:
    seldom = {"preflight_file_request", "get_user_delegation_key"}
    assert {name for name, *_ in FILE} == OPERATIONS["file"].keys() - seldom


@pytest.mark.parametrize(("name", "types", "letters", "resources"), FILE)
def test_permissions_of_file_operations(
    name: str, types: str, letters: str, resources: str
) -> None:
    operation = f"file.{name}"
    target = "" if types == "s" else "s" if types == "c" else "s/d/f"
    for held in (*ACCOUNT_LETTERS, "wd", "rl", "xyaupfti"):
        outcome = authorize(account_token(held), operation, target)
        assert isinstance(outcome, Permit) is suffices(held, letters), held
        for other in set("sco") - set(types):
            outcome = authorize(account_token(held, types=other), operation, target)
            assert code(outcome) == "AuthorizationResourceTypeMismatch"
        outcome = authorize(account_token(held, services="bqt"), operation, target)
        assert code(outcome) == "AuthorizationServiceMismatch"
    for resource, scope in (("s", "s"), ("f", target)):
        for held in (*LETTERS["file", resource], "wd", LETTERS["file", resource]):
            for kind in (TokenKind.SERVICE, TokenKind.DELEGATION):
                mine = token(held, resource, scope, service="file", kind=kind)
                outcome = authorize(mine, operation, target)
                granted = resource in resources and suffices(held, letters)
                assert isinstance(outcome, Permit) is granted, (resource, held)
                if resource not in resources:
                    assert code(outcome) == "AuthorizationFailure"
            for other_scope in ("ss", "s/d/g", "s/d/F", "s/d/f.", "s/d/f/g", "S", "other"):
                other_token = token(held, resource, other_scope, service="file")
                assert isinstance(authorize(other_token, operation, target), Refusal)
    for other_token in (token("rcwdl", "c", "s"), token("r", "", "s", service="queue")):
        assert isinstance(authorize(other_token, operation, target), Refusal)
    outcome = authorize(Anonymous("a"), operation, target, version="2020-12-06")
    assert code(outcome) == "NoAuthenticationInformation"
    assert authorize(KeyOwner("a"), operation, target) == Permit()


@pytest.mark.parametrize("name", [name for name, *_ in FILE])
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


# Users

RIGHTS_OF_OPERATIONS = {
    Right.READ: (
        "blob.list_containers blob.get_container_properties "
        "blob.get_container_metadata blob.list_blobs blob.get_blob blob.get_blob_properties "
        "blob.get_blob_metadata blob.get_block_list blob.get_page_ranges "
        "queue.list_queues queue.get_queue_metadata table.query_tables table.query_entities "
        "file.get_permission file.get_directory_properties file.get_directory_metadata "
        "file.list_directories_and_files file.get_file file.get_file_properties "
        "file.get_file_metadata file.list_ranges file.get_symbolic_link file.list_handles"
    ),
    Right.PEEK: "queue.peek_messages",
    Right.ADD: "queue.put_message table.insert_entity",
    Right.ADD | Right.WRITE: "table.insert_or_replace_entity table.insert_or_merge_entity",
    Right.READ | Right.WRITE: "file.create_hard_link",
    Right.DELETE: (
        "blob.delete_container blob.delete_blob queue.delete_queue queue.clear_messages "
        "table.delete_table table.delete_entity file.delete_directory file.delete_file"
    ),
    Right.PROCESS: "queue.get_messages queue.delete_message",
    Right.TAGS: (
        "blob.find_blobs_by_tags blob.find_blobs_by_tags_in_container blob.get_blob_tags "
        "blob.set_blob_tags"
    ),
    Right.ACCESS_POLICIES: (
        "blob.get_container_acl blob.set_container_acl queue.get_queue_acl queue.set_queue_acl"
    ),
    Right.SHARES: (
        "file.list_shares file.create_share file.get_share_properties file.delete_share "
        "file.set_share_properties file.get_share_metadata file.set_share_metadata "
        "file.get_share_acl file.set_share_acl file.get_share_stats file.acquire_share_lease "
        "file.renew_share_lease file.change_share_lease file.release_share_lease "
        "file.break_share_lease file.snapshot_share file.restore_share"
    ),
    Right.PROPERTIES: (
        "blob.get_account_information "
        "blob.get_blob_service_properties blob.set_blob_service_properties "
        "blob.get_blob_service_stats queue.get_queue_service_properties "
        "queue.set_queue_service_properties queue.get_queue_service_stats "
        "table.get_table_service_properties table.set_table_service_properties "
        "table.get_table_service_stats file.get_file_service_properties "
        "file.set_file_service_properties"
    ),
    Right.DELEGATE: (
        "blob.get_user_delegation_key queue.get_user_delegation_key file.get_user_delegation_key"
    ),
    NO_RIGHT: "table.entity_group_transaction",
}
"""The operations that need a right; those that are not listed need WRITE."""
RIGHT_OF = {
    operation: right for right, names in RIGHTS_OF_OPERATIONS.items() for operation in names.split()
}


KEYS_ONLY = {"table.get_table_acl", "table.set_table_acl"}


def user(service: str, right: Right, *, intends_backup: bool = True) -> User:
    return User(
        account="a",
        object_id="o",
        tenant_id="t",
        rights={service: right},
        intends_backup=intends_backup,
    )


def test_rights_are_listed_for_operations_that_exist() -> None:
    assert RIGHT_OF.keys() <= PERMISSIONS.keys()


@pytest.mark.parametrize("operation", sorted(KEYS_ONLY))
def test_users_are_refused_what_needs_the_key(operation: str) -> None:
    assert code(authorize(user("table", ALL_RIGHTS), operation, "c")) == "ResourceNotFound"
    assert authorize(KeyOwner("a"), operation, "c") == Permit()


@pytest.mark.parametrize("operation", sorted(PERMISSIONS.keys() - KEYS_ONLY))
def test_users_need_the_right_of_an_operation(operation: str) -> None:
    service = operation.partition(".")[0]
    right = RIGHT_OF.get(operation, Right.WRITE)
    assert authorize(user(service, right), operation, "c") == Permit()
    if not right:
        return
    for held in (*(ALL_RIGHTS & ~needed for needed in right), NO_RIGHT):
        refused = authorize(user(service, held), operation, "c")
        assert code(refused) == "AuthorizationPermissionMismatch"
    for other in {*SERVICE_LETTERS} - {service}:
        held_elsewhere = user(other, ALL_RIGHTS)
        refused = authorize(held_elsewhere, operation, "c")
        assert code(refused) == "AuthorizationPermissionMismatch"


def test_users_who_set_or_list_tags_need_that_right_too() -> None:
    for operation, right in (("blob.put_blob", Right.WRITE), ("blob.list_blobs", Right.READ)):
        refused = authorize(user("blob", ALL_RIGHTS & ~Right.TAGS), operation, "c", also="t")
        assert code(refused) == "AuthorizationPermissionMismatch"
        assert authorize(user("blob", right | Right.TAGS), operation, "c", also="t") == Permit()


def test_users_of_files_must_intend_a_backup() -> None:
    for operation in PERMISSIONS:
        service = operation.partition(".")[0]
        outcome = authorize(user(service, ALL_RIGHTS, intends_backup=False), operation, "c")
        # Keys are not data.
        needs_intent = service == "file" and not PERMISSIONS[operation].users_only
        assert (code(outcome) == "MissingRequiredHeader") is needs_intent


def test_renames_need_the_rights_to_read_and_write_the_source() -> None:
    for permission in (RENAME_FILE_SOURCE, RENAME_DIRECTORY_SOURCE):
        assert permission.right == Right.READ | Right.WRITE
