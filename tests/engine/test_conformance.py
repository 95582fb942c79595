"""The conformance suite: runs against every engine."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from etagere.clock import TICKS_PER_SECOND
from etagere.engine.interface import Engine, Fault, FaultReason, Refused
from etagere.engine.keys import KEY_BYTES_MAX
from etagere.engine.records import TEXT, UINT_MAX, Collection, Span
from etagere.engine.timeline import SLEW_PPM_MAX
from etagere.model.base import Record
from tests.engine import samples
from tests.engine.harness import Harness, Start, conformance, retries_of, with_harness
from tests.engine.samples import (
    EVERY_KIND,
    ITEMS,
    NAMED,
    Claim,
    Everything,
    Instant,
    Item,
    Key,
    Piece,
    PutEveryKind,
    PutItem,
    PutItems,
    PutLarge,
    PutNamed,
    PutWithHooks,
    Scan,
    Sent,
    Transfer,
    Wait,
    WriteAndLook,
)

HOUR = 3600 * TICKS_PER_SECOND
FIRST_ID, SECOND_ID, LAST_ID = b"\x00" * 16, b"\x01" * 16, b"\xfe" + b"\xff" * 15


async def put(engine: Engine, *keys: str) -> None:
    await engine.write(samples.put_items, PutItems([PutItem(key, Item(key)) for key in keys]))


async def stamp(engine: Engine, key: str = "key") -> Instant:
    return await engine.write(samples.stamp_record, Key(key))


async def now(engine: Engine) -> int:
    return await engine.read(samples.read_now, None)


# Records and scans


@conformance
async def test_put_get_delete(harness: Harness) -> None:
    engine = await harness.open()
    assert await engine.read(samples.get_item, "key") is None
    item = Item("text", 5)
    assert await engine.write(samples.put_item, PutItem("key", item)) == item
    assert await engine.read(samples.get_item, "key") == item
    await engine.write(samples.put_item, PutItem("key", Item("other")))
    assert await engine.read(samples.get_item, "key") == Item("other")
    await engine.write(samples.delete_item, Key("key"))
    assert await engine.read(samples.get_item, "key") is None
    await engine.write(samples.delete_item, Key("key"))


@conformance
async def test_one_handle_sees_what_another_wrote(harness: Harness) -> None:
    first, second = await harness.open(), await harness.open()
    for number in range(20):
        await first.write(samples.put_item, PutItem("key", Item(number=number)))
        assert await second.read(samples.get_item, "key") == Item(number=number)
        assert await second.write(samples.send_maybe, Key("key")) == Item(number=number)


@conformance
async def test_records_outlive_a_restart(harness: Harness) -> None:
    await put(await harness.open(), "a", "b")
    await harness.restart()
    engine = await harness.open()
    assert await engine.read(samples.scan_items, Scan(ITEMS.all())) == ["a", "b"]


@conformance
async def test_large_records(harness: Harness) -> None:
    engine = await harness.open()
    for size in (0, 1, 4096, 1 << 20):
        data = bytes(size)
        await engine.write(samples.put_large, PutLarge(b"\x00\xff", data))
        found = await engine.read(samples.get_large, b"\x00\xff")
        assert found is not None
        assert found.data == data


@conformance
async def test_scans(harness: Harness) -> None:
    engine = await harness.open()

    async def scan(span: Span, limit: int = 100, reverse: bool = False) -> list[str]:
        return await engine.read(samples.scan_items, Scan(span, limit, reverse))

    async def count(span: Span, limit: int = 4) -> int:
        """Counts in steps."""
        count, rest = 0, span
        while True:
            counted = await engine.read(samples.count_items, samples.CountItems(rest, limit))
            assert counted.records <= limit
            count += counted.records
            if counted.rest is None:
                return count
            rest = counted.rest

    everything = ITEMS.all()
    assert await scan(everything) == []
    assert await scan(everything, reverse=True) == []
    assert await count(everything) == 0
    await put(engine, "b/2", "a", "b/1", "c", "b", "b/1/x")
    keys = ["a", "b", "b/1", "b/1/x", "b/2", "c"]
    assert await scan(everything) == keys
    assert await scan(everything, reverse=True) == keys[::-1]
    for limit in range(8):
        assert await scan(everything, limit) == keys[:limit]
        assert await scan(everything, limit, reverse=True) == keys[::-1][:limit]

    assert await count(everything) == len(keys)
    below = ITEMS.under((), "b/")
    assert await count(below) == 3
    assert await scan(below) == ["b/1", "b/1/x", "b/2"]
    assert await scan(below, 2, reverse=True) == ["b/2", "b/1/x"]
    assert await scan(ITEMS.under((), "d")) == []
    assert await scan(ITEMS.under(("b",))) == ["b"]
    assert await scan(ITEMS.after(below, ("b/1",))) == ["b/1/x", "b/2"]
    assert await scan(ITEMS.after(below, ("b/2",))) == []
    assert await scan(ITEMS.after(below, ("a",))) == ["b/1", "b/1/x", "b/2"]
    assert await scan(ITEMS.starting(below, ("b/1/x",))) == ["b/1/x", "b/2"]
    assert await scan(ITEMS.starting(below, ("b/1/a",))) == ["b/1/x", "b/2"]
    assert await scan(ITEMS.starting(below, ("c",))) == []


@conformance
async def test_scans_page_through_everything(harness: Harness) -> None:
    engine = await harness.open()
    keys = [f"{number:03}" for number in range(97)]
    await put(engine, *keys)
    seen: list[str] = []
    span = ITEMS.all()
    while page := await engine.read(samples.scan_items, Scan(span, 10)):
        seen += page
        span = ITEMS.after(span, (page[-1],))
    assert seen == keys


@conformance
async def test_prefixes_stay_within_their_parent(harness: Harness) -> None:
    engine = await harness.open()
    names = ["", "a", "a\x00", "a\x00b", "ab", "\x00", "é", "\U0010ffff"]
    parents = [FIRST_ID, SECOND_ID, LAST_ID]
    keys = list(itertools.product(parents, names))
    await engine.write(samples.put_named, PutNamed(keys))
    for parent in parents:
        found = await engine.read(samples.scan_named, Scan(NAMED.under((parent,))))
        assert found == [(parent, name) for name in sorted(names)]
        for prefix in ("a", "a\x00", "\x00", "é"):
            found = await engine.read(samples.scan_named, Scan(NAMED.under((parent,), prefix)))
            assert found == [(parent, n) for n in sorted(names) if n.startswith(prefix)]


@conformance
async def test_keys_of_every_kind_lie_in_the_order_of_their_tuples(harness: Harness) -> None:
    engine = await harness.open()
    keys = list(
        itertools.product(
            [FIRST_ID, SECOND_ID, LAST_ID],
            [b"", b"\x00", b"\x00\x00", b"\x00\xff", b"a", b"\xff", b"\xff\xff"],
            [0, 1, 255, 256, UINT_MAX],
            ["", "\x00", "a", "a\x00", "a\x01", "aa", "é", "\uffff", "\U0001f600"],
        )
    )
    await engine.write(samples.put_every_kind, PutEveryKind(keys[::-1]))
    everything = EVERY_KIND.all()
    assert await engine.read(samples.scan_every_kind, Scan(everything, 10_000)) == sorted(keys)
    backward = await engine.read(samples.scan_every_kind, Scan(everything, 10_000, True))
    assert backward == sorted(keys, reverse=True)


@conformance
async def test_arbitrary_text(harness: Harness) -> None:
    engine = await harness.open()
    texts = ["", "\x00", "a\x00b", "\x00\xff", "é", "e\u0301", "日本語", "\U0001f600", " ", "\r\n"]
    for text in texts:
        item = Item(text, len(text))
        assert await engine.write(samples.put_item, PutItem(text, item)) == item
        assert await engine.read(samples.get_item, text) == item
    assert await engine.read(samples.scan_items, Scan(ITEMS.all())) == sorted(texts)


@conformance
async def test_keys_up_to_their_limit(harness: Harness) -> None:
    engine = await harness.open()
    longest = "x" * (KEY_BYTES_MAX - 1)  # plus the terminator
    neighbour = longest[:-1] + "y"
    await put(engine, neighbour, longest)
    assert await engine.read(samples.get_item, longest) == Item(longest)
    assert await engine.read(samples.scan_items, Scan(ITEMS.all())) == [longest, neighbour]
    assert await engine.read(samples.scan_items, Scan(ITEMS.under((), longest))) == [longest]
    widest = (LAST_ID, "\U0001f600" * 1024)
    await engine.write(samples.put_named, PutNamed([widest]))
    assert await engine.read(samples.get_named, widest) == Item(widest[1])


@conformance
async def test_keys_beyond_their_limit(harness: Harness) -> None:
    engine = await harness.open()
    too_long = "x" * KEY_BYTES_MAX
    with pytest.raises(ValueError, match="8192 is the limit"):
        ITEMS.pack((too_long,))
    with pytest.raises(Fault) as fault:
        await put(engine, "before", too_long)
    assert fault.value.reason is FaultReason.FAILED
    assert await engine.read(samples.scan_items, Scan(ITEMS.all())) == []


# Isolation


@conformance
async def test_an_operation_sees_its_own_writes(harness: Harness) -> None:
    engine = await harness.open()
    await put(engine, "a", "c", "e")
    seen = await engine.write(
        samples.write_and_look, WriteAndLook(PutItem("b", Item("new")), delete="c", guarded="a")
    )
    assert seen.put == Item("new")
    assert seen.deleted is None
    assert seen.forward == ["a", "b", "e"]
    assert seen.reverse == ["e", "b", "a"]
    assert seen.two_forward == ["a", "b"]
    assert seen.two_reverse == ["e", "b"]


@conformance
async def test_a_read_sees_one_state_beside_writers(harness: Harness) -> None:
    """Transfers keep the sum; a read that saw two states would see another.

    Only an engine whose writes run in another process is really tested here; the others step a
    snapshot explicitly in their own tests."""
    reader, writer = await harness.open(), await harness.open()
    keys = [f"{number:02}" for number in range(40)]
    await writer.write(
        samples.put_items, PutItems([PutItem(key, Item(number=100)) for key in keys])
    )
    done = asyncio.Event()
    looks = 0

    async def move(offset: int) -> None:
        for step in itertools.count():
            if step >= 40 and looks > 10:
                return
            source, target = keys[(offset + step) % 40], keys[(offset + 7 * step + 1) % 40]
            await writer.write(samples.transfer, Transfer(source, target, step))

    async def look() -> None:
        nonlocal looks
        while not done.is_set():
            seen = await reader.read(samples.sum_twice, keys)
            assert seen == (4000, 4000)
            looks += 1
            await asyncio.sleep(0)

    async def move_all() -> None:
        await asyncio.gather(*(move(offset) for offset in range(0, 40, 5)))

    running = [asyncio.create_task(look()), asyncio.create_task(move_all())]
    await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    done.set()
    await asyncio.gather(*running)


@conformance
async def test_guarded_increments_lose_nothing(harness: Harness) -> None:
    engines = [await harness.open(), await harness.open()]

    async def count(task: int) -> list[int]:
        engine = engines[task % 2]
        return [await engine.write(samples.count_up, Key("counter")) for _ in range(4)]

    counted = await asyncio.gather(*(count(task) for task in range(50)))
    assert sorted(itertools.chain(*counted)) == list(range(1, 201))
    assert await engines[0].read(samples.get_item, "counter") == Item(number=200)


@conformance
async def test_one_of_many_creates(harness: Harness) -> None:
    engines = [await harness.open(), await harness.open()]
    creations = [
        engines[task % 2].write(samples.create_once, PutItem("name", Item(number=task)))
        for task in range(40)
    ]
    outcomes = await asyncio.gather(*creations, return_exceptions=True)
    created = [outcome for outcome in outcomes if isinstance(outcome, Item)]
    refused = [outcome for outcome in outcomes if isinstance(outcome, Refused)]
    assert len(created) == 1
    assert len(refused) == 39
    assert await engines[0].read(samples.get_item, "name") == created[0]


@conformance
async def test_the_last_writer_wins(harness: Harness) -> None:
    first, second = await harness.open(), await harness.open()
    instants = await asyncio.gather(*(stamp(e) for _ in range(20) for e in (first, second)))
    last = await first.read(samples.get_stamped, "key")
    assert last is not None
    assert last.stamp == max(instant.stamp for instant in instants)
    # Each replaced exactly one other, so the changes form one sequence.
    replaced = {instant.previous.stamp for instant in instants if instant.previous is not None}
    assert replaced == {instant.stamp for instant in instants} - {last.stamp}


@conformance
async def test_concurrent_claims_are_disjoint(harness: Harness) -> None:
    engines = [await harness.open(), await harness.open()]
    keys = [f"{number:03}" for number in range(90)]
    await put(engines[0], *keys)

    async def take(task: int) -> list[str]:
        taken: list[str] = []
        while claimed := await engines[task % 2].write(samples.take_items, Claim(4)):
            assert len(claimed) <= 4
            taken += claimed
        return taken

    taken = await asyncio.gather(*(take(task) for task in range(10)))
    assert sorted(itertools.chain(*taken)) == keys


# Outcomes


@conformance
async def test_a_refusal_rolls_back_and_is_raised(harness: Harness) -> None:
    engine = await harness.open()
    await put(engine, "kept")
    with pytest.raises(Refused) as refused:
        await engine.write(samples.refuse_after_writing, PutItem("refused"))
    assert refused.value.refusal.code == "ConditionNotMet"
    assert refused.value.refusal.facts == {"condition": "If-Match", "current": 7}
    assert await engine.read(samples.scan_items, Scan(ITEMS.all())) == ["kept"]


@conformance
async def test_a_read_may_refuse(harness: Harness) -> None:
    engine = await harness.open()
    with pytest.raises(Refused) as refused:
        await engine.read(samples.read_and_refuse, "name")
    assert refused.value.refusal.code == "BlobNotFound"
    await put(engine, "name")
    assert await engine.read(samples.read_and_refuse, "name") == 1


@conformance
async def test_a_refusal_in_a_group_affects_only_itself(harness: Harness) -> None:
    engine = await harness.open()
    await put(engine, "kept")
    running: list[Awaitable[Item]] = []
    for number in range(60):
        chosen = samples.put_item if number % 3 else samples.refuse_after_writing
        running.append(engine.write(chosen, PutItem(f"{number:02}", Item(number=number))))
    outcomes = await asyncio.gather(*running, return_exceptions=True)
    for number, outcome in enumerate(outcomes):
        if number % 3:
            assert outcome == Item(number=number)
        else:
            assert isinstance(outcome, Refused)
    kept = [f"{number:02}" for number in range(60) if number % 3]
    assert await engine.read(samples.scan_items, Scan(ITEMS.all())) == [*kept, "kept"]


@conformance
async def test_a_conflict_is_retried_and_counted(harness: Harness) -> None:
    engine = await harness.open()
    samples.CONFLICTS_LEFT.set(3)
    samples.RUNS.set(0)
    samples.HOOKS.set(0)
    assert await engine.write(samples.conflict_while_left, PutItem("key", Item("x"))) == Item("x")
    assert samples.RUNS.value == 4
    assert samples.HOOKS.value == 1
    assert (retries_of(engine).conflicts, retries_of(engine).gave_up) == (3, 0)
    assert await engine.read(samples.get_item, "key") == Item("x")


@conformance
async def test_a_persistent_conflict_is_contention(harness: Harness) -> None:
    engine = await harness.open()
    samples.CONFLICTS_LEFT.set(1 << 40)
    samples.RUNS.set(0)
    with pytest.raises(Fault) as fault:
        await engine.write(samples.conflict_while_left, PutItem("key"))
    assert fault.value.reason is FaultReason.CONTENTION
    assert retries_of(engine).gave_up == 1
    assert retries_of(engine).conflicts == samples.RUNS.value > 1
    assert await engine.read(samples.get_item, "key") is None


@conformance
async def test_a_bug_in_an_operation_is_a_fault(harness: Harness) -> None:
    engine = await harness.open()
    await put(engine, "kept")
    bugs = [engine.write(samples.divide_by_zero, PutItem("bug")) for _ in range(3)]
    fine = [engine.write(samples.divide_by_zero, PutItem("fine", Item(number=1)))]
    outcomes = await asyncio.gather(*bugs, return_exceptions=True)
    for outcome in outcomes:
        assert isinstance(outcome, Fault)
        assert outcome.reason is FaultReason.FAILED
    assert await engine.read(samples.scan_items, Scan(ITEMS.all())) == ["kept"]
    assert await asyncio.gather(*fine) == [Item(number=1)]


@conformance
async def test_a_bug_in_a_read_is_a_fault(harness: Harness) -> None:
    engine = await harness.open()
    with pytest.raises(Fault) as fault:
        await engine.read(samples.read_badly, "key")
    assert fault.value.reason is FaultReason.FAILED
    await engine.write(samples.put_item, PutItem("key", Item(number=1)))
    assert await engine.read(samples.read_badly, "key") == 1


@conformance
async def test_only_registered_operations_can_write(harness: Harness) -> None:
    engine = await harness.open()

    def unregistered(_txn: object, _command: Key) -> None: ...

    with pytest.raises(TypeError, match="not an operation"):
        await engine.write(unregistered, Key("key"))


@conformance
async def test_a_command_is_data(harness: Harness) -> None:
    engine = await harness.open()
    with pytest.raises(TypeError):
        await engine.write(samples.send_maybe, Key(object()))  # type: ignore[arg-type]


@conformance
async def test_results_round_trip(harness: Harness) -> None:
    engine = await harness.open()
    everything = Everything(
        [Piece("a", 1), Piece("b")],
        (b"\x00\xff", "\x00é"),
        {"yes": True, "no": False},
        Item("x", -1),
        [0, -1, 2**63 - 1, -(2**63), 2**64 - 1],
        0.1,
    )
    assert await engine.write(samples.send_back, Sent(everything)) == everything
    assert await engine.write(samples.send_maybe, Key("absent")) is None
    await put(engine, "present")
    assert await engine.write(samples.send_maybe, Key("present")) == Item("present")


# Hooks


@conformance
async def test_hooks_run_once_and_only_after_a_commit(harness: Harness) -> None:
    engine = await harness.open()
    samples.HOOKS.set(0)
    samples.HOOK_SUM.set(0)
    await engine.write(samples.put_with_hooks, PutWithHooks(PutItem("key"), [1, 20, 300]))
    assert (samples.HOOKS.value, samples.HOOK_SUM.value) == (3, 321)
    with pytest.raises(Refused):
        await engine.write(samples.refuse_after_writing, PutItem("refused"))
    with pytest.raises(Fault):
        await engine.write(samples.divide_by_zero, PutItem("bug"))
    await put(engine, "later")
    assert samples.HOOKS.value == 3


@conformance
async def test_a_failing_hook_affects_nothing_else(harness: Harness) -> None:
    engine = await harness.open()
    samples.HOOKS.set(0)
    commands = [
        PutWithHooks(PutItem(f"{number}"), [1, 1], failing=bool(number % 2)) for number in range(6)
    ]
    await asyncio.gather(*(engine.write(samples.put_with_hooks, command) for command in commands))
    await put(engine, "later")
    assert samples.HOOKS.value == 12
    assert len(await engine.read(samples.scan_items, Scan(ITEMS.all()))) == 7


# Stamps


@conformance
async def test_stamps_are_unique_and_increase(harness: Harness) -> None:
    engines = [await harness.open(), await harness.open()]
    drawn: list[int] = []

    async def draw(task: int) -> None:
        mine = [(await stamp(engines[task % 2], f"{task}-{n % 3}")).stamp for n in range(20)]
        assert mine == sorted(mine)
        drawn.extend(mine)

    await asyncio.gather(*(draw(task) for task in range(30)))
    assert len(set(drawn)) == 600
    assert (await stamp(engines[0])).stamp > max(drawn)


@conformance
async def test_stamps_increase_over_restarts_and_wall_jumps(harness: Harness) -> None:
    drawn: list[int] = []

    async def draw() -> None:
        engine = await harness.open()
        for _ in range(5):
            drawn.append((await stamp(engine)).stamp)
            with pytest.raises(Refused):
                await engine.write(samples.stamp_and_refuse, Key("key"))

    harness.clock.freeze()
    await draw()
    await harness.restart()
    await draw()
    harness.clock.wall_offset = -HOUR
    await draw()
    await harness.restart()
    await draw()
    harness.clock.wall_offset = -2 * HOUR
    harness.clock.reboot("another-boot")
    await harness.restart()
    await draw()
    harness.clock.wall_offset = HOUR
    await draw()
    assert len(drawn) == 30
    assert all(earlier < later for earlier, later in itertools.pairwise(drawn))
    assert drawn[-1] >= harness.clock.wall()


@conformance
async def test_stamps_increase_over_delete_and_create(harness: Harness) -> None:
    engine = await harness.open()
    harness.clock.freeze()
    seen: list[int] = []
    for round_ in range(4):
        seen.append((await stamp(engine)).stamp)
        seen.append(await engine.write(samples.delete_stamped, Key("key")))
        harness.clock.wall_offset -= HOUR
        if round_ % 2:
            await harness.restart()
            engine = await harness.open()
    assert seen == sorted(set(seen))


# Now


@conformance
async def test_now_starts_at_the_wall_clock(harness: Harness) -> None:
    engine = await harness.open()
    await stamp(engine)
    assert abs(await now(engine) - harness.clock.wall()) < TICKS_PER_SECOND


@conformance
async def test_now_is_the_same_for_reads_and_writes(harness: Harness) -> None:
    first, second = await harness.open(), await harness.open()
    harness.clock.freeze()
    for _ in range(3):
        instant = await stamp(first)
        assert await now(first) == await now(second) == instant.now
        harness.clock.advance(12345)
        assert await now(first) == await now(second) > instant.now


@conformance
async def test_now_does_not_jump_with_the_wall_clock(harness: Harness) -> None:
    engine = await harness.open()
    harness.clock.freeze()
    await stamp(engine)
    for jump in (HOUR, -HOUR, -HOUR, HOUR):
        before = await now(engine)
        harness.clock.wall_offset += jump
        assert await now(engine) == before
        assert (await stamp(engine)).now == before
        assert await now(engine) == before
        wall_is_ahead = harness.clock.wall() > before
        harness.clock.advance(10 * TICKS_PER_SECOND)
        slewed = await now(engine) - before - 10 * TICKS_PER_SECOND
        assert abs(slewed) <= 10 * TICKS_PER_SECOND * SLEW_PPM_MAX // 1_000_000
        assert slewed == 0 or (slewed > 0) == wall_is_ahead


@conformance
async def test_now_is_monotonic(harness: Harness) -> None:
    first, second = await harness.open(), await harness.open()
    last = 0
    for step in range(300):
        harness.clock.wall_offset = (0, HOUR, -HOUR)[step % 3]
        for seen in (await now(first), (await stamp(second)).now, await now(second)):
            assert seen >= last
            last = seen


@conformance
async def test_now_slews_to_the_wall_clock_and_never_beyond(harness: Harness) -> None:
    engine = await harness.open()
    harness.clock.freeze()
    for offset in (20_000, -20_000):
        harness.clock.wall_offset += offset
        instant = await stamp(engine)
        apart = harness.clock.wall() - instant.now
        for _ in range(10):
            harness.clock.advance(TICKS_PER_SECOND)
            seen = (await stamp(engine)).now
            remaining = harness.clock.wall() - seen
            slewed = apart - remaining
            assert abs(slewed) <= TICKS_PER_SECOND * SLEW_PPM_MAX // 1_000_000
            assert remaining == 0 or (remaining > 0) == (offset > 0)
            apart = remaining
        assert apart == 0


@conformance
async def test_now_continues_over_a_restart(harness: Harness) -> None:
    engine = await harness.open()
    harness.clock.freeze()
    for jump in (0, HOUR, -2 * HOUR):
        before = (await stamp(engine)).now
        harness.clock.wall_offset += jump
        harness.clock.advance(60 * TICKS_PER_SECOND)
        await harness.restart()
        engine = await harness.open()
        passed = await now(engine) - before
        slew_max = 60 * TICKS_PER_SECOND * SLEW_PPM_MAX // 1_000_000
        assert abs(passed - 60 * TICKS_PER_SECOND) <= slew_max


@conformance
async def test_now_after_a_reboot_is_the_wall_clock_but_never_earlier(harness: Harness) -> None:
    engine = await harness.open()
    harness.clock.freeze()
    before = (await stamp(engine)).now
    harness.clock.wall_offset -= HOUR
    harness.clock.reboot("second-boot")
    await harness.restart()
    engine = await harness.open()
    latest = before + int(harness.unknown_seconds_max * TICKS_PER_SECOND)
    assert before <= await now(engine) <= latest
    assert before <= (await stamp(engine)).now <= latest
    harness.clock.wall_offset += 2 * HOUR
    harness.clock.reboot("third-boot")
    await harness.restart()
    engine = await harness.open()
    assert await now(engine) == harness.clock.wall()


@conformance
async def test_now_follows_a_wall_clock_that_stays_ahead_and_steady_time_does_not(
    harness: Harness,
) -> None:
    """Even without changes: an operation that only asks the writer is enough."""
    first, second = await harness.open(), await harness.open()
    harness.clock.freeze()
    last = (await stamp(first)).now
    for ahead in (HOUR, 8 * HOUR):
        steady = await first.read(samples.read_steady_now, None)
        harness.clock.wall_offset += ahead
        for _ in range(12):
            harness.clock.advance(5 * TICKS_PER_SECOND)
            written = await first.write(samples.look_at_both_times, Wait(0))
            seen = await now(second), await second.read(samples.read_steady_now, None)
            assert seen >= written
            assert seen[0] >= last
            last = seen[0]
        assert abs(harness.clock.wall() - last) <= TICKS_PER_SECOND
        passed = await second.read(samples.read_steady_now, None) - steady
        assert abs(passed - 60 * TICKS_PER_SECOND) <= TICKS_PER_SECOND // 10
    await harness.restart()
    engine = await harness.open()
    assert await now(engine) == last
    assert (await stamp(engine)).now == last


# Deadlines


@conformance
async def test_a_deadline_keeps_its_length_when_the_wall_clock_jumps(harness: Harness) -> None:
    engine = await harness.open()
    harness.clock.freeze()
    step = TICKS_PER_SECOND // 100
    error_max = int(harness.reading_seconds_max * TICKS_PER_SECOND)
    for jumps in ((HOUR, -HOUR), (-HOUR, HOUR), (HOUR, HOUR), (-HOUR, -HOUR)):
        deadline = await engine.write(samples.set_deadline, Wait(15))
        steps = 0
        while await now(engine) < deadline:
            harness.clock.advance(step)
            steps += 1
            if steps in (500, 1000):
                harness.clock.wall_offset += jumps[steps // 1000]
                await stamp(engine)
        assert abs(steps * step - 15 * TICKS_PER_SECOND) <= error_max


async def _require_fifteen_seconds(harness: Harness, wall_offset: Callable[[float], int]) -> None:
    """Checks that a deadline of 15 s passes after 15 s while the wall clock is changed.

    The times of setting it and finding it passed are known only between two readings of the clock,
    so a stalling machine makes this less precise, not wrong."""
    engine = await harness.open()
    asked = time.monotonic()
    deadline = await engine.write(samples.set_deadline, Wait(15))
    answered = looked = time.monotonic()
    running_at = answered
    while await now(engine) < deadline:
        running_at = looked
        harness.clock.wall_offset = wall_offset(looked - asked)
        await stamp(engine)
        await asyncio.sleep(0.005)
        looked = time.monotonic()
    over_at = time.monotonic()
    assert running_at - answered <= 15.1
    assert over_at - asked >= 14.9


def test_a_deadline_in_real_time(starts: dict[str, Start], tmp_path: Path) -> None:
    """Runs all engines concurrently, so that the wait is paid once."""

    def wall_offset(passed: float) -> int:
        return 0 if passed < 5 else HOUR if passed < 10 else -HOUR

    async def body(harness: Harness) -> None:
        await _require_fifteen_seconds(harness, wall_offset)

    async def every() -> None:
        directories = {name: tmp_path / name for name in starts}
        for directory in directories.values():
            directory.mkdir()
        runs = (with_harness(start, directories[name], body) for name, start in starts.items())
        await asyncio.gather(*runs)

    asyncio.run(every())


@pytest.mark.long
@pytest.mark.parametrize("hours", [-1, 0, 1])
def test_a_deadline_in_real_time_with_one_jump(start: Start, tmp_path: Path, hours: int) -> None:
    async def body(harness: Harness) -> None:
        await _require_fifteen_seconds(harness, lambda _: hours * HOUR)

    asyncio.run(with_harness(start, tmp_path, body))


# Versions of records; the same for all engines, so these tests need none


class _Short(Record, frozen=True):
    name: str


class _Appended(Record, frozen=True):
    name: str
    size: int = 7


class _Second(Record, frozen=True, tag=2):
    first_name: str
    last_name: str

    def upgrade(self) -> _Third:
        return _Third([self.first_name, self.last_name])


class _First(Record, frozen=True):
    name: str

    def upgrade(self) -> _Second:
        first_name, _, last_name = self.name.partition(" ")
        return _Second(first_name, last_name)


class _Third(Record, frozen=True, tag=3):
    names: list[str]


APPENDED: Collection[tuple[str], _Appended] = Collection("test_appended", _Appended, [TEXT])
VERSIONED: Collection[tuple[str], _Third] = Collection(
    "test_versioned", _Third, [TEXT], older=(_First, _Second)
)


def test_an_appended_field_has_its_default_in_old_records() -> None:
    assert APPENDED.decode(msgspec.msgpack.encode(_Short("old"))) == _Appended("old", 7)
    assert APPENDED.decode(APPENDED.encode(_Appended("new", 8))) == _Appended("new", 8)


def test_old_versions_are_upgraded_when_read() -> None:
    expected = _Third(["Ada", "Lovelace"])
    assert VERSIONED.decode(msgspec.msgpack.encode(_First("Ada Lovelace"))) == expected
    assert VERSIONED.decode(msgspec.msgpack.encode(_Second("Ada", "Lovelace"))) == expected
    assert VERSIONED.decode(VERSIONED.encode(expected)) == expected


def test_a_newer_version_is_not_misread() -> None:
    with pytest.raises(msgspec.ValidationError):
        APPENDED.decode(msgspec.msgpack.encode(_Second("Ada", "Lovelace")))
