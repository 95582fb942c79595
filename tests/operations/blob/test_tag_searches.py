"""Searches by tags with every engine: results, order and cost."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import pytest
from hypothesis import strategies as st

from etagere.engine.interface import Counted, ReadTxn
from etagere.engine.records import Collection, K, R, Span
from etagere.model.blobs import BlobName, DeleteBlob, Tags
from etagere.model.containers import ContainerName, DeleteContainer
from etagere.operations.blob import tags as operations
from etagere.operations.blob.blobs import delete_blob
from etagere.operations.blob.containers import delete_container
from etagere.operations.blob.tags import FindBlobs
from etagere.rules.tag_expressions import parse_condition
from tests.operations.blob.fixture import BOX, BlobFixture, blob_property_test, blob_test
from tests.operations.blob.test_tags import OTHER, RED, asked, found, put, require_indexed, tag
from tests.operations.counting import CountingTxn
from tests.operations.fixture import ACCOUNT, code_of
from tests.operations.pages import FoundBlobs, find_blobs


@blob_test
async def test_results_have_only_the_searched_tags(blobs: BlobFixture) -> None:
    await blobs.create()
    await put(blobs, "blob", (("a", "1"), ("b", "2"), ("c", "3")))
    page = await blobs.read(find_blobs, asked("c >= '1' AND a = '1'"))
    ((place, tags),) = page.blobs
    assert (place.container, place.blob) == ("box", "blob")
    assert tags == (("a", "1"), ("c", "3"))


@blob_test
async def test_a_search_is_limited_to_its_account_and_container(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.create(OTHER)
    elsewhere = ContainerName("elsewhere", "box")
    await blobs.create(elsewhere)
    for container in (BOX, OTHER, elsewhere):
        await put(blobs, "blob", RED, container)
    for where in ("color = 'red'", "color > 'r'"):
        assert await found(blobs, where) == ["box/blob", "other/blob"]
        assert await found(blobs, where, container=OTHER) == ["other/blob"]
        assert await found(blobs, f"{where} AND @container = 'other'") == ["other/blob"]
        assert await found(blobs, f"{where} AND @container = 'nowhere'") == []
        assert await found(blobs, f"{where} AND @container = 'box'", container=OTHER) == []
    missing = asked("color = 'red'", container=ContainerName(ACCOUNT, "nowhere"))
    assert await code_of(blobs.read(find_blobs, missing)) == "ContainerNotFound"


class Example(NamedTuple):
    blobs: list[tuple[str, str, dict[str, str]]]
    terms: list[tuple[str, str, str]]
    scope: str
    limit: int
    probes: tuple[int, ...]


_names = st.sampled_from(["a", "b", "c"])
_values = st.sampled_from(["", "1", "10", "2", "3"])
EXAMPLES = st.builds(
    Example,
    st.lists(
        st.tuples(
            st.sampled_from(["box", "other"]),
            st.sampled_from(["x", "x\0", "x\0y", "xy", "ü", "\U0001f600", "\uffee"]),
            st.dictionaries(_names, _values, max_size=3),
        ),
        max_size=12,
    ),
    st.lists(
        st.tuples(_names, st.sampled_from(["=", ">", ">=", "<", "<="]), _values),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from(["", "box", "other"]),
    st.integers(1, 4),
    st.sampled_from([(), (2,), (64,)]),
)


@blob_property_test(EXAMPLES, count=100)
async def test_searches_match_a_model(blobs: BlobFixture, example: Example) -> None:
    kept = {(container, name): tags for container, name, tags in example.blobs}
    for container in (BOX, OTHER):
        if await code_of(blobs.create(container)):
            await blobs.write(delete_container, DeleteContainer(container))
            await blobs.create(container)
    await asyncio.gather(
        *(
            put(blobs, name, tuple(sorted(tags.items())), ContainerName(ACCOUNT, container))
            for (container, name), tags in kept.items()
        )
    )
    where = " AND ".join(f"{name} {written} '{value}'" for name, written, value in example.terms)
    condition: Any = parse_condition(where)
    expected = [
        f"{container}/{name}"
        for (container, name), tags in sorted(kept.items())
        if condition.matches(tags) and example.scope in ("", container)
    ]
    scope = ContainerName(ACCOUNT, example.scope) if example.scope else None
    with pytest.MonkeyPatch.context() as patch:
        # Lowers the limits, so that few blobs are many.
        patch.setattr(operations, "_PROBES", example.probes)
        patch.setattr(operations, "_STEPS", (2, 3))
        patch.setattr(operations, "_VISITED_MAX", 3)
        assert await found(blobs, where, example.limit, container=scope) == expected


@blob_test
async def test_blobs_that_match_throughout_are_found_once(blobs: BlobFixture) -> None:
    """While others are added, removed and changed."""
    await blobs.create()
    tagged = (put(blobs, f"{n:02}", (("n", str(n % 10)),)) for n in range(40))
    await asyncio.gather(*tagged)
    for probes in ((), (64,)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(operations, "_PROBES", probes)
            command, seen = asked("n >= '0'", 3), list[str]()
            for turn in range(1, 100):
                page = await blobs.read(find_blobs, command)
                seen += [place.blob for place, _ in page.blobs]
                if page.following is None:
                    break
                command = command._replace(start=page.following)
                # A blob before the cursor and one after it swap values; one is added and one
                # removed.
                await tag(blobs, f"{turn % 40:02}", (("n", "9"),))
                await tag(blobs, f"{39 - turn % 20:02}", (("n", "0"),))
                await put(blobs, f"new {turn}", (("n", "5"),))
                gone = BlobName(BOX, f"new {turn - 1}")
                await code_of(blobs.write(delete_blob, DeleteBlob(gone)))
            assert [name for name in seen if not name.startswith("new")] == [
                f"{number:02}" for number in range(40)
            ]
            assert len(seen) == len(set(seen))
    await blobs.read(require_indexed, None)


# Cost


class CountingReads(CountingTxn):
    """Counts the reads as well as the rows."""

    def get(self, collection: Collection[K, R], key: K) -> R | None:
        self.rows += 1
        return super().get(collection, key)

    def scan(
        self, collection: Collection[K, R], span: Span, limit: int, *, reverse: bool = False
    ) -> list[tuple[K, R]]:
        self.rows += 1
        return super().scan(collection, span, limit, reverse=reverse)

    def count(self, collection: Collection[K, R], span: Span, limit: int) -> Counted:
        raise AssertionError("a search counts nothing")


def counted(txn: ReadTxn, command: FindBlobs) -> tuple[FoundBlobs, int]:
    looks = CountingReads(txn)
    return find_blobs(looks, command), looks.rows


RARE: Tags = (("kind", "common"), ("number", "00007"), ("rare", "yes"))


async def _put_numbered(blobs: BlobFixture, number: int, container: ContainerName) -> None:
    tags: Tags = (("kind", "common"), ("number", f"{number:05}"))
    await put(blobs, f"{number:05}", tags, container if number % 2 else BOX)


async def _fill(blobs: BlobFixture, numbers: range) -> None:
    """Puts half of the blobs in a container that comes first and is deleted."""
    container = ContainerName(ACCOUNT, f"a-{numbers.start}")
    await blobs.create(container)
    await asyncio.gather(*(_put_numbered(blobs, number, container) for number in numbers))
    await blobs.write(delete_container, DeleteContainer(container))


@blob_test
async def test_cost_of_a_search_follows_its_results(blobs: BlobFixture) -> None:
    await blobs.create()
    await blobs.create(OTHER)
    await put(blobs, "rare", RARE)
    await put(blobs, "apart", RARE[:2], OTHER)
    searches = [
        asked("rare = 'yes'"),
        asked("kind = 'common' AND rare = 'yes'"),
        asked("kind = 'common' AND number >= '00002' AND number < '00010'"),
        asked("number > '00139' AND number < '00142'"),
        asked("number > '00139' AND number < '00142'", container=BOX),
        asked("kind = 'common'", 5),
        asked("kind = 'common'", 5, container=BOX),
        asked("kind = 'common' AND kind > 'a' AND rare < 'z'", 5),
        asked("kind = 'common' AND missing = ''"),
        asked("kind = 'common' AND number >= ''", container=OTHER),
    ]
    costs: list[list[int]] = []
    for numbers in (range(150), range(150, 650)):
        await _fill(blobs, numbers)
        result = [await blobs.read(counted, search) for search in searches]
        costs.append([cost for _, cost in result])
        assert [len(page.blobs) for page, _ in result] == [1, 1, 6, 1, 1, 5, 5, 1, 0, 1]
    few, many = costs
    assert max(few) < 150, few
    assert all(later <= earlier + 100 for earlier, later in zip(few, many, strict=True)), costs


@blob_test
async def test_reads_per_page_are_bounded(blobs: BlobFixture) -> None:
    await blobs.create()
    for number in range(60):
        await put(blobs, f"{number:02}", (("a", str(number % 2)), ("b", str(number // 30))))
    await tag(blobs, "59", (("a", "0"), ("b", "1"), ("c", "")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operations, "_PROBES", (4,))
        patch.setattr(operations, "_STEPS", (4, 8))
        patch.setattr(operations, "_VISITED_MAX", 10)
        command, pages = asked("a = '0' AND b = '1'"), 0
        names: list[str] = []
        while pages < 100:
            page, cost = await blobs.read(counted, command)
            assert cost < 60
            names += [place.blob for place, _ in page.blobs]
            pages += 1
            if page.following is None:
                break
            command = command._replace(start=page.following)
    assert names == [f"{number:02}" for number in range(30, 60, 2)] + ["59"]
    assert pages > 2
