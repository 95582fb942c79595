"""Every operation of every service is open to the callers that the REST reference names, and to
nobody else: shared access signatures of each kind, with each letter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import pytest

from tests.authorization import RULES, Need
from tests.probes.answers import (
    AUTHENTICATION_FAILED,
    AUTHORIZATION_FAILURE,
    BLOB_OVERWRITE,
    PERMISSION_MISMATCH,
    RESOURCE_TYPE_MISMATCH,
    SERVICE_MISMATCH,
)
from tests.probes.blob.operations import BlobOperation, BlobTarget
from tests.probes.callers import Case, Code, find_faults
from tests.probes.client import Request, encoded
from tests.probes.service import Operation, ServiceFixture
from tests.probes.services import SERVICES, each_operation, each_service
from tests.probes.token_kinds import ACCOUNT_KIND, SERVICE_LETTERS, TokenKind
from tests.probes.tokens import BLOB_LETTERS, CONTAINER_LETTERS, Token, moment, service_token
from tests.server import ACCOUNT, KEY

OUT_OF_SCOPE: Final = (AUTHENTICATION_FAILED, AUTHORIZATION_FAILURE)
"""The signature is that of another resource, or the resource is not enough for the operation."""
POLICIES_MAX: Final = 5
TIMESTAMP: Final = "2020-02-02T02:02:02.0000000Z"
"""Of a snapshot or version that does not exist: callers who may read it get to know that."""


# More kinds of tokens for blobs


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


def _kinds(operation: Operation[Any]) -> Iterator[TokenKind]:
    """Yields all kinds of service SAS."""
    yield from (kind for kind in SERVICES[operation.service].token_kinds if kind.resource)
    if isinstance(operation, BlobOperation) and operation.level == "blob":
        yield from _MORE_BLOB_KINDS


# The callers of an operation


def _case(
    operation: Operation[Any], kind: TokenKind, refusals: tuple[Code, ...], **options: str
) -> Case:
    def request(target: Any) -> Request:
        sent = operation.request(target)
        if parameter := _SNAPSHOT_PARAMETERS.get(kind.resource):
            sent = sent.asking(*encoded([(parameter, TIMESTAMP)]))
        return kind.make(operation, target, **options).put_on(sent)

    return Case(f"{kind} {options}", request, refusals)


def _letters_refused(operation: Operation[Any], letters: str) -> tuple[Code, ...]:
    """Returns the refusals of a token for the right resource that has too few letters."""
    overwrites = operation.name.endswith("over_another") and "c" in letters
    return (PERMISSION_MISMATCH, BLOB_OVERWRITE) if overwrites else (PERMISSION_MISMATCH,)


def _deciding_letters(need: Need, kind: TokenKind) -> Iterator[str]:
    """Yields few sets of letters, with which the others are decided, too."""
    yield from need.minimal(kind.letters)
    yield from need.maximal_insufficient(kind.letters)


def _every_letter(need: Need, kind: TokenKind) -> Iterator[str]:
    yield from kind.letters
    yield from _deciding_letters(need, kind)


Letters = Callable[[Need, TokenKind], Iterable[str]]


def _cases(operation: Operation[Any], letters: Letters) -> Iterator[Case]:
    yield from _account_cases(operation, letters)
    for kind in _kinds(operation):
        need = kind.need(operation)
        if need is None:
            refused = (*OUT_OF_SCOPE, PERMISSION_MISMATCH)
            yield _case(operation, kind, refused, permissions=kind.letters)
            continue
        for held in letters(need, kind):
            refusals = () if need.suffices(held) else _letters_refused(operation, held)
            yield _case(operation, kind, refusals, permissions=held)


def _account_cases(operation: Operation[Any], letters: Letters) -> Iterator[Case]:
    own = SERVICE_LETTERS[operation.service]
    others = "".join(letter for letter in "bqtf" if letter != own)
    for services in (*others, others):
        yield _case(operation, ACCOUNT_KIND, (SERVICE_MISMATCH,), services=services)
    need = operation.rule.account_sas
    if need is None:
        yield _case(operation, ACCOUNT_KIND, (PERMISSION_MISMATCH,))
        return
    for resource_type in "sco":
        fits = resource_type in need.places
        for held in letters(need, ACCOUNT_KIND) if fits else (ACCOUNT_KIND.letters,):
            refusals: tuple[Code, ...] = (RESOURCE_TYPE_MISMATCH,)
            if fits:
                refusals = () if need.suffices(held) else _letters_refused(operation, held)
            yield _case(operation, ACCOUNT_KIND, refusals, permissions=held, types=resource_type)
    if missing := "".join(sorted(set("sco") - need.places)):
        yield _case(operation, ACCOUNT_KIND, (RESOURCE_TYPE_MISMATCH,), types=missing)


def _policy_cases(operation: Operation[Any], letters: Letters) -> Iterator[tuple[Case, str]]:
    """Yields callers whose letters are in a stored policy, and those letters."""
    for kind in _kinds(operation):
        need = kind.need(operation)
        if need is None or not kind.has_policies:
            continue
        for number, held in enumerate(letters(need, kind)):
            refusals = () if need.suffices(held) else _letters_refused(operation, held)
            name = f"policy{number % POLICIES_MAX}"
            yield _case(operation, kind, refusals, si=name), held


# The tests


@each_service
def test_every_request_has_a_rule(service: str) -> None:
    named = {operation.name for operation in SERVICES[service].operations}
    rules = RULES[service].keys()
    assert rules <= named
    assert {name.removeprefix("head_of_").removeprefix("group_of_") for name in named} == rules


@each_operation
def test_shared_access_signatures(fixture: ServiceFixture[Any], operation: Operation[Any]) -> None:
    with fixture.target_for(operation) as target:
        cases = _cases(operation, _deciding_letters)
        assert not list(find_faults(fixture, operation, target, cases))


@pytest.mark.long
@each_operation
def test_every_letter(fixture: ServiceFixture[Any], operation: Operation[Any]) -> None:
    with fixture.target_for(operation) as target:
        assert not list(find_faults(fixture, operation, target, _cases(operation, _every_letter)))


@each_operation
def test_stored_policies(fixture: ServiceFixture[Any], operation: Operation[Any]) -> None:
    _check_policies(fixture, operation, _deciding_letters)


@pytest.mark.long
@each_operation
def test_every_letter_in_stored_policies(
    fixture: ServiceFixture[Any], operation: Operation[Any]
) -> None:
    _check_policies(fixture, operation, _every_letter)


def _check_policies(
    fixture: ServiceFixture[Any], operation: Operation[Any], letters: Letters
) -> None:
    cases = list(_policy_cases(operation, letters))
    for start in range(0, len(cases), POLICIES_MAX):
        some = cases[start : start + POLICIES_MAX]
        with fixture.target_for(operation) as target:
            fixture.set_policies(target, _policies([held for _, held in some]))
            faults = find_faults(fixture, operation, target, [case for case, _ in some])
            assert not list(faults)


def _policies(letters: list[str]) -> bytes:
    identifiers = "".join(
        f"<SignedIdentifier><Id>policy{number}</Id><AccessPolicy><Start>{moment(hours=-1)}</Start>"
        f"<Expiry>{moment(hours=1)}</Expiry><Permission>{held}</Permission></AccessPolicy>"
        "</SignedIdentifier>"
        for number, held in enumerate(letters)
    )
    return f"<SignedIdentifiers>{identifiers}</SignedIdentifiers>".encode()
