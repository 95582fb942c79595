"""The S3 server of the tests: kills and pauses."""

from __future__ import annotations

import json
from pathlib import Path

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, BaseError

from tests.clusters.guard import processes_in
from tests.clusters.s3 import S3Server, s3_server


def test_objects_survive_kills(tmp_path: Path) -> None:
    with s3_server(tmp_path) as server:
        store = server.store("prefix")
        names = [f"objects/{number}" for number in range(20)]
        for name in names:
            obstore.put(store, name, name.encode() * 100)
        server.kill()
        with pytest.raises(BaseError):
            obstore.put(store, "lost", b"")
        server.start()
        for name in names:
            assert obstore.get(store, name).bytes() == name.encode() * 100
        directory = server.directory
    assert not directory.exists()
    assert not processes_in(directory)
    assert not [path for path in Path("/tmp").glob("seaweedfs-*.sock") if _names(path, server)]


def _names(path: Path, server: S3Server) -> bool:
    """Returns whether a socket has one of the ports of a server in its name."""
    ports = json.loads(server.access())["ports"].values()
    return path.stem.rpartition("-")[2] in map(str, ports)


def test_objects_are_not_overwritten(s3_store: S3Server) -> None:
    store = s3_store.store("overwriting")
    obstore.put(store, "name", b"first", mode="create")
    with pytest.raises(AlreadyExistsError):
        obstore.put(store, "name", b"second", mode="create")
