"""Opens the ledger and the storage of a cluster.

Their modules are imported only when they are used, because their dependencies are optional.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from etagere.config import Config
from etagere.data_directory import CannotUse
from etagere.front.storage import Storage
from etagere.settings import Settings
from etagere.settings.addresses import DatabaseAddress

if TYPE_CHECKING:
    from etagere.node.cluster_ledger import ClusterLedger


@contextmanager
def optional_dependencies() -> Iterator[None]:
    """Turns the error for a package that is not installed into `CannotUse`."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "etagere":
            raise
        raise CannotUse(
            f"clusters need the package {error.name}: pip install 'etagere[cluster]'"
        ) from error


def cluster_ledger(address: DatabaseAddress, *, create: bool = False) -> ClusterLedger:
    """Returns the ledger in a database; as `ClusterLedger`."""
    with optional_dependencies():
        from etagere.node.cluster_ledger import ClusterLedger  # noqa: PLC0415
    return ClusterLedger(address, create=create)


def prepare_cluster(
    directory: Path, settings: Settings, config: Config, ports: Mapping[str, int]
) -> Storage:
    """Prepares the storage of a node; as `cluster.prepare`."""
    with optional_dependencies():
        from etagere.node import cluster  # noqa: PLC0415
    return cluster.prepare(directory, settings, config, ports)
