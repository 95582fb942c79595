"""Directories and files: durable names, files that only their owner can read, and opening files
that an operator has named."""

from __future__ import annotations

import errno
import logging
import os
import stat
from pathlib import Path

logger = logging.getLogger(__name__)

LOCK_NAME = "lock"
"""The file that a server, or another process that uses a data directory alone, has locked."""
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def sync(directory: Path) -> None:
    """Makes the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make(directory: Path, *, durable: bool = True) -> None:
    """Creates a directory and its missing parents, private and, unless for a temporary store,
    durable."""
    if directory.is_dir():
        return
    make(directory.parent, durable=durable)
    directory.mkdir(mode=0o700, exist_ok=True)
    if durable:
        sync(directory.parent)


def open_private(path: Path, flags: int = os.O_RDWR) -> int:
    """Opens a file that only its owner may read and write; creates it if it is missing."""
    return os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, 0o600)


def open_regular(path: Path, bytes_max: int) -> int:
    """Opens a regular file for reading. Raises `OSError` for anything else, and for a longer file:
    to open a named pipe, or to read a device, may take for ever."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        if status.st_size > bytes_max:
            raise OSError(errno.EFBIG, f"it has more than {bytes_max} bytes", str(path))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def read_regular(path: Path, bytes_max: int) -> bytes:
    """Reads a regular file; as `open_regular`."""
    with os.fdopen(open_regular(path, bytes_max), "rb") as file:
        return file.read(bytes_max)


def give_to_owner(descriptor: int, directory: Path) -> None:
    """Gives a file that root has created in a directory to the owner of the directory, who runs the
    server and must be able to open it."""
    if os.geteuid() == 0:
        owner = directory.stat()
        os.fchown(descriptor, owner.st_uid, owner.st_gid)


def make_private(path: Path) -> None:
    """Restricts a file, or a directory with its files, to its owner. Missing files are ignored;
    those that belong to another user are logged and left as they are."""
    try:
        status = path.stat()
        if status.st_mode & _OTHERS:
            path.chmod(stat.S_IMODE(status.st_mode) & ~_OTHERS)
        if stat.S_ISDIR(status.st_mode):
            for entry in path.iterdir():
                make_private(entry)
    except FileNotFoundError:
        return
    except OSError as error:
        logger.warning("other users may be able to read %s: %s", path, error.strerror)


def is_private(path: Path) -> bool:
    """Returns whether only its owner can access a directory."""
    return not path.stat().st_mode & _OTHERS
