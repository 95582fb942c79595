"""An append blob as a log: several appenders add lines, and no line is lost or torn.

The server appends each block atomically and returns its offset; that needs no condition. A
condition is needed if the new line depends on the existing ones. Here every line gets the next
number, so an appender sends the position at which it expects the end. If another appender was
faster, the server refuses the append with 412, and the appender reads the end again.
"""

from __future__ import annotations

import os
import random
import threading
import time
import uuid
from collections.abc import Callable

from azure.core.exceptions import HttpResponseError
from azure.storage.blob import BlobClient, BlobServiceClient

CONNECTION = os.environ.get("AZURE_STORAGE_CONNECTION_STRING", "UseDevelopmentStorage=true")
APPENDERS = 4
LINES_PER_APPENDER = 5
TAIL_BYTES = 200  # more than the longest line


def add(log: BlobClient, line: str) -> bool:
    """Appends a line at the end; returns whether it is at the returned offset."""
    data = line.encode()
    offset = int(str(log.append_block(data)["blob_append_offset"]))
    return log.download_blob(offset, len(data)).readall() == data


def add_numbered(log: BlobClient, text: str) -> int:
    """Appends a line with the next number; returns the number of failed attempts."""
    conflicts = 0
    while True:
        # Existing bytes of an append blob never change, so reading them after the size is safe.
        size = log.get_blob_properties().size
        start = max(0, size - TAIL_BYTES)
        tail = log.download_blob(start, size - start).readall().decode() if size else ""

        # If a response is lost, the SDK repeats the request, and the condition fails because of
        # our own first attempt. Texts are unique, so finding ours shows that it succeeded.
        if f" {text}\n" in tail:
            return conflicts

        number = int(tail.splitlines()[-1].split()[0]) + 1 if tail else 1
        try:
            log.append_block(f"{number} {text}\n".encode(), appendpos_condition=size)
        except HttpResponseError as error:
            if error.status_code != 412:
                raise
            # Another appender was faster. Random exponential backoff reduces further conflicts.
            conflicts += 1
            time.sleep(random.uniform(0, 0.005 * 2 ** min(conflicts, 6)))
        else:
            return conflicts


def in_parallel(act: Callable[[str], object]) -> None:
    """Calls `act` for each line of each appender, with the appenders in parallel."""

    def append(appender: int) -> None:
        for number in range(LINES_PER_APPENDER):
            act(f"appender-{appender}-line-{number}")

    appenders = [threading.Thread(target=append, args=(n,)) for n in range(APPENDERS)]
    for appender in appenders:
        appender.start()
    for appender in appenders:
        appender.join()


def main() -> None:
    with BlobServiceClient.from_connection_string(CONNECTION) as service:
        container = service.create_container(f"example-{uuid.uuid4()}")
        try:
            free = container.get_blob_client("free.log")
            free.create_append_blob()
            whole: list[bool] = []
            in_parallel(lambda text: whole.append(add(free, f"{text}\n")))
            print(f"{len(whole)} lines were appended, {sum(whole)} of them at the returned offset.")

            numbered = container.get_blob_client("numbered.log")
            numbered.create_append_blob()
            conflicts: list[int] = []
            in_parallel(lambda text: conflicts.append(add_numbered(numbered, text)))
            lines = numbered.download_blob(encoding="utf-8").readall().splitlines()
            numbers = [int(line.split()[0]) for line in lines]
            gaps = "without a gap" if numbers == list(range(1, len(lines) + 1)) else "with gaps"
            print(f"{len(lines)} lines are numbered from {numbers[0]} to {numbers[-1]}, {gaps}.")
            print(f"Conflicts that were retried: {sum(conflicts)}.")

            # A sealed log accepts no further blocks.
            numbered.seal_append_blob()
            try:
                numbered.append_block(b"too late\n")
            except HttpResponseError as error:
                print(f"A sealed log cannot be extended: {error.message.splitlines()[0]}")
        finally:
            container.delete_container()


if __name__ == "__main__":
    main()
