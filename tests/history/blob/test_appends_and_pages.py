"""Handwritten histories of append and page blobs, with times in seconds."""

from __future__ import annotations

from msgspec.structs import replace

from tests.history.blob.checker import ORDER, VERSIONS, check_history
from tests.history.blob.contents import PAGE_BYTES, pages_in, pages_of, size_of
from tests.history.blob.events import Done, History, Operation, Request, Seen, Verb
from tests.history.events import NANOSECONDS, Refused, Run, ServerKill, Unknown

Outcome = Done | Refused | Unknown
LOST = Unknown("lost")


def found_by(*operations: Operation, kills: tuple[ServerKill, ...] = ()) -> set[str]:
    return {finding.check for finding in check_history(History(Run("hand", 0), operations, kills))}


def at(began: float, ended: float, request: Request, outcome: Outcome) -> Operation:
    return Operation(0, request, int(began * NANOSECONDS), int(ended * NANOSECONDS), outcome)


def stamped(stamp: int, **seen: object) -> Done:
    return Done(replace(Seen(f'"0x{stamp}"', stamp), **seen))


# Append blobs, with increasing ETags; the blob exists from the beginning

CREATED = at(0, 1, Request(Verb.CREATE_APPEND, "blob", "c"), stamped(1))


def append(
    began: float, ended: float, token: str, outcome: Outcome, position: int | None = None
) -> Operation:
    return at(began, ended, Request(Verb.APPEND, "blob", token, position=position), outcome)


def get(began: float, ended: float, number: int, *tokens: str, sealed: bool = False) -> Operation:
    length = sum(map(size_of, tokens))
    done = stamped(
        number, content=tokens, origin="c", length=length, blocks=len(tokens), sealed=sealed
    )
    return at(began, ended, Request(Verb.GET, "blob"), done)


def added(number: int, *tokens: str) -> Done:
    """The answer to the append of the last of these blocks."""
    return stamped(number, length=sum(map(size_of, tokens)), blocks=len(tokens))


def test_concurrent_appends_have_one_order() -> None:
    both = append(2, 9, "a", added(3, "b", "a")), append(2, 9, "b", added(2, "b"))
    assert not found_by(CREATED, *both, get(3, 4, 2, "b"), get(10, 11, 3, "b", "a"))
    assert ORDER in found_by(CREATED, *both, get(10, 11, 3, "a", "b"))
    assert ORDER in found_by(CREATED, *both, get(3, 4, 3, "a"), get(10, 11, 3, "b", "a"))


def test_the_answer_has_the_position_of_an_appended_block() -> None:
    first = append(2, 3, "a", added(2, "a"))
    assert not found_by(CREATED, first, append(4, 5, "b", added(3, "a", "b")))
    assert found_by(CREATED, first, append(4, 5, "b", added(3, "b"))) == {ORDER}


def test_an_unknown_append_was_carried_out_once_or_not_at_all() -> None:
    lost = append(2, 3, "a", LOST)
    assert not found_by(CREATED, lost, get(4, 5, 1))
    assert not found_by(CREATED, lost, get(4, 5, 1), get(6, 7, 2, "a"))
    after = append(8, 9, "b", added(3, "a", "b"))
    assert not found_by(CREATED, lost, get(4, 5, 2, "a"), after, get(10, 11, 3, "a", "b"))
    assert found_by(CREATED, lost, after, get(10, 11, 3, "a", "b", "a"))
    assert found_by(CREATED, lost, get(4, 5, 2, "a"), get(6, 7, 3)) == {ORDER}
    # A version that no request made.
    assert found_by(CREATED, get(4, 5, 2)) == {ORDER}


def test_an_unknown_append_is_not_carried_out_after_a_kill_of_its_server() -> None:
    kill = ServerKill(int(3.5 * NANOSECONDS), int(3.6 * NANOSECONDS))
    history = CREATED, append(2, 3, "a", LOST), get(4, 5, 1), get(6, 7, 2, "a")
    assert not found_by(*history)
    assert found_by(*history, kills=(kill,)) == {ORDER}


def test_append_position_conditions() -> None:
    lost = append(2, 3, "a", LOST, position=0)
    refused = Refused("AppendPositionConditionNotMet")
    again = append(4, 5, "b", refused, position=0)
    assert not found_by(CREATED, lost, again, get(6, 7, 2, "a"))
    assert found_by(CREATED, lost, again, get(6, 7, 1)) == {ORDER}
    assert found_by(CREATED, again) == {ORDER}
    elsewhere = append(8, 9, "b", added(3, "a", "b"), position=0)
    assert found_by(CREATED, lost, get(6, 7, 2, "a"), elsewhere) == {ORDER}


def seal(began: float, ended: float, number: int, token: str) -> Operation:
    return at(began, ended, Request(Verb.SEAL, "blob", token), stamped(number, sealed=True))


def test_nothing_is_added_after_a_seal() -> None:
    sealed = seal(2, 3, 2, "s")
    assert not found_by(CREATED, sealed, append(4, 5, "a", Refused("BlobIsSealed")))
    assert found_by(CREATED, sealed, append(4, 5, "a", added(3, "a"))) == {ORDER}
    assert found_by(CREATED, append(4, 5, "a", Refused("BlobIsSealed"))) == {ORDER}


def test_a_second_seal_changes_nothing() -> None:
    assert not found_by(CREATED, seal(2, 3, 2, "s"), seal(4, 5, 2, "t"))
    assert found_by(CREATED, seal(2, 3, 2, "s"), seal(4, 5, 3, "t")) == {ORDER}
    unknown = at(2, 3, Request(Verb.SEAL, "blob", "s"), LOST)
    assert not found_by(CREATED, unknown, seal(4, 5, 2, "t"), get(6, 7, 2, sealed=True))


# Page blobs of two pages, whose sequence number is 5

TWO_PAGES = at(0, 1, Request(Verb.CREATE_PAGES, "blob", "c", count=2, number=5), stamped(1))


def put_pages(
    began: float,
    ended: float,
    token: str,
    outcome: Outcome,
    *,
    comparison: str = "",
    limit: int = 0,
) -> Operation:
    """To both."""
    request = Request(Verb.PUT_PAGES, "blob", token, count=2, comparison=comparison, number=limit)
    return at(began, ended, request, outcome)


def clear_first(began: float, ended: float, outcome: Outcome) -> Operation:
    return at(began, ended, Request(Verb.CLEAR_PAGES, "blob", "x", count=1), outcome)


def pages(number: int, *tokens: str) -> Done:
    length = len(tokens) * PAGE_BYTES
    return stamped(number, content=tokens, origin="c", length=length, number=5)


def get_pages(began: float, ended: float, number: int, *tokens: str) -> Operation:
    return at(began, ended, Request(Verb.GET, "blob"), pages(number, *tokens))


def test_overlapping_page_writes_follow_each_other() -> None:
    both = put_pages(2, 9, "a", stamped(2)), put_pages(2, 9, "b", stamped(3))
    assert not found_by(
        TWO_PAGES, *both, get_pages(3, 4, 2, "a", "a"), get_pages(10, 11, 3, "b", "b")
    )
    assert found_by(TWO_PAGES, *both, get_pages(10, 11, 3, "b", "a")) == {ORDER}
    assert found_by(TWO_PAGES, *both, get_pages(3, 4, 3, "b", "b"), get_pages(10, 11, 2, "a", "a"))


def test_an_unknown_clear_is_decided_by_later_reads() -> None:
    before = TWO_PAGES, put_pages(2, 3, "a", stamped(2)), clear_first(4, 5, LOST)
    assert not found_by(*before, get_pages(6, 7, 2, "a", "a"))
    assert not found_by(*before, get_pages(6, 7, 3, "", "a"))
    assert found_by(*before, get_pages(6, 7, 3, "a", "a")) == {ORDER}
    listed = at(6, 7, Request(Verb.LIST_PAGES, "blob"), Done(Seen(pages=(1,))))
    assert not found_by(*before, listed)
    assert found_by(*before, listed, get_pages(8, 9, 2, "a", "a")) == {ORDER}


def test_sequence_number_conditions() -> None:
    refused = Refused("SequenceNumberConditionNotMet")
    for comparison, met, unmet in (("lte", 5, 4), ("lt", 6, 5), ("eq", 5, 6)):
        for limit, right, wrong in ((met, stamped(2), refused), (unmet, refused, stamped(2))):
            allowed = put_pages(2, 3, "a", right, comparison=comparison, limit=limit)
            assert not found_by(TWO_PAGES, allowed)
            other = put_pages(2, 3, "a", wrong, comparison=comparison, limit=limit)
            assert found_by(TWO_PAGES, other) == {ORDER}


def snapshot(began: float, ended: float, number: int) -> Operation:
    done = stamped(number, snapshot="then")
    return at(began, ended, Request(Verb.SNAPSHOT, "blob"), done)


def get_snapshot(began: float, ended: float, outcome: Outcome) -> Operation:
    return at(began, ended, Request(Verb.GET_SNAPSHOT, "blob", snapshot="then"), outcome)


def test_a_snapshot_never_changes() -> None:
    with_snapshot = TWO_PAGES, put_pages(2, 3, "a", stamped(2)), snapshot(4, 5, 2)
    then = pages(2, "a", "a")
    assert not found_by(*with_snapshot, put_pages(6, 7, "b", stamped(3)), get_snapshot(8, 9, then))
    assert ORDER in found_by(*with_snapshot, get_snapshot(8, 9, pages(1, "", "")))
    changed = get_snapshot(8, 9, then), get_snapshot(10, 11, pages(2, "b", "b"))
    assert found_by(*with_snapshot, put_pages(6, 7, "b", stamped(3)), *changed) == {ORDER, VERSIONS}


def test_a_snapshot_exists_until_it_is_deleted() -> None:
    with_snapshot = TWO_PAGES, snapshot(2, 3, 1)
    not_found = get_snapshot(8, 9, Refused("BlobNotFound"))
    delete = at(4, 5, Request(Verb.DELETE, "blob"), Done())
    assert not found_by(*with_snapshot, delete, not_found)
    assert not found_by(*with_snapshot, replace(delete, outcome=LOST), not_found)
    assert found_by(*with_snapshot, not_found) == {ORDER}
    assert found_by(*with_snapshot, delete, get_snapshot(8, 9, pages(1, "", ""))) == {ORDER}


def test_a_misplaced_page_is_detected() -> None:
    three = pages_of("a", 0, 3)
    assert pages_in(three) == ("a", "a", "a")
    assert pages_in(bytes(PAGE_BYTES) + three[PAGE_BYTES:]) == ("", "a", "a")
    torn = pages_in(three[:700] + pages_of("b", 0, 3)[700:])
    assert torn[::2] == ("a", "b")
    assert torn[1].startswith("damaged")
    # A page in the place of another.
    assert pages_in(three[PAGE_BYTES:])[0].startswith("damaged")
