"""Exports: files in a share that other programs read, for example over SMB."""

from __future__ import annotations

from contextlib import suppress

from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError
from azure.storage.fileshare import ShareClient, ShareServiceClient

SHARE = "exports"


class ExportMissing(Exception):
    """There is no export of this album."""


class Exports:
    """One file for each album, which is replaced as a whole."""

    def __init__(self, service: ShareServiceClient) -> None:
        self._share: ShareClient = service.get_share_client(SHARE)

    def create(self) -> None:
        """Creates the share. Does nothing if it exists."""
        with suppress(ResourceExistsError):
            self._share.create_share()

    def publish(self, album: str, data: bytes) -> None:
        """Writes an export beside the old one, and then renames it: readers find the old or the
        new one, never a part."""
        with self._share.get_file_client(f"{album}.new") as draft:
            draft.upload_file(data)
            draft.rename_file(f"{album}.zip", overwrite=True).close()

    def read(self, album: str) -> bytes:
        with self._share.get_file_client(f"{album}.zip") as file:
            try:
                return file.download_file().readall()
            except ResourceNotFoundError:
                raise ExportMissing(album) from None

    def patch(self, album: str, offset: int, data: bytes) -> None:
        """Overwrites some bytes of an export."""
        with self._share.get_file_client(f"{album}.zip") as file:
            file.upload_range(data, offset, len(data))

    def albums(self) -> list[str]:
        """Returns the albums that have an export, in order."""
        found = self._share.list_directories_and_files()
        return [file.name.removesuffix(".zip") for file in found if file.name.endswith(".zip")]

    def close(self) -> None:
        self._share.close()
