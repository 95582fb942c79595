"""Permissions in headers: long ones are converted in a thread, so that the event loop goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from etagere.engine.interface import Engine, ReadClass, Refused
from etagere.model.files import NewPermission
from etagere.protocol.file import decode_permissions
from etagere.protocol.rest.exchange import Exchange
from etagere.rules.file_permissions import INLINE_PERMISSION_BYTES_MAX
from tests.protocol.file.test_routes import exchange

SHORT = "O:SYG:SYD:(A;;FA;;;BA)"
LONG = SHORT + "(A;;;;;SY)" * ((INLINE_PERMISSION_BYTES_MAX - len(SHORT)) // 10)


class Threads:
    """The part of an engine that runs functions in threads."""

    used = 0

    async def read_in_thread(
        self, operation: Callable[[Any, Any], Any], command: Any, read_class: ReadClass
    ) -> Any:
        assert read_class.kind == "permission"
        self.used += 1
        event_loop_thread = threading.get_ident()

        def run() -> Any:
            assert threading.get_ident() != event_loop_thread
            return operation(None, command)

        return await asyncio.to_thread(run)


def requested(written: str) -> Exchange:
    return exchange("PUT", "/share/file", headers={"x-ms-file-permission": written})


DECODERS = (decode_permissions.permission_of_new, decode_permissions.permission_to_set)


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize(("written", "in_thread"), [(SHORT, 0), (LONG, 1)])
def test_long_permissions_are_converted_in_a_thread(
    decode: Callable[[Exchange, Engine], Any], written: str, in_thread: int
) -> None:
    threads = Threads()
    found = asyncio.run(decode(requested(written), cast(Engine, threads)))
    assert isinstance(found, NewPermission)
    assert threads.used == in_thread


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize(
    ("written", "in_thread"),
    [(SHORT + "(", 0), (LONG[:-1], 1), (LONG + "x" * INLINE_PERMISSION_BYTES_MAX, 0)],
)
def test_invalid_permissions_are_refused(
    decode: Callable[[Exchange, Engine], Any], written: str, in_thread: int
) -> None:
    threads = Threads()
    with pytest.raises(Refused) as caught:
        asyncio.run(decode(requested(written), cast(Engine, threads)))
    assert caught.value.refusal.code == "FileInvalidPermission"
    assert threads.used == in_thread
