"""Connections to Ceph clusters: addresses, timeouts and errors.

Keys come from the keyring that the configuration file of Ceph names.
"""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from etagere.bodies.objects.addresses import InvalidStore, split_store_url
from etagere.engine.interface import Fault, FaultReason

_CONFIGURATION: Final = Path("/etc/ceph/ceph.conf")
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")
_OPTIONS: Final = {"conf", "user", "namespace"}
_FULL: Final = {errno.ENOSPC, errno.EDQUOT}
_REFUSED: Final = {
    errno.EACCES,
    errno.EFBIG,
    errno.EINVAL,
    errno.EIO,
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.EOPNOTSUPP,
    errno.EPERM,
    errno.EROFS,
}


@dataclass(frozen=True)
class RadosAddress:
    """Where a pool is, and how it is used."""

    pool: str
    prefix: str = ""
    configuration: Path = _CONFIGURATION
    user: str = "admin"
    """Without `client.`."""
    namespace: str = ""


def parse_rados_url(url: str) -> RadosAddress:
    """Parses `rados://POOL[/PREFIX][?OPTION=VALUE&…]`. Raises `InvalidStore`."""
    pool, prefix, options = split_store_url(
        url,
        "rados",
        "rados://POOL[/PREFIX][?OPTION=VALUE&…]",
        _OPTIONS,
        "name the keyring in the configuration file of Ceph",
    )
    if not _NAME.fullmatch(pool):
        raise InvalidStore("has an invalid pool name")
    configuration = Path(options.get("conf", _CONFIGURATION))
    if not configuration.is_absolute():
        raise InvalidStore("has an invalid option: conf is an absolute path")
    user = options.get("user", "admin").removeprefix("client.")
    if not _NAME.fullmatch(user):
        raise InvalidStore("has an invalid option: user is the name of a client")
    namespace = options.get("namespace", "")
    if namespace and not _NAME.fullmatch(namespace):
        raise InvalidStore("has an invalid option: namespace")
    return RadosAddress(pool, prefix, configuration, user, namespace)


class Connection(NamedTuple):
    """A connection to a cluster, with a pool."""

    cluster: Any
    pool: Any

    def close(self) -> None:
        self.pool.close()
        self.cluster.shutdown()


class Timeouts(NamedTuple):
    """How long librados waits, in seconds."""

    connect: int = 10
    operation: int = 30
    """Longer than a cluster takes to notice that an OSD is dead: then another one answers."""


TIMEOUTS: Final = Timeouts()


def connect(binding: Any, address: RadosAddress, timeouts: Timeouts) -> Connection:
    """Connects to a cluster. Raises `Fault`."""
    try:
        with address.configuration.open("rb"):
            pass
    except OSError as error:
        detail = f"RADOS: {address.configuration} cannot be read: {error.strerror}"
        raise Fault(FaultReason.FAILED, detail) from None
    what = "connect"
    cluster = None
    try:
        cluster = binding.Rados(
            conffile=str(address.configuration),
            rados_id=address.user,
            conf={
                "client_mount_timeout": str(timeouts.connect),
                "rados_mon_op_timeout": str(timeouts.connect),
                "rados_osd_op_timeout": str(timeouts.operation),
                # librados would block the event loop at its limits. The callers have their own.
                "objecter_inflight_ops": "0",
                "objecter_inflight_op_bytes": "0",
            },
        )
        cluster.connect()
        what = "open the pool"
        pool = cluster.open_ioctx(address.pool)
        pool.set_namespace(address.namespace)
        # When the pool is full, writes fail instead of waiting.
        pool.set_osdmap_full_try()
    except binding.Error as error:
        if cluster is not None:
            cluster.shutdown()
        raise fault_of(what, error_number(error)) from None
    return Connection(cluster, pool)


def error_number(error: Any) -> int:
    """Returns the error number of an exception of the binding; most have one."""
    number = getattr(error, "errno", None)
    return abs(number) if isinstance(number, int) else errno.EINVAL


def fault_of(what: str, number: int) -> Fault:
    if number in _FULL:
        reason = FaultReason.DISK_FULL
    else:
        reason = FaultReason.FAILED if number in _REFUSED else FaultReason.UNAVAILABLE
    return Fault(reason, f"RADOS, {what}: {os.strerror(number)}")
