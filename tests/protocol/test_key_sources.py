"""Keys of issuers: files that change, URLs that are fetched, rotation and outages."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from etagere.auth.key_set import KeySet
from etagere.protocol.rest.key_sources import (
    UNKNOWN_KEY_PAUSE_SECONDS,
    FetchedKeys,
    FileKeys,
    KeysUnavailable,
)
from tests.tokens import ec_key, key_set

ONE, TWO = key_set(ec_key("one")), key_set(ec_key("two"), ec_key("one"))
BAD = b'{"keys": []}'


class FakeClock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def ids(keys: KeySet) -> set[str]:
    return {name for name in ("one", "two") if keys.find(name) is not None}


# Files


def write(path: Path, text: bytes) -> None:
    """Replaces a file, so that it is another one even if the clock of the file system is coarse."""
    new = path.with_suffix(".new")
    new.write_bytes(text)
    new.replace(path)


def renewed(keys: FileKeys) -> KeySet:
    return asyncio.run(keys.renewed())


def test_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path, clock = tmp_path / "keys.json", FakeClock()
    write(path, ONE)
    keys = FileKeys(path, clock)
    first = keys.current()
    assert ids(first) == {"one"}
    write(path, TWO)
    assert keys.current() is first, "checked again before a second has passed"
    clock.now += 1
    assert ids(keys.current()) == {"one", "two"}
    write(path, ONE)
    assert ids(renewed(keys)) == {"one"}, "an unknown key is looked for at once"
    same = keys.current()
    clock.now += 1
    assert keys.current() is same


def test_a_named_pipe_is_not_waited_for(tmp_path: Path) -> None:
    path, pipe, clock = tmp_path / "keys.json", tmp_path / "pipe", FakeClock()
    write(path, ONE)
    os.mkfifo(pipe)
    keys = FileKeys(path, clock)
    pipe.replace(path)
    clock.now += 1
    assert ids(keys.current()) == {"one"}
    with pytest.raises(KeysUnavailable, match="not a regular file"):
        FileKeys(path)


@pytest.mark.parametrize("text", [BAD, b"", b"{", None])
def test_the_last_keys_of_a_file_stay_in_use(
    tmp_path: Path, text: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    path, clock = tmp_path / "keys.json", FakeClock()
    write(path, ONE)
    keys = FileKeys(path, clock)
    if text is None:
        path.unlink()
    else:
        write(path, text)
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            clock.now += 1
            assert ids(keys.current()) == {"one"}
            assert ids(renewed(keys)) == {"one"}
    (record,) = (each for each in caplog.records if each.levelno == logging.WARNING)
    assert str(path) in record.getMessage()
    write(path, TWO)
    clock.now += 1
    assert ids(keys.current()) == {"one", "two"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BAD, "has no key"),
        (b"{", "is not a JSON Web Key Set"),
        (None, "cannot be read: No such file"),
        (b" " * (2 << 20), "has more than"),
    ],
)
def test_the_first_keys_of_a_file_must_be_usable(
    tmp_path: Path, text: bytes | None, words: str
) -> None:
    path = tmp_path / "keys.json"
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(KeysUnavailable, match=words):
        FileKeys(path)


def test_a_directory_is_no_key_set(tmp_path: Path) -> None:
    with pytest.raises(KeysUnavailable, match="Is a directory"):
        FileKeys(tmp_path)


# URLs


class FakeIssuer:
    """Answers fetches when it is told to."""

    def __init__(self) -> None:
        self.text: bytes | None = ONE
        self.fetches = 0
        self.answers = asyncio.Event()
        self.answers.set()
        self.clock = FakeClock()
        self.keys = FetchedKeys(self.fetch, self.clock)

    async def fetch(self) -> bytes:
        self.fetches += 1
        await self.answers.wait()
        if self.text is None:
            raise KeysUnavailable("the issuer cannot be read")
        return self.text


def run(test: Callable[[FakeIssuer], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(10):
            await test(FakeIssuer())

    asyncio.run(main())


def test_keys_are_fetched_and_replaced() -> None:
    async def test(issuer: FakeIssuer) -> None:
        keys = issuer.keys
        assert len(keys.current()) == 0
        await keys.refresh()
        first = keys.current()
        assert ids(first) == {"one"}
        await keys.refresh()
        assert keys.current() is first, "tokens stay known if the keys are the same"
        issuer.text = TWO
        await keys.refresh()
        assert ids(keys.current()) == {"one", "two"}
        issuer.text = key_set(ec_key("two"))
        await keys.refresh()
        assert ids(keys.current()) == {"two"}, "a key that the issuer has withdrawn is not used"

    run(test)


def test_unknown_keys_cause_a_fetch_now_and_then() -> None:
    async def test(issuer: FakeIssuer) -> None:
        keys = issuer.keys
        await keys.refresh()
        for _ in range(100):
            assert ids(await keys.renewed()) == {"one"}
        assert issuer.fetches == 2
        issuer.text = TWO
        issuer.clock.now += UNKNOWN_KEY_PAUSE_SECONDS
        found = await asyncio.gather(*(keys.renewed() for _ in range(100)))
        assert issuer.fetches == 3
        assert all(ids(each) == {"one", "two"} for each in found)
        for _ in range(100):
            await keys.renewed()
        assert issuer.fetches == 3

    run(test)


@pytest.mark.parametrize("text", [None, BAD, b"", b"<html>"])
def test_an_outage_changes_nothing(text: bytes | None) -> None:
    async def test(issuer: FakeIssuer) -> None:
        keys = issuer.keys
        await keys.refresh()
        issuer.text = text
        for _ in range(3):
            with pytest.raises(KeysUnavailable):
                await keys.refresh()
            issuer.clock.now += UNKNOWN_KEY_PAUSE_SECONDS
            assert ids(await keys.renewed()) == {"one"}
        assert issuer.fetches == 7
        issuer.text = TWO
        issuer.clock.now += UNKNOWN_KEY_PAUSE_SECONDS
        assert ids(await keys.renewed()) == {"one", "two"}

    run(test)


def test_requests_wait_for_the_first_keys() -> None:
    async def test(issuer: FakeIssuer) -> None:
        issuer.answers.clear()
        job = asyncio.create_task(issuer.keys.refresh())
        request = asyncio.create_task(issuer.keys.renewed())
        await asyncio.sleep(0)
        issuer.answers.set()
        assert ids(await request) == {"one"}
        await job
        assert issuer.fetches == 1

    run(test)


def test_a_request_that_ends_does_not_end_the_fetch() -> None:
    async def test(issuer: FakeIssuer) -> None:
        issuer.answers.clear()
        gone = asyncio.create_task(issuer.keys.renewed())
        waiting = asyncio.create_task(issuer.keys.renewed())
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        issuer.answers.set()
        assert ids(await waiting) == {"one"}
        assert issuer.fetches == 1

    run(test)
