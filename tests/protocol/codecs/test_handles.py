"""Lists of handles as XML."""

from __future__ import annotations

import pytest

from etagere.opens.handles import Handle, OpenEntry, Session
from etagere.protocol.codecs import handles
from etagere.protocol.time_slices import run_at_once
from etagere.rules.opens import EVERYTHING, Access, OpenMode

VERSION = "2026-10-06"


def handle(
    path: str = "dir1/a.txt", access: Access = Access.READ, reconnected: int | None = None
) -> Handle:
    entry = OpenEntry(1, (0, 2), path, is_directory=False)
    mode = OpenMode(access, EVERYTHING)
    session = Session(3, "10.0.0.1:50", "pc1")
    opened = 1_704_448_800 * 10_000_000 + 1_234
    return Handle(111, entry, mode, session, opened, lambda _: None, reconnected)


def encoded(shown: Handle, version: str = VERSION) -> str:
    return run_at_once(handles.encode([shown], version, 10_000)).text


def test_elements_and_their_order() -> None:
    second = 1_704_448_801 * 10_000_000
    assert encoded(handle(reconnected=second)) == (
        "<Handle><HandleId>111</HandleId><Path>dir1/a.txt</Path><FileId>1</FileId>"
        "<ParentId>2</ParentId><SessionId>3</SessionId>"
        "<AccessRightList><AccessRight>Read</AccessRight></AccessRightList>"
        "<ClientIp>10.0.0.1:50</ClientIp><ClientName>pc1</ClientName>"
        "<OpenTime>Fri, 05 Jan 2024 10:00:00 GMT</OpenTime>"
        "<LastReconnectTime>Fri, 05 Jan 2024 10:00:01 GMT</LastReconnectTime></Handle>"
    )


def test_older_versions_have_fewer_elements() -> None:
    plain = (
        "<SessionId>3</SessionId><ClientIp>10.0.0.1:50</ClientIp>"
        "<OpenTime>Fri, 05 Jan 2024 10:00:00 GMT</OpenTime></Handle>"
    )
    assert encoded(handle(), "2018-11-09").endswith(plain)
    assert encoded(handle(), "2021-06-08").endswith(plain)
    assert "ClientName" not in encoded(handle(), "2023-01-03")
    assert "<AccessRightList>" in encoded(handle(), "2023-01-03")


@pytest.mark.parametrize("access", [Access(value) for value in range(8)])
def test_access_rights(access: Access) -> None:
    names = {Access.READ: "Read", Access.WRITE: "Write", Access.DELETE: "Delete"}
    rights = [f"<AccessRight>{name}</AccessRight>" for one, name in names.items() if access & one]
    shown = encoded(handle(access=access))
    if rights:
        assert f"<AccessRightList>{''.join(rights)}</AccessRightList>" in shown
    else:
        assert "<AccessRightList />" in shown


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("", "<Path />"),
        ("a & b", "<Path>a &amp; b</Path>"),
        ("a/\ufffe", '<Path Encoded="true">a%2F%EF%BF%BE</Path>'),
    ],
)
def test_paths(path: str, shown: str) -> None:
    assert shown in encoded(handle(path))


def test_pages_are_limited_in_bytes() -> None:
    several = [handle("x" * 1_000)] * 10
    one = len(encoded(several[0]))
    for bytes_max, count in ((0, 1), (3 * one, 3), (4 * one - 1, 3), (100 * one, 10)):
        page = run_at_once(handles.encode(several, VERSION, bytes_max))
        assert (page.handles, len(page.text)) == (count, count * one)
    assert run_at_once(handles.encode([], VERSION, 100)) == ("", 0)
