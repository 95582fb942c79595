"""Runs the cifs client of the Linux kernel against this server, in a virtual machine.

A mount needs a kernel with the cifs module, and root. The machine has both, whatever this one has:
a Debian kernel and busybox, downloaded once, in QEMU.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cifs import machine
from tests.server import ACCOUNT, KEY, served

CACHE = Path(".cifs")
SHARE = "kernel"


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m cifs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--seconds-max", type=float, default=900.0, help="limit of the run (default: 900)")
    add("--port", type=int, help="use the server on this port, which has the share, instead")
    add("--user", default=ACCOUNT)
    add("--password", default=KEY)
    add("--share", default=SHARE)
    add("-v", "--verbose", action="store_true", help="show everything that the machine prints")
    return parser.parse_args(arguments)


def _run(asked: argparse.Namespace, port: int) -> int:
    kernel, image = machine.build(CACHE, Path(__file__).with_name("guest.sh"))
    options = f"port={port} user={asked.user} password={asked.password} share={asked.share}"
    passed, failed, is_complete = 0, 0, False
    for line in machine.run(kernel, image, options, asked.seconds_max):
        if asked.verbose or line.startswith(("FAIL", "    ")):
            print(line, flush=True)
        passed += line.startswith("ok ")
        failed += line.startswith("FAIL ")
        is_complete = is_complete or line == "done"
    print(f"{passed} passed, {failed} failed{'' if is_complete else ', and the run did not end'}")
    return 0 if is_complete and passed and not failed else 1


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _arguments(arguments)
    CACHE.mkdir(exist_ok=True)
    if asked.port is not None:
        return _run(asked, asked.port)
    with tempfile.TemporaryDirectory() as directory, served(Path(directory)) as server:
        from azure.storage.fileshare import ShareServiceClient  # noqa: PLC0415 (only needed here)

        connection = server.connection_string("file")
        ShareServiceClient.from_connection_string(connection).create_share(asked.share)
        return _run(asked, int(server.endpoints["smb"].rpartition(":")[2]))


if __name__ == "__main__":
    sys.exit(main())
