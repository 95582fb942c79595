"""Files without leases: the last writer wins.

The File service has no conditions on ETags. Two clients that write the same range of a file do not
notice each other: the later write replaces the earlier one. Writes of different ranges do not
affect each other, whatever their order. Each write is atomic: no reader sees half of one.

If a write depends on what was read before, use a lease (file_lease.py).
"""

from __future__ import annotations

import os
import uuid
from concurrent.futures import ThreadPoolExecutor

from azure.storage.fileshare import ShareFileClient, ShareServiceClient

# The SDK for files does not accept `UseDevelopmentStorage=true`.
DEVELOPMENT_STORAGE = (
    "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;"
    "AccountKey=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/"
    "K1SZFPTOtr/KBHBeksoGMGw==;FileEndpoint=http://127.0.0.1:10003/devstoreaccount1;"
)
CONNECTION = os.environ.get("AZURE_STORAGE_CONNECTION_STRING", DEVELOPMENT_STORAGE)
SEAT_BYTES = 8


def shown(plan: ShareFileClient) -> str:
    """Returns the content of the file; bytes that were never written are zero."""
    return plan.download_file().readall().replace(b"\0", b".").decode()


def the_last_writer_wins(plan: ShareFileClient) -> None:
    plan.upload_range(b"Alice   ", offset=0, length=SEAT_BYTES)
    plan.upload_range(b"Bob     ", offset=0, length=SEAT_BYTES)
    print(f"One seat, two guests: {shown(plan)}")


def writers_of_different_ranges(plan: ShareFileClient) -> None:
    guests = [f"guest {seat:<2}".encode() for seat in range(4)]
    with ThreadPoolExecutor() as pool:
        for seat, guest in enumerate(guests):
            pool.submit(plan.upload_range, guest, offset=seat * SEAT_BYTES, length=SEAT_BYTES)
    print(f"A seat for each guest: {shown(plan)}")


def main() -> None:
    with ShareServiceClient.from_connection_string(CONNECTION) as service:
        share = service.create_share(f"example-{uuid.uuid4()}")
        try:
            plan = share.get_file_client("seats.txt")
            plan.create_file(size=4 * SEAT_BYTES)
            the_last_writer_wins(plan)
            writers_of_different_ranges(plan)
        finally:
            share.delete_share()


if __name__ == "__main__":
    main()
