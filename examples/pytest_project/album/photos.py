"""Photos: block blobs in a container, one directory per album."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import (
    BlobClient,
    BlobLeaseClient,
    BlobServiceClient,
    ContentSettings,
    StorageErrorCode,
)

CONTAINER = "photos"
LOCK_SECONDS = 15


class PhotoExists(Exception):
    """There is already a photo of this name."""


class PhotoMissing(Exception):
    """There is no photo of this name."""


class PhotoChanged(Exception):
    """Somebody else has changed the photo since it was read."""


class PhotoLocked(Exception):
    """Somebody else is editing the photo."""


_ERRORS: dict[str, type[Exception]] = {
    StorageErrorCode.BLOB_ALREADY_EXISTS: PhotoExists,
    StorageErrorCode.BLOB_NOT_FOUND: PhotoMissing,
    StorageErrorCode.CONDITION_NOT_MET: PhotoChanged,
    StorageErrorCode.LEASE_ALREADY_PRESENT: PhotoLocked,
    StorageErrorCode.LEASE_ID_MISSING: PhotoLocked,
}


@contextmanager
def _errors_of(name: str) -> Iterator[None]:
    """Raises the errors of the application instead of those of the service."""
    try:
        yield
    except HttpResponseError as error:
        kind = _ERRORS.get(getattr(error, "error_code", ""))
        if kind is None:
            raise
        raise kind(name) from None


@dataclass(frozen=True)
class Photo:
    """A version of a photo. `etag` identifies the version."""

    name: str
    data: bytes
    etag: str
    title: str


class Photos:
    """The photos of all albums."""

    def __init__(self, service: BlobServiceClient) -> None:
        self._container = service.get_container_client(CONTAINER)

    def create(self) -> None:
        """Creates the container. Does nothing if it exists."""
        if not self._container.exists():
            self._container.create_container()

    def add(self, name: str, data: bytes, *, title: str = "") -> str:
        """Adds a photo; returns the ETag. Never replaces another one."""
        with _errors_of(name):
            added = self._blob(name).upload_blob(
                data,
                metadata={"title": title},
                content_settings=ContentSettings(content_type="image/jpeg"),
            )
        return str(added["etag"])

    def get(self, name: str) -> Photo:
        with _errors_of(name):
            found = self._blob(name).download_blob()
        properties = found.properties
        title = (properties.metadata or {}).get("title", "")
        return Photo(name, found.readall(), str(properties.etag), title)

    def preview(self, name: str, size: int) -> bytes:
        """Returns the first bytes of a photo."""
        with _errors_of(name):
            return self._blob(name).download_blob(0, size).readall()

    def replace(self, photo: Photo, data: bytes) -> str:
        """Replaces the version of a photo that was read; returns the new ETag."""
        with _errors_of(photo.name):
            stored = self._blob(photo.name).upload_blob(
                data,
                overwrite=True,
                metadata={"title": photo.title},
                etag=photo.etag,
                match_condition=MatchConditions.IfNotModified,
            )
        return str(stored["etag"])

    @contextmanager
    def editing(self, name: str) -> Iterator[str]:
        """Locks a photo for other writers as long as the block runs; yields the lease ID."""
        with _errors_of(name):
            lease = self._blob(name).acquire_lease(LOCK_SECONDS)
        try:
            yield lease.id
        finally:
            lease.release()

    def edit(self, name: str, data: bytes, lease_id: str) -> None:
        """Replaces a photo under the lease of its editor."""
        blob = self._blob(name)
        blob.upload_blob(data, overwrite=True, lease=BlobLeaseClient(blob, lease_id))

    def in_album(self, album: str) -> list[str]:
        """Returns the names of the photos of an album, in order."""
        return list(self._container.list_blob_names(name_starts_with=f"{album}/"))

    def albums(self) -> list[str]:
        """Returns the names of all albums, in order."""
        return [found.name.rstrip("/") for found in self._container.walk_blobs(delimiter="/")]

    def delete(self, name: str) -> None:
        with _errors_of(name):
            self._blob(name).delete_blob(delete_snapshots="include")

    def keep_version(self, name: str) -> str:
        """Keeps the current version of a photo; returns its number."""
        return str(self._blob(name).create_snapshot()["snapshot"])

    def get_version(self, name: str, number: str) -> bytes:
        """Returns a version of a photo that was kept."""
        version = BlobClient.from_blob_url(
            self._blob(name).url, credential=self._container.credential, snapshot=number
        )
        with version:
            return version.download_blob().readall()

    def tag(self, name: str, **tags: str) -> None:
        self._blob(name).set_blob_tags(tags)

    def tagged(self, tag: str, value: str) -> list[str]:
        """Returns the names of the photos that have a tag."""
        found = self._container.find_blobs_by_tags(f"\"{tag}\"='{value}'")
        return sorted(blob.name for blob in found)

    def _blob(self, name: str) -> BlobClient:
        return self._container.get_blob_client(name)
