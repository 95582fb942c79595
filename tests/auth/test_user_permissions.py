"""The rights that users need for operations."""

from __future__ import annotations

import pytest

from etagere.auth.file_permissions import RENAME_DIRECTORY_SOURCE, RENAME_FILE_SOURCE
from etagere.auth.permissions import Permit
from etagere.auth.principal import KeyOwner, User
from etagere.auth.roles import ALL_RIGHTS, NO_RIGHT, Right
from etagere.auth.sas import SERVICE_LETTERS
from tests.auth.callers import authorize, code
from tests.permissions import PERMISSIONS

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
MANAGEMENT = {
    *RIGHTS_OF_OPERATIONS[Right.SHARES].split(),
    "file.get_file_service_properties",
    "file.set_file_service_properties",
}
"""The operations on the file service and on shares, which users could not manage at first."""
VERSION = "2024-11-04"


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
    assert authorize(user(service, right), operation, "c", version=VERSION) == Permit()
    if not right:
        return
    for held in (*(ALL_RIGHTS & ~needed for needed in right), NO_RIGHT):
        refused = authorize(user(service, held), operation, "c", version=VERSION)
        assert code(refused) == "AuthorizationPermissionMismatch"
    for other in {*SERVICE_LETTERS} - {service}:
        held_elsewhere = user(other, ALL_RIGHTS)
        refused = authorize(held_elsewhere, operation, "c", version=VERSION)
        assert code(refused) == "AuthorizationPermissionMismatch"


@pytest.mark.parametrize("operation", sorted(PERMISSIONS.keys() - KEYS_ONLY))
def test_users_do_not_manage_shares_in_early_versions(operation: str) -> None:
    service = operation.partition(".")[0]
    version = "2024-08-04"
    outcome = authorize(user(service, ALL_RIGHTS), operation, "c", version=version)
    if operation in MANAGEMENT:
        assert code(outcome) == "FileOAuthManagementApiRestrictedToSrp"
        assert authorize(KeyOwner("a"), operation, "c", version=version) == Permit()
    else:
        assert outcome == Permit()


def test_users_who_set_or_list_tags_need_that_right_too() -> None:
    for operation, right in (("blob.put_blob", Right.WRITE), ("blob.list_blobs", Right.READ)):
        refused = authorize(user("blob", ALL_RIGHTS & ~Right.TAGS), operation, "c", also="t")
        assert code(refused) == "AuthorizationPermissionMismatch"
        assert authorize(user("blob", right | Right.TAGS), operation, "c", also="t") == Permit()


def test_users_of_files_must_intend_a_backup() -> None:
    for operation in PERMISSIONS:
        service = operation.partition(".")[0]
        without_intent = user(service, ALL_RIGHTS, intends_backup=False)
        outcome = authorize(without_intent, operation, "c", version=VERSION)
        # Keys are not data.
        needs_intent = service == "file" and not PERMISSIONS[operation].users_only
        assert (code(outcome) == "MissingRequiredHeader") is needs_intent


def test_renames_need_the_rights_to_read_and_write_the_source() -> None:
    for permission in (RENAME_FILE_SOURCE, RENAME_DIRECTORY_SOURCE):
        assert permission.right == Right.READ | Right.WRITE
