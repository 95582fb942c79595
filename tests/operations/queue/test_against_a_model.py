"""Random sequences of queue operations, compared with a model in memory."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from hypothesis import strategies as st

from etagere.clock import TICKS_PER_SECOND
from etagere.model.queues import MessageResult
from tests.operations.fixture import code_of
from tests.operations.queue.fixture import LONG, QueueFixture, queue_property_test

TEXTS: Final = ("", "short", "x" * 1_024, "é" * 1_025, LONG)
SECONDS: Final = (1, 2, 3, 5, 8)


# Steps. Messages and receipts are chosen by number among the existing ones.


@dataclass(frozen=True)
class Put:
    text: str
    hidden: int
    lives: int | None


@dataclass(frozen=True)
class Get:
    count: int
    hidden: int


@dataclass(frozen=True)
class Update:
    receipt: int
    text: str | None
    hidden: int


@dataclass(frozen=True)
class Delete:
    receipt: int


@dataclass(frozen=True)
class Wait:
    ticks: int


@dataclass(frozen=True)
class Clear:
    pass


@dataclass(frozen=True)
class Recreate:
    pass


@dataclass(frozen=True)
class Purge:
    rows_max: int


Step = Put | Get | Update | Delete | Wait | Clear | Recreate | Purge

_SECONDS: Final = st.sampled_from((0, *SECONDS))
_RECEIPT: Final = st.integers(0, 30)
_WAIT: Final = st.sampled_from(
    [1, *(seconds * TICKS_PER_SECOND + more for seconds in SECONDS for more in (-1, 0))]
)
STEPS: Final = st.lists(
    st.one_of(
        st.builds(Put, st.sampled_from(TEXTS), _SECONDS, st.sampled_from((None, *SECONDS))),
        st.builds(Get, st.integers(1, 4), st.sampled_from(SECONDS)),
        st.builds(Update, _RECEIPT, st.none() | st.sampled_from(TEXTS), _SECONDS),
        st.builds(Delete, _RECEIPT),
        st.builds(Wait, _WAIT),
        st.builds(Purge, st.integers(1, 3)),
        st.sampled_from((Clear(), Recreate())),
    ),
    min_size=1,
    max_size=30,
)


# The model


@dataclass(frozen=True)
class ModelMessage:
    """A message as its sender knows it."""

    text: str
    visible: int
    expires: int | None
    receipt: int
    taken: int = 0

    def lives_at(self, now: int) -> bool:
        return self.expires is None or now < self.expires


@dataclass
class Model:
    messages: dict[bytes, ModelMessage] = field(default_factory=dict)

    def living(self, now: int) -> dict[bytes, ModelMessage]:
        return {key: known for key, known in self.messages.items() if known.lives_at(now)}

    def seen(self, now: int) -> dict[bytes, ModelMessage]:
        """Returns the visible messages in the order in which they are received."""
        found = {key: known for key, known in self.living(now).items() if known.visible <= now}
        return dict(sorted(found.items(), key=lambda item: (item[1].visible, item[0])))

    def held(self, receipt: MessageResult, now: int) -> ModelMessage | None:
        known = self.living(now).get(receipt.id)
        return known if known is not None and known.receipt == receipt.message.receipt else None


class Comparison:
    """Runs each step on the queue and on the model, and compares the results."""

    def __init__(self, queue: QueueFixture) -> None:
        self._queue = queue
        self._model = Model()
        self._receipts: list[MessageResult] = []

    async def step(self, step: Step) -> None:
        queue = self._queue
        match step:
            case Put():
                await self._put(step)
            case Get():
                await self._get(step)
            case Update() | Delete() if self._receipts:
                receipt = self._receipts[step.receipt % len(self._receipts)]
                await (
                    self._update(receipt, step)
                    if isinstance(step, Update)
                    else self._delete(receipt)
                )
            case Wait():
                queue.wait(ticks=step.ticks)
            case Clear():
                await queue.clear()
                self._model = Model()
            case Recreate():
                await queue.delete_queue()
                assert await queue.create()
                self._model = Model()
            case Purge():
                await queue.expire_step(step.rows_max)
                await queue.purge_step(step.rows_max)

    async def _put(self, step: Put) -> None:
        put = await self._queue.put(step.text, hidden=step.hidden, lives=step.lives)
        self._receipts.append(put)
        self._model.messages[put.id] = ModelMessage(
            step.text,
            self._queue.after(step.hidden),
            None if step.lives is None else self._queue.after(step.lives),
            put.message.receipt,
        )

    async def _get(self, step: Get) -> None:
        expected = list(self._model.seen(self._queue.now).items())[: step.count]
        taken = await self._queue.get(step.count, hidden=step.hidden)
        assert [shown.id for shown in taken] == [key for key, _ in expected]
        for shown, (key, known) in zip(taken, expected, strict=True):
            visible = self._queue.after(step.hidden)
            changed = replace(
                known, visible=visible, receipt=shown.message.receipt, taken=known.taken + 1
            )
            assert _observed(shown) == changed
            self._model.messages[key] = changed
        self._receipts += taken

    async def _update(self, receipt: MessageResult, step: Update) -> None:
        known = self._model.held(receipt, self._queue.now)
        visible = self._queue.after(step.hidden)
        call = self._queue.update(receipt, step.text, hidden=step.hidden)
        if known is None:
            assert await code_of(call) == "MessageNotFound"
        elif known.expires is not None and visible > known.expires:
            assert await code_of(call) == "OutOfRangeQueryParameterValue"
        else:
            updated = await call
            text = known.text if step.text is None else step.text
            stamp = updated.message.receipt
            assert stamp > known.receipt
            changed = replace(known, text=text, visible=visible, receipt=stamp)
            assert _observed(updated) == changed
            self._model.messages[receipt.id] = changed
            self._receipts.append(updated)

    async def _delete(self, receipt: MessageResult) -> None:
        known = self._model.held(receipt, self._queue.now)
        assert await self._queue.is_void(receipt) == (known is None)
        if known is not None:
            del self._model.messages[receipt.id]

    async def compare(self) -> None:
        now = self._queue.now
        seen = self._model.seen(now)
        assert {shown.id: _observed(shown) for shown in await self._queue.peek()} == seen
        assert list(seen) == [shown.id for shown in await self._queue.peek()]
        # At least the existing messages, and at most those that were put.
        living, counted = len(self._model.living(now)), await self._queue.count()
        assert living <= counted <= len(self._model.messages)
        await self._queue.require_consistent()


def _observed(shown: MessageResult) -> ModelMessage:
    message = shown.message
    return ModelMessage(
        shown.text, message.visible, message.expires, message.receipt, message.taken
    )


@queue_property_test(STEPS, count=100)
async def test_random_sequences_match_the_model(queue: QueueFixture, steps: list[Step]) -> None:
    run = Comparison(queue)
    for step in steps:
        await run.step(step)
        await run.compare()
    await queue.purge()
    await run.compare()
    await queue.clear()
    await queue.require_empty()
