"""Owner, group and mode of entries."""

from __future__ import annotations

import pytest

from etagere.errors import Refusal
from etagere.model.files import PosixChange, PosixOwner
from etagere.model.shares import ShareProtocol
from etagere.rules import posix


@pytest.mark.parametrize(
    ("written", "mode"),
    [
        ("0664", 0o664),
        ("664", 0o664),
        ("7777", 0o7777),
        ("0000", 0),
        ("", None),
        ("64", None),
        ("00664", None),
        ("0888", None),
        ("+664", None),
        ("rw-rw-r--", None),
        ("\u0660\u0666\u0666\u0664", None),
    ],
)
def test_modes(written: str, mode: int | None) -> None:
    assert posix.parse_mode(written) == mode
    if mode is not None:
        assert posix.format_mode(mode) == written.rjust(4, "0")


@pytest.mark.parametrize(
    ("written", "valid"),
    [
        ("0", True),
        ("345", True),
        ("4294967295", True),
        ("4294967296", False),
        ("-1", False),
        ("", False),
        ("root", False),
        ("\u0661", False),
    ],
)
def test_ids(written: str, valid: bool) -> None:
    assert posix.is_id(written) is valid


def test_new_entries() -> None:
    nothing, some = PosixChange(), PosixChange("1", mode=0o600)
    nfs, smb = ShareProtocol.NFS, ShareProtocol.SMB
    assert posix.owner_of_new(nothing, 0o755, nfs) == PosixOwner("0", "0", 0o755)
    assert posix.owner_of_new(some, 0o755, nfs) == PosixOwner("1", "0", 0o600)
    assert posix.owner_of_new(nothing, 0o755, smb) is None
    assert posix.owner_of_new(some, 0o755, smb) == Refusal(
        "UnsupportedHeader", {"HeaderName": "x-ms-owner"}
    )


def test_changes() -> None:
    old = PosixOwner("1", "2", 0o644)
    assert posix.changed_owner(old, PosixChange()) is old
    assert posix.changed_owner(old, PosixChange(group="3")) == PosixOwner("1", "3", 0o644)
    assert posix.changed_owner(None, PosixChange()) is None
    for asked, header in (
        (PosixChange(group="3"), "x-ms-group"),
        (PosixChange(mode=0), "x-ms-mode"),
    ):
        refusal = Refusal("UnsupportedHeader", {"HeaderName": header})
        assert posix.changed_owner(None, asked) == refusal
