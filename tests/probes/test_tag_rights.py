"""Tags are set and read by those who may, and found by nobody where they may not look."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest

from tests.probes.client import VERSION, Pairs, Request
from tests.probes.holders import CREATES_ONLY, LACKING
from tests.probes.judgement import refusal
from tests.probes.operations import OPERATIONS, Operation, Place
from tests.probes.stage import Stage
from tests.probes.tokens import account_token, service_token
from tests.server import ACCOUNT, KEY, SECOND_ACCOUNT, SECOND_KEYS

TAGS = ("x-ms-tags", "kind=secret&more=less")
TAGGING = [
    form
    for form in OPERATIONS
    if form.row
    in {"put_blob", "put_block_list", "put_blob_from_url", "copy_blob", "copy_blob_from_url"}
]


# Set by those who may


@pytest.mark.parametrize("operation", TAGGING, ids=str)
def test_tags_with_a_blob_need_their_letter(stage: Stage, operation: Operation) -> None:
    blob = "free_blob" if operation.creates else "blob"
    with stage.place_for(operation) as place:
        name = getattr(place, blob)
        request = operation.request(place).having(TAGS)
        with stage.unchanged():
            for letters in ("w", "c", "racw", "racwdxylmeiop", "t", "rt"):
                token = service_token(ACCOUNT, KEY, place.container, name, permissions=letters)
                assert not refusal(stage.client.ask(token.put_on(request)), LACKING), letters
            for letters in ("rwdxylacup", "t", "tf"):
                wide = account_token(ACCOUNT, KEY, permissions=letters)
                assert not refusal(stage.client.ask(wide.put_on(request)), LACKING), letters
            if not operation.creates:
                # Who may create does not overwrite, and tags are no way around that.
                token = service_token(ACCOUNT, KEY, place.container, name, permissions="ct")
                assert not refusal(stage.client.ask(token.put_on(request)), CREATES_ONLY)
        token = service_token(ACCOUNT, KEY, place.container, name, permissions="wt")
        answer = stage.client.ask(token.put_on(request))
        assert 200 <= answer.status < 300, answer


@pytest.mark.parametrize("operation", TAGGING, ids=str)
def test_an_empty_header_sets_none(stage: Stage, operation: Operation) -> None:
    """So it needs no letter, and must leave none behind."""
    with stage.place_for(operation) as place:
        name = place.free_blob if operation.creates else place.blob
        token = service_token(ACCOUNT, KEY, place.container, name, permissions="w")
        answer = stage.client.ask(token.put_on(operation.request(place).having(("x-ms-tags", ""))))
        if answer.status < 300:
            path = f"/{ACCOUNT}/{place.container}/{name}"
            assert b"<Tag>" not in stage.own(Request("GET", path, (("comp", "tags"),))).body
        else:
            assert not refusal(answer)


def test_what_writes_without_tags_is_not_given_any(stage: Stage) -> None:
    """Other writes know no such header: whatever it says, the tags stay as they are."""
    rows = {"append_block", "put_page", "set_blob_metadata", "set_blob_properties", "put_block"}
    for operation in (form for form in OPERATIONS if form.row in rows and not form.creates):
        with stage.place_for(operation) as place:
            token = service_token(ACCOUNT, KEY, place.container, place.blob, permissions="w")
            stage.client.ask(token.put_on(operation.request(place).having(TAGS)))
            tags = Request("GET", f"/{ACCOUNT}/{place.container}/{place.blob}", (("comp", "tags"),))
            assert b"secret" not in stage.own(tags).body, operation


# Shown to those who may


@pytest.mark.parametrize("include", ["tags", "metadata,tags", "TAGS", "tags,tags"])
def test_tags_are_listed_to_those_who_may_read_them(stage: Stage, include: str) -> None:
    """A container that shows its blobs to everybody does not show their tags."""
    query = (("restype", "container"), ("comp", "list"), ("include", include))
    place = stage.make(access="container")
    listing = Request("GET", f"/{ACCOUNT}/{place.container}", query, (("x-ms-version", VERSION),))
    nobody = stage.client.ask(listing)
    assert not refusal(nobody, (401, "NoAuthenticationInformation")), nobody
    for token in (
        service_token(ACCOUNT, KEY, place.container, permissions="rlf"),
        account_token(ACCOUNT, KEY, permissions="rwdlf"),
    ):
        answer = stage.client.ask(token.put_on(listing))
        assert not refusal(answer, LACKING), answer
        assert b"book" not in answer.body
    both = service_token(ACCOUNT, KEY, place.container, permissions="lt")
    assert b"<Value>book</Value>" in stage.client.ask(both.put_on(listing)).body
    stage.remove(place)


# Found by those who may


def _find(container: str, where: str) -> Request:
    query: Pairs = (("comp", "blobs"), ("where", quote(where)))
    if container:
        query = (("restype", "container"), *query)
    return Request("GET", f"/{ACCOUNT}/{container}", query, (("x-ms-version", VERSION),))


@pytest.fixture(scope="module")
def shelves(stage: Stage) -> Iterator[tuple[Place, Place, Place]]:
    """Two containers, and one of another account, with the same in each."""
    places = stage.make(), stage.make(), stage.make(account=SECOND_ACCOUNT)
    yield places
    for place in places:
        stage.remove(place)


def test_a_container_is_searched_alone(stage: Stage, shelves: tuple[Place, Place, Place]) -> None:
    mine, other, foreign = shelves
    token = service_token(ACCOUNT, KEY, mine.container, permissions="f")
    own = stage.client.ask(token.put_on(_find(mine.container, "kind='book'")))
    assert own.status == 200
    assert own.body.count(b"<Blob>") == 1
    for where in (
        f"@container='{other.container}' AND kind='book'",
        f"kind='book' AND @container='{other.container}'",
        f"@container='{mine.container}' AND @container='{other.container}' AND kind='book'",
        f"@container='{other.container}' AND @container='{mine.container}' AND kind='book'",
        f"@container='{foreign.container}' AND kind='book'",
        "kind>'a'", "kind>=''", "@container>'' AND kind='book'", "kind='book' OR kind='book'",
    ):  # fmt: skip
        answer = stage.client.ask(token.put_on(_find(mine.container, where)))
        told = answer.body.partition(b"<Blobs")[2]
        assert other.container.encode() not in told, where
        assert foreign.container.encode() not in told, where
        assert answer.status == 200 or not refusal(answer), (where, answer)


def test_where_a_search_goes_on_is_no_way_out(
    stage: Stage, shelves: tuple[Place, Place, Place]
) -> None:
    """A marker of the owner's search of everything leads nowhere else in a search of one."""
    mine, other, foreign = shelves
    page = ("maxresults", "1")
    markers = set()
    marker = ""
    for _ in range(5):
        following = _find("", "kind='book'").asking(page, ("marker", quote(marker, safe="")))
        body = stage.own(following).body
        marker = body.partition(b"<NextMarker>")[2].partition(b"<")[0].decode()
        markers.add(marker)
        if not marker:
            break
    token = service_token(ACCOUNT, KEY, mine.container, permissions="f")
    for marker in filter(None, markers):
        request = _find(mine.container, "kind='book'").asking(("marker", quote(marker, safe="")))
        answer = stage.client.ask(token.put_on(request))
        told = answer.body.partition(b"<Blobs")[2]
        assert other.container.encode() not in told
        assert foreign.container.encode() not in told


def test_an_account_is_searched_alone(stage: Stage, shelves: tuple[Place, Place, Place]) -> None:
    mine, other, foreign = shelves
    told = stage.own(_find("", "kind='book'")).body
    assert mine.container.encode() in told
    assert other.container.encode() in told
    assert foreign.container.encode() not in told
    own = stage.own(_find("", f"@container='{foreign.container}' AND kind='book'")).body
    assert b"<Blob>" not in own
    second = account_token(SECOND_ACCOUNT, SECOND_KEYS[0])
    answer = stage.client.ask(second.put_on(_find("", "kind='book'")))
    assert not refusal(answer, (403, "AuthenticationFailed"))
