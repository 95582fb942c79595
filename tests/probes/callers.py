"""Callers of an operation, and whether a server lets them in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from tests.authorization import Need
from tests.probes.answers import (
    AUTHENTICATION_FAILED,
    AUTHORIZATION_FAILURE,
    BLOB_OVERWRITE,
    PERMISSION_MISMATCH,
    Code,
    refusal_fault,
)
from tests.probes.blob.operations import BlobOperation, BlobTarget
from tests.probes.client import Answer, Request, encoded
from tests.probes.service import Operation, ServiceFixture
from tests.probes.services import SERVICES
from tests.probes.token_kinds import TokenKind
from tests.probes.tokens import BLOB_LETTERS, CONTAINER_LETTERS, Token, service_token
from tests.server import ACCOUNT, KEY

OUT_OF_SCOPE: Final = (AUTHENTICATION_FAILED, AUTHORIZATION_FAILURE)
"""The signature is that of another resource, or the resource is not enough for the operation."""
TIMESTAMP: Final = "2020-02-02T02:02:02.0000000Z"
"""Of a snapshot or version that does not exist: callers who may read it get to know that."""


class Case(NamedTuple):
    """A caller of an operation, and the refusals of which it gets one; none if it is allowed."""

    label: str
    request: Callable[[Any], Request]
    """Returns the request with its credentials, for a target."""
    refusals: tuple[Code, ...] = ()


def find_faults(
    fixture: ServiceFixture[Any], operation: Operation[Any], target: Any, cases: Iterable[Case]
) -> Iterator[str]:
    """Sends the requests that must be refused, and then those that are allowed; yields what the
    answers do not agree with. Any other error counts as allowed: the request before may have
    removed the target."""
    allowed = []
    with fixture.unchanged():
        for case in cases:
            if not case.refusals:
                allowed.append(case)
                continue
            answer = fixture.ask(case.request(target))
            if fault := refusal_fault(answer, *case.refusals):
                yield f"{case.label} {fault} instead of {case.refusals}"
    for number, case in enumerate(allowed):
        answer = fixture.ask(case.request(_fresh(operation, target, number)))
        if _is_refused(answer):
            yield f"{case.label} refused: {answer.status} {answer.code}"


def _fresh(operation: Operation[Any], target: Any, number: int) -> Any:
    """Returns the target with another name that is free, for an operation that creates an object:
    after the first one succeeded, the next would have to replace it."""
    if not getattr(operation, "creates_object", False):
        return target
    if isinstance(target, BlobTarget):
        return target._replace(blob=f"{target.blob}{number}")
    return target._replace(file=f"{target.file}{number}", directory=f"{target.directory}{number}")


def _is_refused(answer: Answer) -> bool:
    return answer.status in {401, 403}


# Kinds of service SAS


def _directory_token(_operation: BlobOperation, target: BlobTarget, **options: str) -> Token:
    directory = target.blob.partition("/")[0]
    return service_token(ACCOUNT, KEY, target.container, directory, sr="d", sdd="1", **options)


def _snapshot_token(resource: str) -> Callable[..., Token]:
    def make(operation: BlobOperation, target: BlobTarget, **options: str) -> Token:
        blob = target.free_blob if operation.creates else target.blob
        return service_token(
            ACCOUNT, KEY, target.container, blob, snapshot=TIMESTAMP, sr=resource, **options
        )

    return make


_SNAPSHOT_PARAMETERS: Final = {"bs": "snapshot", "bv": "versionid"}
_MORE_BLOB_KINDS: Final = (
    TokenKind("directory", CONTAINER_LETTERS.replace("f", ""), _directory_token, "d"),
    TokenKind("snapshot", BLOB_LETTERS, _snapshot_token("bs"), "bs"),
    TokenKind("version", BLOB_LETTERS, _snapshot_token("bv"), "bv"),
)


def service_kinds(operation: Operation[Any]) -> Iterator[TokenKind]:
    """Yields all kinds of service SAS."""
    yield from (kind for kind in SERVICES[operation.service].token_kinds if kind.resource)
    if isinstance(operation, BlobOperation) and operation.level == "blob":
        yield from _MORE_BLOB_KINDS


def request_for(kind: TokenKind, operation: Operation[Any], target: Any) -> Request:
    """Returns the request of an operation to the resource that a token of this kind is for."""
    request = operation.request(target)
    if parameter := _SNAPSHOT_PARAMETERS.get(kind.resource):
        return request.asking(*encoded([(parameter, TIMESTAMP)]))
    return request


# Letters


def letters_refused(operation: Operation[Any], letters: str) -> tuple[Code, ...]:
    """Returns the refusals of a token for the right resource that has too few letters."""
    overwrites = operation.name.endswith("over_another") and "c" in letters
    return (PERMISSION_MISMATCH, BLOB_OVERWRITE) if overwrites else (PERMISSION_MISMATCH,)


def deciding_letters(need: Need, kind: TokenKind) -> Iterator[str]:
    """Yields few sets of letters, with which the others are decided, too."""
    yield from need.minimal(kind.letters)
    yield from need.maximal_insufficient(kind.letters)


def every_letter(need: Need, kind: TokenKind) -> Iterator[str]:
    yield from kind.letters
    yield from deciding_letters(need, kind)


Letters = Callable[[Need, TokenKind], Iterable[str]]
