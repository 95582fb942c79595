"""The process of the bystanders. It is started for each measurement and so imports little: to
import the SDKs would take longer than most measurements."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from typing import Final

from tests.probes.client import Client, Request, Signer, shared_key

_CONNECTIONS: Final = 6
_PACE_SECONDS: Final = 0.005
_REQUESTS_MIN: Final = 2
"""The first request belongs to the start, and an attack may end before the second one is due."""


def _get_repeatedly(
    endpoint: str, path: str, sign: Signer, waits: list[float], stop: threading.Event
) -> None:
    with Client(endpoint) as client:
        while not stop.is_set() or len(waits) < _REQUESTS_MIN:
            request = sign(Request("GET", path))
            began = time.perf_counter()
            answer = client.ask(request)
            waits.append(time.perf_counter() - began)
            assert answer.status == 200, answer
            time.sleep(_PACE_SECONDS)


def _read_repeatedly(endpoint: str, path: str, waits: list[float], stop: threading.Event) -> None:
    """The same through SMB."""
    from tests.hostile.smb import SmbReader  # noqa: PLC0415 (takes long, and few need it)

    async def read() -> None:
        _, _, share, name = path.split("/")
        reader = await SmbReader.open(endpoint, share, name)
        while not stop.is_set() or len(waits) < _REQUESTS_MIN:
            began = time.perf_counter()
            await reader.read(1_024)
            waits.append(time.perf_counter() - began)
            await asyncio.sleep(_PACE_SECONDS)
        reader.client.writer.close()

    asyncio.run(read())


def _main(endpoint: str, path: str, account: str, key: str) -> None:
    sign = shared_key(account, key)
    waits: list[list[float]] = [[] for _ in range(_CONNECTIONS)]
    stop = threading.Event()
    is_smb = endpoint.startswith("smb:")
    threads = [
        threading.Thread(target=_read_repeatedly, args=(endpoint, path, own_waits, stop))
        if is_smb
        else threading.Thread(target=_get_repeatedly, args=(endpoint, path, sign, own_waits, stop))
        for own_waits in waits
    ]
    for thread in threads:
        thread.start()
    while not all(waits):
        time.sleep(_PACE_SECONDS)
    print("started", flush=True)
    sys.stdin.read()
    stop.set()
    for thread in threads:
        thread.join()
    print(json.dumps([wait for own_waits in waits for wait in own_waits[1:]]))


if __name__ == "__main__":
    _main(*sys.argv[1:])
