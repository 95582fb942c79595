"""Put Message, and Get Messages with Delete Message, over HTTP, compared with Azurite."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import re
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote_from_bytes

from benchmarks import tools
from benchmarks.figures import Figure, Group, Round, Settings
from benchmarks.load import (
    ACCOUNT,
    Follow,
    Load,
    Run,
    development_sas,
    run,
    run_each,
    run_to_the_end,
)
from benchmarks.services import AZURITE, OURS, QUEUE, Service, ask, started

_TEXT_BYTES = 1024
_STANDING = 10_000
"""Messages in the queue at the beginning of each run, more than a run takes."""
_SECONDS = 2
_HIDDEN_SECONDS = 7 * 24 * 3600
"""The maximum, so that no taken message becomes visible again."""
_ENVELOPE = "<QueueMessage><MessageText>{}</MessageText></QueueMessage>"
_TAKEN = re.compile(rb"<MessageId>([^<]+)</MessageId>.*<PopReceipt>([^<]+)</PopReceipt>", re.DOTALL)
_DELETED = b"HTTP/1.1 204 "


def put_load(queue: str, sas: str) -> Load:
    target = f"/{ACCOUNT}/{queue}/messages?{sas}"
    return Load("POST", target, body_bytes=_TEXT_BYTES, envelope=_ENVELOPE)


def get_load(queue: str, sas: str, messages: int = 1) -> Load:
    asked = f"numofmessages={messages}&visibilitytimeout={_HIDDEN_SECONDS}"
    return Load("GET", f"/{ACCOUNT}/{queue}/messages?{asked}&{sas}")


def delete_load(queue: str, sas: str) -> Load:
    return Load("DELETE", f"/{ACCOUNT}/{queue}/messages/{{}}&{sas}")


def taken_in(answer: bytes) -> str:
    """Returns the part of the target that identifies the message to delete."""
    taken = _TAKEN.search(answer)
    if taken is None:
        raise RuntimeError(f"no message was taken: {answer[:1000]!r}")
    return f"{taken[1].decode()}?popreceipt={quote_from_bytes(taken[2], safe='')}"


def create(service: Service, queue: str, sas: str) -> None:
    _ask(service, "PUT", f"/{ACCOUNT}/{queue}?{sas}")


def _ask(service: Service, method: str, target: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", service.port)
    with contextlib.closing(connection):
        ask(connection, method, target)


async def measure(settings: Settings) -> AsyncIterator[Round]:
    wrk = tools.wrk(install=not settings.quick)
    with (
        tempfile.TemporaryDirectory(prefix="etagere-bench-", dir=settings.directory) as scripts,
        started(settings, {}, kind=QUEUE) as services,
    ):
        client = _Client(wrk, Path(scripts), settings)
        for service in services.values():
            client.prepare(service)
        for number in range(settings.rounds):
            order = list(services.values())
            if number % 2:
                order.reverse()
            puts = {one.name: client.put(one) for one in order}
            pairs = {one.name: client.take_and_delete(one) for one in order}
            told = {name: done for name, done in puts.items() if done is not None}
            yield _told("put", told) | _told("pair", pairs)
        yield {
            f"queues.memory{_suffix(name)}": service.peak_mebibytes()
            for name, service in services.items()
        }


class _Client:
    """Puts to one queue, and takes from another that is never empty."""

    def __init__(self, wrk: str | None, scripts: Path, settings: Settings) -> None:
        self._wrk = wrk
        self._scripts = scripts
        self._seconds = 0.1 if settings.quick else _SECONDS
        self._standing = settings.scaled(_STANDING, 1_000)
        self._sas = development_sas()
        self._seeds = itertools.count(1)

    def prepare(self, service: Service) -> None:
        for queue in ("put", "standing"):
            create(service, queue, self._sas)
        self._fill(service, self._standing)

    def _fill(self, service: Service, messages: int) -> None:
        run_each(service, put_load("standing", self._sas), [""] * messages)

    def put(self, service: Service) -> Run | None:
        """Puts messages to an empty queue."""
        if self._wrk is None:
            return None
        _ask(service, "DELETE", f"/{ACCOUNT}/put/messages?{self._sas}")
        load = put_load("put", self._sas)
        return run(self._wrk, service, load, self._seconds, self._scripts, next(self._seeds))

    def take_and_delete(self, service: Service) -> Run:
        load, follow = get_load("standing", self._sas), self._deletion(service)
        done = run_to_the_end(service, load, self._seconds, next(self._seeds), follow)
        self._fill(service, done.requests)
        return done

    def _deletion(self, service: Service) -> Follow:
        """Returns a function that builds the request to delete a taken message."""
        load = delete_load("standing", self._sas)
        before, _, after = load.target.partition("{}")

        def delete(answer: bytes) -> bytes | None:
            if answer.startswith(_DELETED):
                return None
            target = before + taken_in(answer) + after
            return f"{load.method} {target} HTTP/1.1\r\nHost: {service.address}\r\n\r\n".encode()

        return delete


def _told(what: str, runs: dict[str, Run]) -> Round:
    told: Round = {}
    for name, done in runs.items():
        suffix = _suffix(name)
        told[f"queues.{what}{suffix}"] = done.per_second
        told[f"queues.{what}_cpu{suffix}"] = done.cpu_microseconds
        told[f"queues.{what}_p50{suffix}"] = 1000 * done.p50
        told[f"queues.{what}_p99{suffix}"] = 1000 * done.p99
    if len(runs) > 1:
        ours, theirs = runs[OURS], runs[AZURITE]
        told[f"queues.{what}_ratio"] = ours.per_second / theirs.per_second
        told[f"queues.{what}_cpu_ratio"] = theirs.cpu_microseconds / ours.cpu_microseconds
    return told


def _suffix(name: str) -> str:
    return "" if name == OURS else f"_{name}"


def _figures(what: str, text: str, at_least: float) -> tuple[Figure, ...]:
    return (
        Figure(f"queues.{what}_ratio", f"{text}, relative to Azurite", " x", at_least=at_least),
        Figure(f"queues.{what}", text, "/s"),
        Figure(f"queues.{what}_azurite", "  Azurite", "/s"),
        Figure(f"queues.{what}_cpu", "  CPU time per request", " µs"),
        Figure(f"queues.{what}_cpu_azurite", "  CPU time per request of Azurite", " µs"),
        Figure(f"queues.{what}_cpu_ratio", "  CPU time of Azurite relative to ours", " x"),
        Figure(f"queues.{what}_p50", "  median latency", " ms"),
        Figure(f"queues.{what}_p50_azurite", "  Azurite", " ms"),
        Figure(f"queues.{what}_p99", "  p99 latency", " ms"),
        Figure(f"queues.{what}_p99_azurite", "  Azurite", " ms"),
    )


GROUP = Group(
    "queues",
    measure,
    (
        *_figures("put", "Put Message of 1 KiB, 16 connections", 8),
        *_figures("pair", "Get and Delete Message, 10,000 standing, 16 connections", 30),
        Figure("queues.memory", "peak memory of all processes, messages", " MiB"),
        Figure("queues.memory_azurite", "  Azurite", " MiB"),
    ),
)
