"""Leases in requests and responses."""

from __future__ import annotations

from typing import Final

from etagere.model.leases import (
    Acquire,
    Break,
    BrokenLease,
    Change,
    FixedLease,
    InfiniteLease,
    Lease,
    LeaseAction,
    LeaseVerb,
    Release,
    Renew,
    new_lease_id,
)
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.requests import integer_header, invalid_header, required_header
from etagere.protocol.rest.responses import Headers
from etagere.rules import leases as lease_rules
from etagere.rules.leases import format_lease_id, report, seconds_until_free

# Requests


def lease_id(exchange: Exchange, name: str = "x-ms-lease-id") -> bytes | None:
    written = exchange.header(name)
    if written is None:
        return None
    parsed = lease_rules.parse_lease_id(written)
    if parsed is None:
        raise invalid_header(name, written)
    return parsed


def lease_verb(exchange: Exchange) -> LeaseVerb:
    written = required_header(exchange, "x-ms-lease-action")
    try:
        return LeaseVerb(written.lower())
    except ValueError:
        raise invalid_header("x-ms-lease-action", written) from None


def lease_action(exchange: Exchange) -> LeaseAction:
    verb = lease_verb(exchange)
    if verb is LeaseVerb.ACQUIRE:
        return Acquire(_proposed_id(exchange) or new_lease_id(), _lease_duration(exchange))
    if verb is LeaseVerb.BREAK:
        return Break(integer_header(exchange, "x-ms-lease-break-period", 0, 60))
    held = _required_id(exchange, "x-ms-lease-id")
    if verb is LeaseVerb.RENEW:
        return Renew(held)
    if verb is LeaseVerb.RELEASE:
        return Release(held)
    return Change(held, _required_id(exchange, "x-ms-proposed-lease-id"))


def _proposed_id(exchange: Exchange) -> bytes | None:
    """Returns the ID that the client chose for a new lease. An empty one leaves the choice to the
    server, as in Microsoft's examples for Go."""
    name = "x-ms-proposed-lease-id"
    return None if exchange.header(name) == "" else lease_id(exchange, name)


def _lease_duration(exchange: Exchange) -> int | None:
    name = "x-ms-lease-duration"
    written = required_header(exchange, name)
    if written == "-1":
        return None
    return integer_header(exchange, name, 15, 60)


def _required_id(exchange: Exchange, name: str) -> bytes:
    required_header(exchange, name)
    parsed = lease_id(exchange, name)
    assert parsed is not None
    return parsed


# Responses


def lease_headers(lease: Lease, now: int) -> Headers:
    shown = report(lease, now)
    headers = [
        (b"x-ms-lease-status", shown.status.encode()),
        (b"x-ms-lease-state", shown.state.encode()),
    ]
    if shown.duration is not None:
        headers.append((b"x-ms-lease-duration", shown.duration.encode()))
    return headers


LEASE_STATUS: Final = {LeaseVerb.ACQUIRE: 201, LeaseVerb.BREAK: 202}
"""The status of the response to a lease action, where it is not 200."""


def lease_action_headers(lease: Lease, now: int) -> Headers:
    """Returns the headers that describe a lease after an action."""
    if isinstance(lease, FixedLease | InfiniteLease):
        return [(b"x-ms-lease-id", format_lease_id(lease.id).encode())]
    if isinstance(lease, BrokenLease):
        return [(b"x-ms-lease-time", b"%d" % seconds_until_free(lease, now))]
    return []
