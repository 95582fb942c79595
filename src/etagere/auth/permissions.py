"""Permissions: what a caller needs to execute an operation, and whether a caller has it.

The row of an operation in `protocol/<service>/operations.py` states its permission with one of the
functions below. Requests that the REST reference treats as one operation have several permissions
where the required letters differ, for example the actions of a lease. The source of a copy within
the store is read by the caller, who therefore needs the permission to read it, too.

Letters are alternatives: "a|w" means either letter, "au" both. "" requires no letter: any valid
token is enough. None means that no token is enough. The right that a user needs follows from the
letters (`RIGHTS_BY_LETTERS`), with few exceptions.
"""

from __future__ import annotations

import enum
from functools import lru_cache
from typing import Final, NamedTuple

from etagere.auth.principal import (
    Anonymous,
    KeyOwner,
    Principal,
    TokenHolder,
    TokenKind,
    User,
    covers,
)
from etagere.auth.roles import NO_RIGHT, Right
from etagere.auth.sas import SERVICE_LETTERS
from etagere.auth.shared_key import failed
from etagere.errors import Refusal


class Public(enum.IntEnum):
    """The public access level that a container must have for anonymous callers."""

    NOTHING = 0
    BLOB = 1
    CONTAINER = 2
    NEVER = 3


class Permission(NamedTuple):
    """What a caller needs to execute an operation."""

    resource_types: str
    """An account token must have one of these resource types."""
    account_letters: str | None
    right: Right
    """The right that a user with a bearer token needs."""
    service_letters: str | None = None
    """The letters that a service or user delegation token needs."""
    resources: frozenset[str] = frozenset()
    """The resources (`sr`) that a service or user delegation token may be for."""
    letters_if_absent: str | None = None
    """Letters that are enough if the operation overwrites nothing."""
    if_absent_since: str = ""
    """The first version in which they are."""
    public: Public = Public.NEVER
    users_only: bool = False
    """Whether only users with a bearer token are allowed to, and account keys are not enough."""
    keys_only: bool = False
    """Whether users are refused as if the resource did not exist, whatever their rights are."""
    users_since: str = ""
    """The first version in which users are allowed to. In earlier versions of the file service they
    have to use the resource provider instead."""


class Permit(NamedTuple):
    """Permission to continue, with the checks that are left to the transaction."""

    only_if_absent: bool = False
    public: Public = Public.NOTHING


_PERMITTED: Final = Permit()

RIGHTS_BY_LETTERS: Final[dict[str | None, Right]] = {
    None: Right.ACCESS_POLICIES,
    "": NO_RIGHT,
    "r": Right.READ,
    "l": Right.READ,
    "w": Right.WRITE,
    "c|w": Right.WRITE,
    "a|w": Right.WRITE,
    "d|w": Right.WRITE,
    "wd": Right.WRITE,
    "rw": Right.READ | Right.WRITE,
    "d": Right.DELETE,
    "t": Right.TAGS,
    "f": Right.TAGS,
    "a": Right.ADD,
    "u": Right.WRITE,
    "au": Right.ADD | Right.WRITE,
    "p": Right.PROCESS,
}
"""The right that a user needs where a token needs these letters."""

_CONTAINER: Final = frozenset({"c"})
_CONTAINER_OR_DIRECTORY: Final = frozenset({"c", "d"})
_CURRENT_BLOB: Final = frozenset({"c", "d", "b"})
_BLOB_OR_SNAPSHOT: Final = frozenset({"c", "d", "b", "bs", "bv"})
_QUEUE_OR_TABLE: Final = frozenset({""})


def on_service(letters: str) -> Permission:
    return Permission("s", letters, RIGHTS_BY_LETTERS[letters])


def on_service_properties(letters: str) -> Permission:
    """For the properties and the statistics of the service."""
    return Permission("s", letters, Right.PROPERTIES)


def on_delegation_key() -> Permission:
    return Permission("s", None, Right.DELEGATE, users_only=True)


def on_account_information(letters: str) -> Permission:
    """Any account token is enough; a service token needs these letters."""
    return Permission("sco", "", Right.PROPERTIES, letters, _BLOB_OR_SNAPSHOT)


def on_batch(*resources: str, right: Right = NO_RIGHT) -> Permission:
    """Every part of a batch is authorized by itself, so the batch needs no letter. `resources` are
    those of the service tokens that it accepts."""
    return Permission("sco", "", right, "" if resources else None, frozenset(resources))


def on_container(letters: str | None, public: Public = Public.NEVER) -> Permission:
    """Service tokens are never enough."""
    return Permission("c", letters, RIGHTS_BY_LETTERS[letters], public=public)


def on_batch_in_container() -> Permission:
    return Permission("co", "", Right.WRITE, "", _CONTAINER)


def on_list_of_blobs(letters: str, public: Public = Public.NEVER) -> Permission:
    return Permission(
        "c", letters, RIGHTS_BY_LETTERS[letters], letters, _CONTAINER_OR_DIRECTORY, public=public
    )


def on_blobs_of_account(letters: str) -> Permission:
    """The reference names the resource type of objects, although the request is to the service."""
    return Permission("so", letters, RIGHTS_BY_LETTERS[letters])


def on_blobs_of_container(letters: str) -> Permission:
    return Permission("c", letters, RIGHTS_BY_LETTERS[letters], letters, _CONTAINER)


def on_blob(letters: str, *, if_absent: str | None = None) -> Permission:
    return Permission("o", letters, RIGHTS_BY_LETTERS[letters], letters, _CURRENT_BLOB, if_absent)


def on_blocks(letters: str, *, if_absent: str) -> Permission:
    return on_blob(letters, if_absent=if_absent)._replace(if_absent_since=BLOCKS_CREATED_SINCE)


def on_blob_or_snapshot(letters: str, public: Public = Public.NEVER) -> Permission:
    """Only for operations that evaluate `snapshot` and `versionid`: with any other, a token for a
    snapshot would change the blob itself."""
    return Permission(
        "o", letters, RIGHTS_BY_LETTERS[letters], letters, _BLOB_OR_SNAPSHOT, public=public
    )


def on_blob_deletion(letters: str) -> Permission:
    """A token for a version is not enough: the deletion of a version needs a letter of its own."""
    return on_blob_or_snapshot(letters)._replace(resources=_BLOB_OR_SNAPSHOT - {"bv"})


READ_BLOB: Final = on_blob_or_snapshot("r", Public.BLOB)
"""Also needed for the source of a copy."""


def on_queue(letters: str | None, service_letters: str | None = None) -> Permission:
    return _on_queue_or_table("c", letters, service_letters, RIGHTS_BY_LETTERS[letters])


def on_messages(letters: str, service_letters: str | None) -> Permission:
    # Users who may process messages may peek at them, but not read the properties of the queue.
    right = Right.PEEK if letters == "r" else RIGHTS_BY_LETTERS[letters]
    return _on_queue_or_table("o", letters, service_letters, right)


def on_table_policies() -> Permission:
    """The service does not accept bearer tokens here, by design."""
    return on_container(None)._replace(keys_only=True)


def on_tables(letters: str) -> Permission:
    """The reference names both resource types for the list of tables."""
    return Permission("sc", letters, RIGHTS_BY_LETTERS[letters])


def on_entity(letters: str) -> Permission:
    return _on_queue_or_table("o", letters, letters, RIGHTS_BY_LETTERS[letters])


def _on_queue_or_table(
    resource_type: str, account_letters: str | None, service_letters: str | None, right: Right
) -> Permission:
    resources = _QUEUE_OR_TABLE if service_letters is not None else frozenset[str]()
    return Permission(resource_type, account_letters, right, service_letters, resources)


READ_ENTITIES: Final = on_entity("r")
"""Also needed for a query in a batch."""

BLOCKS_CREATED_SINCE: Final = "2026-06-06"
"""The first version in which the letter to create blobs is enough for their blocks."""
CHALLENGED_SINCE: Final = "2019-12-12"
"""The first version in which anonymous callers are asked to authenticate (401 instead of 404)."""

_USERS_ONLY: Final = "Only authentication scheme Bearer is supported"
FILE_REQUEST_INTENT: Final = "x-ms-file-request-intent"
"""The header in which users of the file service state that they intend a backup."""


def authorize(
    principal: Principal,
    service: str,
    permission: Permission,
    target: str,
    *,
    extra_letters: str = "",
    version: str = "",
) -> Permit | Refusal:
    """Returns a permit if the caller has the permission. The state of the object is not known here.

    `target` is the resource that the operation will touch: the name of a container, or that and a
    path below it, as the operation itself will look it up; "" is the service. `extra_letters` are
    letters that the request needs as well, such as `t` to set tags. `version` is x-ms-version.
    """
    if isinstance(principal, KeyOwner):
        return failed(_USERS_ONLY) if permission.users_only else _PERMITTED
    if isinstance(principal, Anonymous):
        if permission.public is Public.NEVER or extra_letters:
            return refuse_anonymous(version)
        # Requests to an account that does not exist are refused like those to private containers.
        # Data that a deleted account of the same name left behind is not public.
        return Permit(public=permission.public if principal.account_exists else Public.NEVER)
    if isinstance(principal, User):
        if version < permission.users_since:
            return Refusal("FileOAuthManagementApiRestrictedToSrp")
        return _by_right(principal, service, permission, extra_letters)
    if principal.kind is TokenKind.ACCOUNT:
        letters = permission.account_letters
        refusal = _outside_account_token(principal, service, permission)
    else:
        letters = permission.service_letters
        refusal = _outside_resource(principal, service, permission, target)
    if refusal is not None:
        return refusal
    if_absent = permission.letters_if_absent if version >= permission.if_absent_since else None
    permit = _by_letters(principal.permissions, letters, if_absent, extra_letters)
    if principal.rights is None or isinstance(permit, Refusal):
        return permit
    right = _required_right(permission, extra_letters)
    if right not in principal.rights:
        return Refusal("AuthorizationPermissionMismatch")
    return permit


def _outside_account_token(
    holder: TokenHolder, service: str, permission: Permission
) -> Refusal | None:
    if SERVICE_LETTERS[service] not in holder.services:
        return Refusal("AuthorizationServiceMismatch")
    if set(permission.resource_types).isdisjoint(holder.resource_types):
        facts: dict[str, str | int] = {"RequiredResourceType": permission.resource_types}
        return Refusal("AuthorizationResourceTypeMismatch", facts)
    return None


def _outside_resource(
    holder: TokenHolder, service: str, permission: Permission, target: str
) -> Refusal | None:
    letters = permission.service_letters
    # Blobs and paths are two views of one service; the others keep to themselves.
    if SERVICE_LETTERS[service] != SERVICE_LETTERS[holder.service]:
        return Refusal("AuthorizationServiceMismatch")
    if letters is None or holder.resource not in permission.resources:
        return Refusal("AuthorizationFailure")
    # A batch itself touches nothing.
    if covers(holder, target) or not (target or letters):
        return None
    # The target of a list is the container. The prefix was compared with the directory of the token
    # when the token was verified.
    if holder.resource == "d" and "l" in letters and target == holder.scope.split("/", 1)[0]:
        return None
    return Refusal("AuthorizationFailure")


def _by_letters(
    held: str, letters: str | None, letters_if_absent: str | None, extra_letters: str
) -> Permit | Refusal:
    if letters is None:
        return Refusal("AuthorizationPermissionMismatch")
    if not extra_letters or set(extra_letters) <= set(held):
        if _suffices(held, letters):
            return _PERMITTED
        if letters_if_absent is not None and _suffices(held, letters_if_absent):
            return Permit(only_if_absent=True)
    facts: dict[str, str | int] = {
        "RequiredPermission": letters + extra_letters,
        "Permissions": held,
    }
    return Refusal("AuthorizationPermissionMismatch", facts)


def _by_right(
    user: User, service: str, permission: Permission, extra_letters: str
) -> Permit | Refusal:
    # A user delegation key is not data; SDKs ask for it without an intent.
    if service == "file" and not user.intends_backup and not permission.users_only:
        return Refusal("MissingRequiredHeader", {"HeaderName": FILE_REQUEST_INTENT})
    if permission.keys_only:
        return Refusal("ResourceNotFound")
    right = _required_right(permission, extra_letters)
    return _PERMITTED if user.may(right, service) else Refusal("AuthorizationPermissionMismatch")


def _required_right(permission: Permission, extra_letters: str) -> Right:
    right = permission.right
    for letter in extra_letters:
        right |= RIGHTS_BY_LETTERS[letter]
    return right


@lru_cache(maxsize=1_024)
def _suffices(held: str, letters: str) -> bool:
    return any(set(alternative) <= set(held) for alternative in letters.split("|"))


# Decided in the transaction, where the object is known


def check_absent(permit: Permit, exists: bool) -> Refusal | None:
    """Refuses a caller that may create but not overwrite if there is a blob already."""
    if permit.only_if_absent and exists:
        return Refusal("UnauthorizedBlobOverwrite", {"RequiredPermission": "w"})
    return None


def check_public(
    permit: Permit, allowed: Public, *, account_allows: bool = True, version: str = ""
) -> Refusal | None:
    """`allowed` is the public access level of the container; NOTHING if it is private or absent."""
    if permit.public is Public.NOTHING:
        return None
    if not account_allows:
        return Refusal("PublicAccessNotPermitted")
    return None if allowed >= permit.public else refuse_anonymous(version)


def refuse_anonymous(version: str) -> Refusal:
    """Callers with an old version or none get the answer that they get for an absent resource."""
    if version >= CHALLENGED_SINCE:
        return Refusal("NoAuthenticationInformation")
    return Refusal("ResourceNotFound")
