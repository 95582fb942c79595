"""The states of a connection, for every pair of a state and an event."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

import pytest

from etagere.protocol.http import lifecycle
from etagere.protocol.http.lifecycle import (
    CLOSE,
    CLOSED,
    CLOSING,
    CONNECTING,
    CONNECTION_STEPS,
    DRAINING,
    END_OF_INPUT,
    ESTABLISHED,
    INPUT_ENDED,
    INPUT_IGNORED,
    INPUT_OPEN,
    INPUT_STEPS,
    LAST_RESPONSE,
    LINGERING,
    LOST,
    MALFORMED,
    OPEN,
    SHUT_DOWN,
    ConnectionState,
    ImpossibleTransition,
    InputState,
    Lifecycle,
    LifecycleEvent,
)


def after(*events: LifecycleEvent) -> tuple[ConnectionState, InputState]:
    states = Lifecycle()
    for event in events:
        states.apply(event)
    return states.connection, states.input


def reachable() -> set[tuple[ConnectionState, InputState]]:
    """Returns every pair of states that some sequence of events leads to."""
    found = {(CONNECTING, INPUT_OPEN)}
    new: Iterable[tuple[ConnectionState, InputState]] = list(found)
    while new:
        steps = [
            (CONNECTION_STEPS[connection, event], INPUT_STEPS[incoming, event])
            for (connection, incoming), event in product(new, LifecycleEvent)
            if (connection, event) in CONNECTION_STEPS and (incoming, event) in INPUT_STEPS
        ]
        new = set(steps) - found
        found.update(new)
    return found


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ((), (CONNECTING, INPUT_OPEN)),
        ((ESTABLISHED,), (OPEN, INPUT_OPEN)),
        # Responses still go out after the end of the input.
        ((ESTABLISHED, END_OF_INPUT), (OPEN, INPUT_ENDED)),
        ((ESTABLISHED, MALFORMED), (OPEN, INPUT_IGNORED)),
        ((ESTABLISHED, MALFORMED, END_OF_INPUT), (OPEN, INPUT_ENDED)),
        # The body of the last request may still be arriving.
        ((ESTABLISHED, LAST_RESPONSE), (DRAINING, INPUT_OPEN)),
        ((ESTABLISHED, END_OF_INPUT, LAST_RESPONSE), (DRAINING, INPUT_ENDED)),
        ((ESTABLISHED, LAST_RESPONSE, SHUT_DOWN), (LINGERING, INPUT_IGNORED)),
        ((ESTABLISHED, MALFORMED, SHUT_DOWN), (LINGERING, INPUT_IGNORED)),
        ((ESTABLISHED, MALFORMED, SHUT_DOWN, END_OF_INPUT), (LINGERING, INPUT_ENDED)),
        ((ESTABLISHED, CLOSE), (CLOSING, INPUT_IGNORED)),
        ((ESTABLISHED, END_OF_INPUT, LAST_RESPONSE, CLOSE), (CLOSING, INPUT_ENDED)),
        ((ESTABLISHED, LOST), (CLOSED, INPUT_IGNORED)),
        # A request that outlives its transport still asks whether its response is the last.
        ((ESTABLISHED, LOST, LAST_RESPONSE), (CLOSED, INPUT_IGNORED)),
    ],
)
def test_sequences_of_events(
    events: tuple[LifecycleEvent, ...], expected: tuple[ConnectionState, InputState]
) -> None:
    assert after(*events) == expected


def test_every_state_is_reached() -> None:
    assert {connection for connection, _ in reachable()} == set(ConnectionState)
    assert {incoming for _, incoming in reachable()} == set(InputState)


@pytest.mark.parametrize("event", [event for event in LifecycleEvent if event is not ESTABLISHED])
def test_nothing_happens_before_a_connection_is_established(event: LifecycleEvent) -> None:
    with pytest.raises(ImpossibleTransition, match=f"{event.name} while CONNECTING"):
        after(event)


@pytest.mark.parametrize("event", [event for event in LifecycleEvent if event is not LAST_RESPONSE])
def test_nothing_happens_after_the_end(event: LifecycleEvent) -> None:
    with pytest.raises(ImpossibleTransition, match=f"{event.name} while CLOSED"):
        after(ESTABLISHED, LOST, event)


def test_an_impossible_event_changes_nothing() -> None:
    states = Lifecycle()
    states.apply(ESTABLISHED)
    states.apply(MALFORMED)
    with pytest.raises(ImpossibleTransition):
        states.apply(MALFORMED)
    assert (states.connection, states.input) == (OPEN, INPUT_IGNORED)


def test_a_transport_may_be_lost_in_every_state() -> None:
    for connection, incoming in reachable() - {(CONNECTING, INPUT_OPEN)}:
        if connection is not CLOSED:
            assert CONNECTION_STEPS[connection, LOST] is CLOSED
            assert INPUT_STEPS[incoming, LOST] is not INPUT_OPEN


def test_states_never_go_back() -> None:
    """Their order in the enumerations is the order of a connection's life."""
    for (connection, _), next_connection in CONNECTION_STEPS.items():
        assert next_connection.value >= connection.value
    for (incoming, _), next_incoming in INPUT_STEPS.items():
        assert next_incoming.value >= incoming.value


def test_input_is_parsed_only_while_responses_are_sent() -> None:
    with_open_input = {state for state, incoming in reachable() if incoming is INPUT_OPEN}
    assert with_open_input == {CONNECTING, OPEN, DRAINING}


def test_the_diagram_shows_every_state_and_event() -> None:
    drawing = lifecycle.__doc__ or ""
    for name in [*ConnectionState, *InputState, *LifecycleEvent]:
        assert name.name in drawing
