"""The REST operations on a file, by name, for tables of what SMB clients make them do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from azure.storage.fileshare import ContentSettings, ShareClient, ShareLeaseClient

from tests.sdk.file.clients import file_token

Operation = Callable[..., object]
"""A request; keyword arguments, such as `timeout`, are those of the SDK."""

READS: Final = ("get", "list ranges")
QUERIES: Final = ("properties", "metadata")
WRITES: Final = ("put range", "clear range", "put range from url")
SETTINGS: Final = ("set properties", "set metadata")
REPLACEMENTS: Final = ("create", "copy to")

LENGTH: Final = 1_024
CONTENT: Final = b"0123456789abcdef" * (LENGTH // 16)


def operations(share: ShareClient, name: str) -> dict[str, Operation]:
    """Returns the operations on a file of `LENGTH` bytes. There must be a file `other` as well."""
    file, other = share.get_file_client(name), share.get_file_client("other")
    lease = ShareLeaseClient(file, "11111111-1111-1111-1111-111111111111")
    source = f"{other.url}?{file_token(share, 'other')}"
    return {
        "get": lambda **options: file.download_file(**options).readall(),
        "list ranges": lambda **options: list(file.list_ranges(**options)),
        "properties": file.get_file_properties,
        "metadata": lambda **options: get_metadata(file, **options),
        "list": lambda **options: list(share.list_directories_and_files(**options)),
        "put range": lambda **options: file.upload_range(b"x", 0, 1, **options),
        "clear range": lambda **options: file.clear_range(0, 512, **options),
        "put range from url": lambda **options: file.upload_range_from_url(
            source, 0, 1, 0, **options
        ),
        "set length": lambda **options: file.resize_file(LENGTH, **options),
        "set properties": lambda **options: file.set_http_headers(ContentSettings(), **options),
        "set metadata": lambda **options: file.set_file_metadata({"a": "b"}, **options),
        "create": lambda **options: file.create_file(LENGTH, **options),
        "copy to": lambda **options: file.start_copy_from_url(other.url, **options),
        "copy from": lambda **options: share.get_file_client("copy").start_copy_from_url(
            file.url, **options
        ),
        "rename": lambda **options: file.rename_file("renamed", **options),
        "rename over": lambda **options: other.rename_file(name, overwrite=True, **options),
        "delete": file.delete_file,
        "acquire": lease.acquire,
        "change": lambda **options: lease.change("22222222-2222-2222-2222-222222222222", **options),
        "release": lease.release,
        "break": lease.break_lease,
    }


def get_metadata(file: Any, **options: Any) -> object:
    """Sends Get File Metadata, which the SDK does not offer."""

    def change(request: Any) -> None:
        sent = request.http_request
        sent.method = "GET"
        sent.url += "&comp=metadata" if "?" in sent.url else "?comp=metadata"

    return file.get_file_properties(raw_request_hook=change, **options)
