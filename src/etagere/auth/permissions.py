"""One table: each operation, and what a caller needs to have it carried out.

An operation is named `{service}.{name}`, where the name is that of the public REST reference in
snake case ("Put Block List" is `blob.put_block_list`). What the reference treats as one operation
has several rows where the rights differ: a lease's actions, the ways to delete a blob. Forms of a
request that need the same rights share a row: the three types of Put Blob, HEAD and GET.
The source of a copy in the same store is read by its caller: it needs the row of the read.

Letters are written as alternatives: "a|w" is either of them, "au" would be both. "" asks for none:
any valid token will do. None is out of reach.
"""

from __future__ import annotations

import enum
from functools import lru_cache
from typing import Final, NamedTuple

from etagere.auth.principal import Anonymous, KeyOwner, Kind, Principal, TokenHolder, covers
from etagere.auth.sas import SERVICE_LETTERS
from etagere.auth.shared_key import failed
from etagere.errors import Refusal


class Public(enum.IntEnum):
    """What a container must allow at least, for a caller without a name."""

    NOTHING = 0
    BLOB = 1
    CONTAINER = 2
    NEVER = 3


class Need(NamedTuple):
    """One row."""

    types: str
    """Any of these resource types must be among an account token's."""
    account: str | None
    """Letters of an account token."""
    service: str | None = None
    """Letters of a service or user delegation token."""
    reach: frozenset[str] = frozenset()
    """The resources (`sr`) that such a token may be for."""
    absent: str | None = None
    """Letters that are enough as long as there is nothing yet to overwrite."""
    public: Public = Public.NEVER
    bearer_only: bool = False


class Permit(NamedTuple):
    """Yes; the rest has to be decided where the object is known, in its transaction."""

    only_if_absent: bool = False
    public: Public = Public.NOTHING


# Each kind of row reads as one line below.

_CONTAINER_ONLY: Final = frozenset({"c"})
_LISTED: Final = frozenset({"c", "d"})
_CURRENT: Final = frozenset({"c", "d", "b"})
# Only operations that heed `snapshot` and `versionid`: any other would let a token for a snapshot
# change the blob itself.
_CURRENT_OR_PAST: Final = frozenset({"c", "d", "b", "bs", "bv"})


def _of_service(letters: str | None) -> Need:
    return Need("s", letters)


def _of_container(letters: str | None, public: Public = Public.NEVER) -> Need:
    return Need("c", letters, public=public)


def _of_blob(letters: str, *, absent: str | None = None) -> Need:
    return Need("o", letters, letters, _CURRENT, absent)


def _of_version(letters: str, public: Public = Public.NEVER) -> Need:
    return Need("o", letters, letters, _CURRENT_OR_PAST, public=public)


_BLOB: Final[dict[str, Need]] = {
    # The service
    "preflight_blob_request": Need("sco", "", public=Public.NOTHING),
    "get_account_information": Need("sco", "", "r", _CURRENT_OR_PAST),
    "get_blob_service_properties": _of_service("r"),
    "set_blob_service_properties": _of_service("w"),
    "get_blob_service_stats": _of_service("r"),
    "list_containers": _of_service("l"),
    "find_blobs_by_tags": _of_service("f"),
    "get_user_delegation_key": Need("s", None, bearer_only=True),
    # Each part of a batch is authorized by itself, so the envelope needs no letter.
    "blob_batch": Need("sco", ""),
    "blob_batch_in_container": Need("co", "", "", _CONTAINER_ONLY),
    # Containers
    "create_container": _of_container("c|w"),
    "delete_container": _of_container("d"),
    "restore_container": _of_container("w"),
    "rename_container": _of_container("w"),
    "get_container_properties": _of_container("r", Public.CONTAINER),
    "get_container_metadata": _of_container("r", Public.CONTAINER),
    "set_container_metadata": _of_container("w"),
    "get_container_acl": _of_container(None),
    "set_container_acl": _of_container(None),
    "acquire_container_lease": _of_container("w"),
    "renew_container_lease": _of_container("w"),
    "change_container_lease": _of_container("w"),
    "release_container_lease": _of_container("w"),
    "break_container_lease": _of_container("d|w"),
    "list_blobs": Need("c", "l", "l", _LISTED, public=Public.CONTAINER),
    "find_blobs_by_tags_in_container": Need("c", "f", "f", _CONTAINER_ONLY),
    # Blobs: read
    "get_blob": _of_version("r", Public.BLOB),
    "get_blob_properties": _of_version("r", Public.BLOB),
    "get_blob_metadata": _of_version("r", Public.BLOB),
    "get_block_list": _of_version("r", Public.BLOB),
    "get_page_ranges": _of_version("r", Public.BLOB),
    "query_blob_contents": _of_version("r"),
    "get_blob_tags": _of_version("t"),
    # Blobs: write
    "put_blob": _of_blob("w", absent="c"),
    "put_blob_from_url": _of_blob("w", absent="c"),
    "copy_blob": _of_blob("w", absent="c"),
    "copy_blob_from_url": _of_blob("w", absent="c"),
    "incremental_copy_blob": _of_blob("w", absent="c"),
    "abort_copy_blob": _of_blob("w"),
    "put_block": _of_blob("w", absent="c"),
    "put_block_from_url": _of_blob("w", absent="c"),
    "put_block_list": _of_blob("w", absent="c"),
    "put_page": _of_blob("w"),
    "put_page_from_url": _of_blob("w"),
    "append_block": _of_blob("a|w"),
    "append_block_from_url": _of_blob("a|w"),
    "append_blob_seal": _of_blob("w"),
    "snapshot_blob": _of_blob("c|w"),
    "set_blob_properties": _of_blob("w"),
    "set_blob_metadata": _of_blob("w"),
    "set_blob_expiry": _of_blob("w"),
    "set_blob_tier": _of_version("w"),
    "set_blob_tags": _of_version("t"),
    "set_blob_immutability_policy": _of_version("i"),
    "delete_blob_immutability_policy": _of_version("i"),
    "set_blob_legal_hold": _of_version("i"),
    "acquire_blob_lease": _of_blob("w"),
    "renew_blob_lease": _of_blob("w"),
    "change_blob_lease": _of_blob("w"),
    "release_blob_lease": _of_blob("w"),
    "break_blob_lease": _of_blob("d|w"),
    # Blobs: delete
    "delete_blob": _of_version("d"),
    "delete_blob_version": _of_version("x"),
    "delete_blob_permanently": _of_version("y"),
    "undelete_blob": _of_blob("w"),
}

_WHOLE: Final = frozenset({""})


def _of_queue(letters: str | None, service: str | None = None) -> Need:
    return Need("c", letters, service, _WHOLE if service is not None else frozenset())


def _of_message(letters: str, service: str | None) -> Need:
    return Need("o", letters, service, _WHOLE if service is not None else frozenset())


_QUEUE: Final[dict[str, Need]] = {
    # The service
    "preflight_queue_request": Need("sco", "", public=Public.NOTHING),
    "get_queue_service_properties": _of_service("r"),
    "set_queue_service_properties": _of_service("w"),
    "get_queue_service_stats": _of_service("r"),
    "get_user_delegation_key": Need("s", None, bearer_only=True),
    "list_queues": _of_service("l"),
    # Queues
    "create_queue": _of_queue("c|w"),
    "delete_queue": _of_queue("d"),
    "get_queue_metadata": _of_queue("r", "r"),
    "set_queue_metadata": _of_queue("w"),
    "get_queue_acl": _of_queue(None),
    "set_queue_acl": _of_queue(None),
    # Messages
    "put_message": _of_message("a", "a"),
    "get_messages": _of_message("p", "p"),
    "peek_messages": _of_message("r", "r"),
    "update_message": _of_message("u", "u"),
    "delete_message": _of_message("p", "p"),
    "clear_messages": _of_message("d", None),
}


def _of_entity(letters: str) -> Need:
    return Need("o", letters, letters, _WHOLE)


_TABLE: Final[dict[str, Need]] = {
    # The service
    "preflight_table_request": Need("sco", "", public=Public.NOTHING),
    "get_table_service_properties": _of_service("r"),
    "set_table_service_properties": _of_service("w"),
    "get_table_service_stats": _of_service("r"),
    # Tables: the reference counts the list of them among either kind
    "query_tables": Need("sc", "l"),
    "create_table": _of_container("c|w"),
    "delete_table": _of_container("d"),
    "get_table_acl": _of_container(None),
    "set_table_acl": _of_container(None),
    # Entities
    "query_entities": _of_entity("r"),
    "insert_entity": _of_entity("a"),
    "update_entity": _of_entity("u"),
    "merge_entity": _of_entity("u"),
    "insert_or_replace_entity": _of_entity("au"),
    "insert_or_merge_entity": _of_entity("au"),
    "delete_entity": _of_entity("d"),
    # Each part of a group is authorized by itself, so the envelope needs no letter.
    "entity_group_transaction": Need("sco", "", "", _WHOLE),
}

NEEDS: Final[dict[str, Need]] = {
    f"{service}.{name}": need
    for service, rows in (("blob", _BLOB), ("queue", _QUEUE), ("table", _TABLE))
    for name, need in rows.items()
}

CHALLENGED_SINCE: Final = "2019-12-12"
"""From this version on, callers without a name are asked for one; before, nothing is there."""


def authorize(
    principal: Principal, operation: str, target: str, *, also: str = "", version: str = ""
) -> Permit | Refusal:
    """Whether `principal` may carry out `operation` on `target`, as far as names can tell.

    `target` is what the operation will touch, a container's name or that and a path below it, as
    the operation itself will look it up; "" is the service. `also` are letters that a request
    needs besides, such as `t` for one that sets tags as it writes. `version` is x-ms-version.
    """
    need = NEEDS[operation]
    if need.public is Public.NOTHING:
        return Permit()
    if need.bearer_only:
        return failed("This operation takes bearer tokens only.")
    if isinstance(principal, KeyOwner):
        return Permit()
    if isinstance(principal, Anonymous):
        # What is shown to everybody is what the row says, and nothing besides.
        if need.public is Public.NEVER or also:
            return refuse_anonymous(version)
        # Requests to an account that does not exist are refused like those to private containers.
        # Data that a deleted account of the same name left behind is not public.
        return Permit(public=need.public if principal.account_exists else Public.NEVER)
    if principal.kind is Kind.ACCOUNT:
        letters = need.account
        refusal = _outside_account_token(principal, operation, need)
    else:
        letters = need.service
        refusal = _outside_resource(principal, operation, need, target)
    if refusal is not None:
        return refusal
    return _by_letters(principal.permissions, letters, need.absent, also)


def _outside_account_token(holder: TokenHolder, operation: str, need: Need) -> Refusal | None:
    service = operation.partition(".")[0]
    if SERVICE_LETTERS[service] not in holder.services:
        return Refusal("AuthorizationServiceMismatch")
    if set(need.types).isdisjoint(holder.resource_types):
        return Refusal("AuthorizationResourceTypeMismatch", {"RequiredResourceType": need.types})
    return None


def _outside_resource(
    holder: TokenHolder, operation: str, need: Need, target: str
) -> Refusal | None:
    service = operation.partition(".")[0]
    # Blobs and paths are two views of one service; the others keep to themselves.
    if SERVICE_LETTERS[service] != SERVICE_LETTERS[holder.service]:
        return Refusal("AuthorizationServiceMismatch")
    if need.service is None or holder.resource not in need.reach:
        return Refusal("AuthorizationFailure")
    # An envelope touches nothing: each of its parts is authorized by itself.
    if covers(holder, target) or not (target or need.service):
        return None
    # A directory is listed in its container's name; its own was checked with the token.
    if holder.resource == "d" and "l" in need.service and target == holder.scope.split("/", 1)[0]:
        return None
    return Refusal("AuthorizationFailure")


def _by_letters(held: str, letters: str | None, absent: str | None, also: str) -> Permit | Refusal:
    if letters is None:
        return Refusal("AuthorizationPermissionMismatch")
    if not also or set(also) <= set(held):
        if _suffices(held, letters):
            return Permit()
        if absent is not None and _suffices(held, absent):
            return Permit(only_if_absent=True)
    lacking: dict[str, str | int] = {"RequiredPermission": letters + also, "Permissions": held}
    return Refusal("AuthorizationPermissionMismatch", lacking)


@lru_cache(maxsize=1_024)
def _suffices(held: str, letters: str) -> bool:
    return any(all(letter in held for letter in choice) for choice in letters.split("|"))


# What is decided where the object is known


def check_absent(permit: Permit, exists: bool) -> Refusal | None:
    """Who may create but not overwrite is refused what is there."""
    if permit.only_if_absent and exists:
        return Refusal("UnauthorizedBlobOverwrite", {"RequiredPermission": "w"})
    return None


def check_public(
    permit: Permit, allowed: Public, *, account_allows: bool = True, version: str = ""
) -> Refusal | None:
    """`allowed` is what the container lets everyone do; NOTHING if it is private or not there."""
    if permit.public is Public.NOTHING:
        return None
    if not account_allows:
        return Refusal("PublicAccessNotPermitted")
    return None if allowed >= permit.public else refuse_anonymous(version)


def refuse_anonymous(version: str) -> Refusal:
    """To callers of an old or no version, what is private looks as if it were not there."""
    if version >= CHALLENGED_SINCE:
        return Refusal("NoAuthenticationInformation")
    return Refusal("ResourceNotFound")
