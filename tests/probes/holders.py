"""Those who hold tokens, by the kind of token, and what the table of permissions grants them."""

from __future__ import annotations

from collections.abc import Callable

from tests.permissions import PERMISSIONS
from tests.probes.operations import Operation, Place
from tests.probes.tokens import (
    ACCOUNT_LETTERS,
    BLOB_LETTERS,
    CONTAINER_LETTERS,
    Token,
    account_token,
    service_token,
)
from tests.server import ACCOUNT, KEY

FAILED = (403, "AuthenticationFailed")
NOT_HERE = (403, "AuthorizationFailure")
LACKING = (403, "AuthorizationPermissionMismatch")
CREATES_ONLY = (403, "UnauthorizedBlobOverwrite")
"""Its holder may create, and there is something already."""

Maker = Callable[..., Token]


def for_account(_operation: Operation, _place: Place, **options: str) -> Token:
    return account_token(ACCOUNT, KEY, **options)


def for_container(operation: Operation, place: Place, **options: str) -> Token:
    new = operation.creates and operation.level == "container"
    container = place.free_container if new else place.container
    return service_token(ACCOUNT, KEY, container, **options)


def for_blob(operation: Operation, place: Place, **options: str) -> Token:
    blob = place.free_blob if operation.creates else place.blob
    return service_token(ACCOUNT, KEY, place.container, blob, **options)


LETTERS: dict[Maker, str] = {
    for_account: ACCOUNT_LETTERS,
    for_container: CONTAINER_LETTERS,
    for_blob: BLOB_LETTERS,
}


def grants(operation: Operation, maker: Maker, letters: str) -> bool:
    """Whether the table of permissions lets a token with these letters do this."""
    need = PERMISSIONS[f"blob.{operation.row}"]
    if not letters or not set(letters) <= set(LETTERS[maker]):
        return False
    if maker is for_account:
        wanted = need.account_letters
    else:
        reached = ("b" if maker is for_blob else "c") in need.resources
        # A token for a blob has no place in a request that names none, nor any in the service.
        named = operation.level in ({"blob"} if maker is for_blob else {"container", "blob"})
        wanted = need.service_letters if reached and named else None
    choices = [] if wanted is None else wanted.split("|")
    if operation.creates and operation.level == "blob" and need.letters_if_absent is not None:
        choices += need.letters_if_absent.split("|")
    return any(set(choice) <= set(letters) for choice in choices)
