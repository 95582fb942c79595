"""Collections, commands and operations for the engine tests.

Operations may run in a process forked after this module was imported. Side effects that a test must
observe are counted in memory shared with that process."""

from __future__ import annotations

from typing import NamedTuple

from etagere.clock import TICKS_PER_SECOND
from etagere.engine.interface import (
    EXCLUSIVE,
    FILTERED_SCAN_BYTES_MAX,
    SHARED,
    Conflict,
    Counted,
    FilteredRows,
    ReadTxn,
    Refused,
    WriteTxn,
    operation,
)
from etagere.engine.records import BYTES, ID, TEXT, UINT, Collection, Layout, Span
from etagere.errors import Refusal
from etagere.model.base import Command, Part, Record, Result
from tests.clocks import SharedWords


class SharedCounter:
    """A counter shared by the processes of a test."""

    def __init__(self) -> None:
        self._words = SharedWords(1)

    @property
    def value(self) -> int:
        return self._words[0]

    def set(self, value: int) -> None:
        self._words[0] = value

    def add(self, amount: int) -> None:
        self._words[0] += amount


class Item(Record, frozen=True):
    text: str = ""
    number: int = 0


class Large(Record, frozen=True):
    data: bytes


class Stamped(Record, frozen=True):
    stamp: int
    now: int


ITEMS: Collection[tuple[str], Item] = Collection("test_items", Item, [TEXT])
NAMED: Collection[tuple[bytes, str], Item] = Collection("test_named", Item, [ID, TEXT])
EVERY_KIND: Collection[tuple[bytes, bytes, int, str], Item] = Collection(
    "test_every_kind", Item, [ID, BYTES, UINT, TEXT]
)
LARGE: Collection[tuple[bytes], Large] = Collection(
    "test_large", Large, [BYTES], layout=Layout.LARGE
)
STAMPED: Collection[tuple[str], Stamped] = Collection("test_stamped", Stamped, [TEXT])


# Reads


class Scan(NamedTuple):
    """The parameters of a scan."""

    span: Span
    limit: int = 1000
    reverse: bool = False


def get_item(txn: ReadTxn, key: str) -> Item | None:
    return txn.get(ITEMS, (key,))


def get_large(txn: ReadTxn, key: bytes) -> Large | None:
    return txn.get(LARGE, (key,))


def get_stamped(txn: ReadTxn, key: str) -> Stamped | None:
    return txn.get(STAMPED, (key,))


def get_named(txn: ReadTxn, key: tuple[bytes, str]) -> Item | None:
    return txn.get(NAMED, key)


def scan_items(txn: ReadTxn, scan: Scan) -> list[str]:
    return [key for (key,), _ in txn.scan(ITEMS, scan.span, scan.limit, reverse=scan.reverse)]


class FilterSpan(NamedTuple):
    span: Span
    limit: int
    text: str
    """The prefix of the items that pass."""
    bytes_max: int = FILTERED_SCAN_BYTES_MAX


def filter_items(txn: ReadTxn, command: FilterSpan) -> FilteredRows[tuple[str], Item]:
    def passes(item: Item) -> bool:
        return item.text.startswith(command.text)

    return txn.scan_filtered(ITEMS, command.span, command.limit, passes, command.bytes_max)


class FilterKeys(NamedTuple):
    keys: list[str]
    text: str
    """The prefix of the items that pass."""


def filter_item_keys(txn: ReadTxn, command: FilterKeys) -> FilteredRows[tuple[str], Item]:
    keys = [(key,) for key in command.keys]
    return txn.get_filtered(ITEMS, keys, lambda item: item.text.startswith(command.text))


class CountItems(NamedTuple):
    span: Span
    limit: int


def count_items(txn: ReadTxn, command: CountItems) -> Counted:
    return txn.count(ITEMS, command.span, command.limit)


def scan_named(txn: ReadTxn, scan: Scan) -> list[tuple[bytes, str]]:
    return [key for key, _ in txn.scan(NAMED, scan.span, scan.limit, reverse=scan.reverse)]


def scan_every_kind(txn: ReadTxn, scan: Scan) -> list[tuple[bytes, bytes, int, str]]:
    return [key for key, _ in txn.scan(EVERY_KIND, scan.span, scan.limit, reverse=scan.reverse)]


def read_now(txn: ReadTxn, _: None) -> int:
    return txn.now


def read_steady_now(txn: ReadTxn, _: None) -> int:
    return txn.steady_now


class SumTwice(NamedTuple):
    """The same sum read twice in one transaction, by gets and by a scan."""

    by_gets: int
    by_scan: int


def sum_twice(txn: ReadTxn, keys: list[str]) -> SumTwice:
    items = [txn.get(ITEMS, (key,)) for key in keys]
    scanned = txn.scan(ITEMS, ITEMS.all(), len(keys))
    return SumTwice(
        sum(item.number for item in items if item is not None),
        sum(item.number for _, item in scanned),
    )


def read_badly(txn: ReadTxn, key: str) -> int:
    item = txn.get(ITEMS, (key,))
    return 1 // (0 if item is None else item.number)


def read_and_refuse(txn: ReadTxn, key: str) -> int:
    if txn.get(ITEMS, (key,)) is None:
        raise Refused(Refusal("BlobNotFound", {"name": key}))
    return 1


# Plain writes


class PutItem(Command, frozen=True):
    key: str
    item: Item = Item()


class Key(Command, frozen=True):
    key: str


class PutItems(Command, frozen=True):
    puts: list[PutItem]


class PutNamed(Command, frozen=True):
    keys: list[tuple[bytes, str]]


class PutEveryKind(Command, frozen=True):
    keys: list[tuple[bytes, bytes, int, str]]


class PutLarge(Command, frozen=True):
    key: bytes
    data: bytes


@operation
def put_item(txn: WriteTxn, command: PutItem) -> Item:
    return txn.put(ITEMS, (command.key,), command.item)


@operation
def put_items(txn: WriteTxn, command: PutItems) -> int:
    for put in command.puts:
        txn.put(ITEMS, (put.key,), put.item)
    return len(command.puts)


@operation
def put_named(txn: WriteTxn, command: PutNamed) -> None:
    for key in command.keys:
        txn.put(NAMED, key, Item(key[1]))


@operation
def put_every_kind(txn: WriteTxn, command: PutEveryKind) -> None:
    for key in command.keys:
        txn.put(EVERY_KIND, key, Item())


@operation
def delete_large(txn: WriteTxn, key: bytes) -> None:
    txn.delete(LARGE, (key,))


@operation
def put_large(txn: WriteTxn, command: PutLarge) -> None:
    txn.put(LARGE, (command.key,), Large(command.data))


@operation
def delete_item(txn: WriteTxn, command: Key) -> None:
    txn.delete(ITEMS, (command.key,))


# Decisions


class Transfer(Command, frozen=True):
    source: str
    target: str
    amount: int


@operation
def count_up(txn: WriteTxn, command: Key) -> int:
    item = txn.get(ITEMS, (command.key,), EXCLUSIVE) or Item()
    return txn.put(ITEMS, (command.key,), Item(item.text, item.number + 1)).number


@operation
def transfer(txn: WriteTxn, command: Transfer) -> None:
    """Moves an amount between two records; both are guarded in the order of their keys."""
    found = {}
    for key in sorted({command.source, command.target}):
        found[key] = (txn.get(ITEMS, (key,), EXCLUSIVE) or Item()).number
    found[command.source] -= command.amount
    found[command.target] += command.amount
    for key, number in found.items():
        txn.put(ITEMS, (key,), Item(number=number))


@operation
def create_once(txn: WriteTxn, command: PutItem) -> Item:
    """Creates an absent record, and refuses if it exists."""
    if txn.get(ITEMS, (command.key,), EXCLUSIVE) is not None:
        raise Refused(Refusal("BlobAlreadyExists", {"name": command.key}))
    return txn.put(ITEMS, (command.key,), command.item)


class Claim(Command, frozen=True):
    limit: int


@operation
def take_items(txn: WriteTxn, command: Claim) -> list[str]:
    """Claims items from the front, as queue readers do."""
    claimed = [key for (key,), _ in txn.scan(ITEMS, ITEMS.all(), command.limit, claim=True)]
    for key in claimed:
        txn.delete(ITEMS, (key,))
    return claimed


class SeenWrites(Result, frozen=True):
    """What an operation saw of its own writes."""

    deleted: Item | None
    put: Item | None
    forward: list[str]
    reverse: list[str]
    two_forward: list[str]
    two_reverse: list[str]


class WriteAndLook(Command, frozen=True):
    put: PutItem
    delete: str
    guarded: str


@operation
def write_and_look(txn: WriteTxn, command: WriteAndLook) -> SeenWrites:
    txn.get(ITEMS, (command.guarded,), SHARED)
    txn.put(ITEMS, (command.put.key,), command.put.item)
    txn.delete(ITEMS, (command.delete,))

    def keys(limit: int, reverse: bool) -> list[str]:
        return [key for (key,), _ in txn.scan(ITEMS, ITEMS.all(), limit, reverse=reverse)]

    return SeenWrites(
        txn.get(ITEMS, (command.delete,)),
        txn.get(ITEMS, (command.put.key,)),
        keys(100, False),
        keys(100, True),
        keys(2, False),
        keys(2, True),
    )


def get_items(txn: ReadTxn, keys: list[str]) -> list[Item | None]:
    return txn.get_all(ITEMS, [(key,) for key in keys])


class ChangeAndGetAll(Command, frozen=True):
    puts: list[PutItem]
    deletes: list[str]
    keys: list[str]


@operation
def change_and_get_all(txn: WriteTxn, command: ChangeAndGetAll) -> list[Item | None]:
    for put in command.puts:
        txn.put(ITEMS, (put.key,), put.item)
    for key in command.deletes:
        txn.delete(ITEMS, (key,))
    return txn.get_all(ITEMS, [(key,) for key in command.keys], EXCLUSIVE)


# Refusals, conflicts, bugs

CONFLICTS_LEFT = SharedCounter()
RUNS = SharedCounter()


@operation
def refuse_after_writing(txn: WriteTxn, command: PutItem) -> Item:
    txn.put(ITEMS, (command.key,), command.item)
    txn.delete(ITEMS, ("kept",))
    txn.on_commit(note_hook, 1)
    raise Refused(Refusal("ConditionNotMet", {"condition": "If-Match", "current": 7}))


@operation
def conflict_while_left(txn: WriteTxn, command: PutItem) -> Item:
    RUNS.add(1)
    item = txn.put(ITEMS, (command.key,), command.item)
    txn.on_commit(note_hook, 1)
    if CONFLICTS_LEFT.value:
        CONFLICTS_LEFT.add(-1)
        raise Conflict("as the test wished")
    return item


@operation
def divide_by_zero(txn: WriteTxn, command: PutItem) -> Item:
    txn.put(ITEMS, (command.key,), command.item)
    txn.delete(ITEMS, ("kept",))
    txn.on_commit(note_hook, 1)
    return Item(number=1 // command.item.number)


# Hooks

HOOKS = SharedCounter()
HOOK_SUM = SharedCounter()


def note_hook(argument: int) -> None:
    HOOKS.add(1)
    HOOK_SUM.add(argument)


def fail_hook(argument: int) -> None:
    note_hook(argument)
    raise RuntimeError("a hook that fails")


class PutWithHooks(Command, frozen=True):
    put: PutItem
    arguments: list[int]
    failing: bool = False


@operation
def put_with_hooks(txn: WriteTxn, command: PutWithHooks) -> Item:
    for argument in command.arguments:
        txn.on_commit(fail_hook if command.failing else note_hook, argument)
    return txn.put(ITEMS, (command.put.key,), command.put.item)


# Results


class Piece(Part, frozen=True):
    name: str
    number: int | None = None


class Everything(Result, frozen=True):
    """A value of every type that can be sent between processes."""

    pieces: list[Piece]
    pair: tuple[bytes, str]
    flags: dict[str, bool]
    item: Item | None
    numbers: list[int]
    real: float


class Sent(Command, frozen=True):
    everything: Everything


@operation
def send_back(txn: WriteTxn, command: Sent) -> Everything:
    return command.everything


@operation
def send_maybe(txn: WriteTxn, command: Key) -> Item | None:
    return txn.get(ITEMS, (command.key,))


# Time


class Instant(Result, frozen=True):
    """The two times of a change, and what its record held before."""

    stamp: int
    now: int
    previous: Stamped | None


@operation
def stamp_record(txn: WriteTxn, command: Key) -> Instant:
    previous = txn.get(STAMPED, (command.key,), EXCLUSIVE)
    stamped = txn.put(STAMPED, (command.key,), Stamped(txn.stamp, txn.now))
    # Once read, both are fixed for the transaction.
    assert (txn.stamp, txn.now) == (stamped.stamp, stamped.now)
    return Instant(stamped.stamp, stamped.now, previous)


@operation
def delete_stamped(txn: WriteTxn, command: Key) -> int:
    txn.delete(STAMPED, (command.key,))
    return txn.stamp


@operation
def stamp_and_refuse(txn: WriteTxn, command: Key) -> int:
    stamp = txn.stamp
    raise Refused(Refusal("ConditionNotMet", {"stamp": stamp}))


class Wait(Command, frozen=True):
    seconds: int


@operation
def set_deadline(txn: WriteTxn, command: Wait) -> int:
    return txn.now + command.seconds * TICKS_PER_SECOND


@operation
def look_at_both_times(txn: WriteTxn, _: Wait) -> tuple[int, int]:
    """Reads both times and changes nothing."""
    return txn.now, txn.steady_now
