"""A token for one place opens no other, and a stored policy takes back what it gave."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import quote

import pytest

from tests.permissions import PERMISSIONS
from tests.probes.client import Request
from tests.probes.holders import (
    CREATES_ONLY,
    FAILED,
    LACKING,
    LETTERS,
    NOT_HERE,
    Maker,
    for_blob,
    for_container,
    grants,
)
from tests.probes.judgement import refusal
from tests.probes.operations import LEASE, OPERATIONS, Operation, Place
from tests.probes.stage import Stage
from tests.probes.tokens import BLOB_LETTERS, CONTAINER_LETTERS, moment, service_token
from tests.server import ACCOUNT, KEY

REACHED_BY_CONTAINER = [
    pytest.param(operation, id=str(operation), marks=operation.marks)
    for operation in OPERATIONS
    if grants(operation, for_container, CONTAINER_LETTERS)
]
REACHED_BY_BLOB = [
    pytest.param(operation, id=str(operation), marks=operation.marks)
    for operation in OPERATIONS
    if grants(operation, for_blob, BLOB_LETTERS)
]
OUT_OF_REACH = [
    pytest.param(operation, maker, id=f"{operation}-{maker.__name__}", marks=operation.marks)
    for maker in (for_container, for_blob)
    for operation in OPERATIONS
    if not grants(operation, maker, LETTERS[maker])
]
CLOSED = (FAILED, NOT_HERE)


@pytest.fixture(scope="module")
def shelf(stage: Stage) -> Place:
    """What the tokens are for; everything else is out of their reach."""
    return stage.make()


# Other places


@pytest.mark.parametrize("operation", REACHED_BY_CONTAINER)
def test_another_container(stage: Stage, shelf: Place, operation: Operation) -> None:
    neighbours = [shelf.container[:-1] + "z", f"{shelf.container}-z", shelf.container.upper()]
    with stage.place_for(operation) as other, stage.unchanged():
        token = for_container(operation, shelf)
        paths = [operation.request(other).path]
        paths += [
            operation.request(shelf).path.replace(shelf.container, name) for name in neighbours
        ]
        paths += [
            f"/{ACCOUNT}/{shelf.container}%2F..%2F{other.container}/{other.blob}",
            f"/{ACCOUNT}/{other.container}/../{shelf.container}/{shelf.blob}",
            f"/{ACCOUNT}//{shelf.container}/{shelf.blob}",
            f"/{ACCOUNT}/$root/{shelf.container}",
        ]
        for path in paths:
            answer = stage.client.ask(token.put_on(replace(operation.request(shelf), path=path)))
            # No container is listed under what is the name of a blob.
            expected = (*CLOSED, (400, "InvalidQueryParameterValue"))
            assert not refusal(answer, *expected), (path, answer)


def _beside(place: Place) -> Iterator[str]:
    yield f"{place.container}/{place.blob}2"
    yield f"{place.container}/{place.blob[:-1]}"
    yield f"{place.container}/{place.blob}/"
    yield f"{place.container}/{place.blob}/below"
    yield f"{place.container}/{place.blob.upper()}"
    yield f"{place.container}/{place.blob}%00"
    yield f"{place.container}/{place.blob}%0A"
    yield f"{place.container}/./{place.blob}"
    yield f"{place.container}//{place.blob}"
    yield f"{place.container}/{place.blob}/../{place.blob}2"
    yield place.container


@pytest.mark.parametrize("operation", REACHED_BY_BLOB)
def test_another_blob(stage: Stage, shelf: Place, operation: Operation) -> None:
    with stage.unchanged():
        token = service_token(ACCOUNT, KEY, shelf.container, shelf.blob)
        request = operation.request(shelf)
        for path in _beside(shelf):
            asked = replace(request, path=f"/{ACCOUNT}/{path}")
            answer = stage.client.ask(token.put_on(asked))
            assert not refusal(answer, *CLOSED), (path, answer)


@pytest.mark.parametrize(("operation", "maker"), OUT_OF_REACH)
def test_above_the_token(stage: Stage, operation: Operation, maker: Maker) -> None:
    """A token for a blob opens no container, and none for a container the service."""
    with stage.place_for(operation) as place, stage.unchanged():
        answer = stage.client.ask(maker(operation, place).put_on(operation.request(place)))
        assert not refusal(answer, *CLOSED, LACKING), answer


@pytest.mark.parametrize("operation", REACHED_BY_BLOB)
def test_a_directory(stage: Stage, operation: Operation) -> None:
    """How deep it lies is not signed, so it must follow from the path."""
    with stage.place_for(operation) as place:
        shelf = place.blob.partition("/")[0]
        token = service_token(ACCOUNT, KEY, place.container, shelf, sr="d", sdd="1")
        request = operation.request(place)
        with stage.unchanged():
            for depth in ("0", "2", "-1", "01x", "", "99999"):
                answer = stage.client.ask(token.setting("sdd", depth).put_on(request))
                assert not refusal(answer, *CLOSED), (depth, answer)
            for beside in ("shelf2/book", "other/shelf/book", "shelf/../other", "shelf//book"):
                path = f"/{ACCOUNT}/{place.container}/{beside}"
                answer = stage.client.ask(token.put_on(replace(request, path=path)))
                assert not refusal(answer, *CLOSED), (beside, answer)
        answer = stage.client.ask(token.put_on(request))
        assert 200 <= answer.status < 300, answer


@pytest.mark.parametrize("operation", REACHED_BY_BLOB)
def test_a_snapshot(stage: Stage, operation: Operation) -> None:
    """A token for a snapshot is none for the blob, nor for another snapshot of it."""
    with stage.place_for(operation) as place:
        request = operation.request(place)
        path = f"/{ACCOUNT}/{place.container}/{place.blob}"
        take = Request("PUT", path, (("comp", "snapshot"),))
        if operation.aborts:
            # What is still being copied has none.
            return
        lease = (("x-ms-lease-id", LEASE),) if operation.needs_lease else ()
        first, second = (
            stage.own(replace(take, headers=lease)).headers["x-ms-snapshot"] for _ in range(2)
        )
        token = service_token(ACCOUNT, KEY, place.container, place.blob, snapshot=first, sr="bs")
        with stage.unchanged():
            for asked in (
                request,
                request.asking(("snapshot", quote(second))),
                request.asking(("snapshot", "")),
                request.asking(("snapshot", quote(first)), ("snapshot", quote(second))),
                request.asking(("snapshot", quote(first)), ("snapshot", "")),
                request.asking(("SNAPSHOT", quote(first)), ("snapshot", quote(second))),
            ):
                answer = stage.client.ask(token.put_on(asked))
                assert not refusal(answer, *CLOSED), (asked, answer)
        if operation.row == "get_account_information":
            # It is the same for all, and is not asked of snapshots.
            return
        asked = token.put_on(request.asking(("snapshot", quote(first))))
        if "bs" in PERMISSIONS[f"blob.{operation.row}"].resources:
            answer = stage.client.ask(asked)
            assert 200 <= answer.status < 300, answer
            return
        with stage.unchanged():
            answer = stage.client.ask(asked)
            assert not refusal(answer, *CLOSED), answer


@pytest.mark.parametrize("prefix", ["", "s", "shelf", "shelf2/", "/shelf/", "other/", "shelf/../"])
def test_a_directory_is_listed_alone(stage: Stage, shelf: Place, prefix: str) -> None:
    token = service_token(ACCOUNT, KEY, shelf.container, "shelf", sr="d", sdd="1")
    query = (("restype", "container"), ("comp", "list"))
    listing = Request("GET", f"/{ACCOUNT}/{shelf.container}", query)
    inside = stage.client.ask(token.put_on(listing.asking(("prefix", "shelf/"))))
    assert inside.status == 200
    assert inside.body.count(b"<Blob>") == 1
    answer = stage.client.ask(token.put_on(listing.asking(("prefix", prefix))))
    assert not refusal(answer, *CLOSED), answer.body
    # Said twice, it is a prefix that nothing has.
    twice = token.put_on(listing.asking(("prefix", "shelf/"), ("prefix", prefix)))
    assert b"<Blob>" not in stage.client.ask(twice).body


# Stored policies


def _set_policy(stage: Stage, place: Place, *policies: tuple[str, str, str, str]) -> None:
    """Each with its id, start, expiry and permissions."""
    identifiers = "".join(
        f"<SignedIdentifier><Id>{name}</Id><AccessPolicy><Start>{start}</Start>"
        f"<Expiry>{expiry}</Expiry><Permission>{permission}</Permission></AccessPolicy>"
        "</SignedIdentifier>"
        for name, start, expiry, permission in policies
    )
    body = f"<SignedIdentifiers>{identifiers}</SignedIdentifiers>".encode()
    query = (("restype", "container"), ("comp", "acl"))
    stage.own(Request("PUT", f"/{ACCOUNT}/{place.container}", query, (), body))


@pytest.mark.parametrize("operation", REACHED_BY_CONTAINER)
def test_a_stored_policy_takes_back(stage: Stage, operation: Operation) -> None:
    past, future = moment(hours=-1), moment(hours=1)
    every = CONTAINER_LETTERS
    useless = "".join(letter for letter in every if not grants(operation, for_container, letter))
    too_little = (LACKING, CREATES_ONLY) if useless else (FAILED,)
    with stage.place_for(operation) as place:
        token = service_token(ACCOUNT, KEY, place.container, si="readers")
        signed = token.put_on(operation.request(place))
        for policies, expected in (
            ((), (FAILED,)),
            ((("Readers", past, future, every),), (FAILED,)),
            ((("readers2", past, future, every), ("reader", past, future, every)), (FAILED,)),
            ((("readers", past, past, every),), (FAILED,)),
            ((("readers", future, moment(hours=2), every),), (FAILED,)),
            ((("readers", past, future, ""),), (FAILED,)),
            ((("readers", past, "", every),), (FAILED,)),
            ((("readers", past, future, useless),), too_little),
        ):
            _set_policy(stage, place, *policies)
            with stage.unchanged():
                answer = stage.client.ask(signed)
                assert not refusal(answer, *expected), (policies, answer)
        _set_policy(stage, place, ("readers", past, future, every))
        with stage.unchanged():
            for name, value in (("sp", every), ("se", future), ("st", past)):
                said_twice = service_token(
                    ACCOUNT, KEY, place.container, si="readers", **{name: value}
                )
                answer = stage.client.ask(said_twice.put_on(operation.request(place)))
                assert not refusal(answer, FAILED), (name, answer)
        # Nothing but the policy was in its way.
        answer = stage.client.ask(signed)
        assert 200 <= answer.status < 300, answer


def test_a_policy_of_another_container(stage: Stage, shelf: Place) -> None:
    place = stage.make()
    _set_policy(stage, place, ("readers", moment(hours=-1), moment(hours=1), "r"))
    token = service_token(ACCOUNT, KEY, shelf.container, si="readers")
    answer = stage.client.ask(
        token.put_on(Request("GET", f"/{ACCOUNT}/{shelf.container}/{shelf.blob}"))
    )
    assert not refusal(answer, FAILED)
    stage.remove(place)
