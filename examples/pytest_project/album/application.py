"""The application: keeps photos, index, tasks and exports consistent."""

from __future__ import annotations

import os
from contextlib import ExitStack

from azure.data.tables import TableServiceClient
from azure.storage.blob import BlobServiceClient
from azure.storage.fileshare import ShareServiceClient
from azure.storage.queue import QueueServiceClient

from album.exports import Exports
from album.index import Index
from album.photos import PhotoExists, Photos
from album.tasks import Tasks

VARIABLE = "AZURE_STORAGE_CONNECTION_STRING"


class Application:
    """The photo albums of one storage account. A context manager that closes its connections."""

    def __init__(self, connection_string: str) -> None:
        with ExitStack() as opened:
            blobs = opened.enter_context(
                BlobServiceClient.from_connection_string(connection_string)
            )
            tables = opened.enter_context(
                TableServiceClient.from_connection_string(connection_string)
            )
            queues = opened.enter_context(
                QueueServiceClient.from_connection_string(connection_string)
            )
            shares = opened.enter_context(
                ShareServiceClient.from_connection_string(connection_string)
            )
            self.photos = Photos(blobs)
            self.index = Index(tables)
            self.tasks = Tasks(queues)
            self.exports = Exports(shares)
            for part in (self.index, self.tasks, self.exports):
                opened.callback(part.close)
            for store in (self.photos, self.index, self.tasks, self.exports):
                store.create()
            self._opened = opened.pop_all()

    @classmethod
    def from_environment(cls) -> Application:
        return cls(os.environ[VARIABLE])

    def __enter__(self) -> Application:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def add(self, album: str, photo: str, data: bytes) -> None:
        """Adds a photo to an album. Adding it again, after a crash, completes what is missing."""
        name = f"{album}/{photo}"
        try:
            self.photos.add(name, data)
        except PhotoExists:
            if self.photos.get(name).data != data:
                raise
        if self.index.add(album, photo, size=len(data)):
            self.tasks.add(name)

    def work(self) -> str | None:
        """Makes the thumbnail of one photo; returns the name of the photo, or None if there is
        nothing to do."""
        task = self.tasks.take()
        if task is None:
            return None
        photo = self.photos.get(task.photo)
        self.photos.tag(photo.name, thumbnail="yes")
        self.tasks.finish(task)
        return photo.name

    def export(self, album: str) -> int:
        """Publishes an album as one file; returns the number of its photos."""
        names = self.photos.in_album(album)
        self.exports.publish(album, b"".join(self.photos.get(name).data for name in names))
        return len(names)
