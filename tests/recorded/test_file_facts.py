"""What recorded conversations with the file service show over several requests."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from typing import Final
from xml.etree import ElementTree

import pytest

from tests.probes.tokens import share_token
from tests.recorded.cases import CaseContext, Target
from tests.recorded.file_requests import (
    DIRECTORY,
    HERE,
    LEASE,
    META,
    NEW,
    OTHER_LEASE,
    PRESERVED,
    SDDL,
    SECTORS,
    SHARE,
    TIMES,
    WITH_LEASE,
    address,
    break_lease,
    clear,
    directory,
    head,
    lease,
    look,
    named,
    put,
    put_range_from,
    rename,
    share,
    take_snapshot,
    write,
)
from tests.recorded.run import target
from tests.server import ACCOUNT, KEY

Headers = dict[str, str]
_STAMP: Final = ("etag", "last-modified")
_CREATED, _WRITTEN, _CHANGED = (
    f"x-ms-file-{name}-time" for name in ("creation", "last-write", "change")
)
_NEWEST: Final = "2021-06-08"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with target(tmp_path_factory.mktemp("facts") / "data") as running:
        yield running
        assert running.server.stop() == 0
        assert "Traceback" not in running.server.log()


@pytest.fixture
def context(running: Target) -> CaseContext:
    return CaseContext(running, "file", _NEWEST)


def moved(before: Headers, after: Headers) -> set[str]:
    """Returns which of ETag and times have changed."""
    names = ("etag", _CREATED, _WRITTEN, _CHANGED)
    return {name for name in names if before[name] != after[name]}


# Attributes and times of new entries


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ("none", "Archive"),
        ("ReadOnly", "ReadOnly | Archive"),
        ("hidden", "Hidden | Archive"),
        ("Temporary", "Archive | Temporary"),
        ("Archive|readonly", "ReadOnly | Archive"),
    ],
)
def test_attributes_of_a_new_file(context: CaseContext, sent: str, shown: str) -> None:
    path = put(context, content=b"", x_ms_file_attributes=sent)
    assert head(context, path)["x-ms-file-attributes"] == shown


@pytest.mark.parametrize(
    ("sent", "shown"), [("none", "Directory"), ("ReadOnly|Directory", "ReadOnly | Directory")]
)
def test_attributes_of_a_new_directory(context: CaseContext, sent: str, shown: str) -> None:
    path = directory(context, x_ms_file_attributes=sent)
    assert look(context, path)["x-ms-file-attributes"] == shown


def test_times_of_a_new_entry(context: CaseContext) -> None:
    for shown in (
        head(context, put(context, content=b"")),
        look(context, directory(context, "shelf")),
    ):
        assert shown[_CREATED] == shown[_WRITTEN] == shown[_CHANGED]
        second = parsedate_to_datetime(shown["last-modified"]).strftime("%Y-%m-%dT%H:%M:%S")
        assert shown[_CREATED].startswith(second)


def test_own_times_are_kept_and_do_not_change_last_modified(context: CaseContext) -> None:
    headers = {name.replace("-", "_"): value for name, value in TIMES.items()}
    shown = head(context, put(context, content=b"", **headers))
    assert {name: shown[name] for name in TIMES} == TIMES
    assert parsedate_to_datetime(shown["last-modified"]).year > 2019


# Changes


@pytest.mark.parametrize("version", ["2019-02-02", _NEWEST])
@pytest.mark.parametrize("kind", ["update", "clear", "from a URL"])
def test_writes_to_ranges_move_the_times(running: Target, version: str, kind: str) -> None:
    context = CaseContext(running, "file", version)
    path = put(context, content=SECTORS)
    put(context, "source", SECTORS)
    before = head(context, path)
    if kind == "update":
        answer = write(context, path, b"new")
    elif kind == "clear":
        answer = clear(context, path, 0, 512)
    else:
        answer = context.do_request(put_range_from(context, path, {}))
    after = head(context, path)
    assert moved(before, after) == {"etag", _WRITTEN, _CHANGED}
    shown = after[_WRITTEN] if version == _NEWEST else None
    assert answer.headers.get(_WRITTEN) == shown


def test_writes_can_preserve_the_time_of_the_last_write(context: CaseContext) -> None:
    path = put(context, content=SECTORS)
    put(context, "source", SECTORS)
    for from_url in (False, True):
        before = head(context, path)
        if from_url:
            context.do_request(put_range_from(context, path, {_WRITTEN: "Preserve"}))
        else:
            write(context, path, b"new", x_ms_file_last_write_time="Preserve")
        assert moved(before, head(context, path)) == {"etag", _CHANGED}


def test_other_changes_do_not_move_the_time_of_the_last_write(context: CaseContext) -> None:
    path = put(context)
    for query, headers in (
        ({"comp": "metadata"}, META),
        ({"comp": "properties"}, PRESERVED),
        ({"comp": "properties"}, {**PRESERVED, "x-ms-content-length": "5"}),
    ):
        before = head(context, path)
        context.do("PUT", path, query, headers)
        assert moved(before, head(context, path)) == {"etag", _CHANGED}
    path = directory(context, "shelf")
    for query, headers in (
        ({"comp": "metadata", **DIRECTORY}, META),
        ({"comp": "properties", **DIRECTORY}, {**PRESERVED, "x-ms-file-attributes": "None"}),
    ):
        before = look(context, path)
        context.do("PUT", path, query, headers)
        assert moved(before, look(context, path)) == {"etag", _CHANGED}


# Leases


def _act(context: CaseContext, path: str, action: str, **headers: str) -> Headers:
    query = {"comp": "lease"} if "/" in path else {"comp": "lease", **SHARE}
    sent = {"x-ms-lease-action": action, **named(headers)}
    return context.do("PUT", path, query, sent).headers


def _stamp(context: CaseContext, path: str) -> tuple[str, ...]:
    query = {} if "/" in path else SHARE
    shown = context.do("HEAD", path, query).headers
    return tuple(shown[name] for name in _STAMP)


@pytest.mark.parametrize("kind", ["file", "share"])
def test_lease_actions_leave_the_etag(context: CaseContext, kind: str) -> None:
    path = put(context) if kind == "file" else share(context)
    before = _stamp(context, path)
    acquire = {"x_ms_lease_duration": "-1", "x_ms_proposed_lease_id": LEASE}
    change = {"x_ms_lease_id": LEASE, "x_ms_proposed_lease_id": OTHER_LEASE}
    for action, headers in (
        ("acquire", acquire),
        ("change", change),
        ("release", {"x_ms_lease_id": OTHER_LEASE}),
        ("acquire", acquire),
        ("break", {}),
    ):
        shown = _act(context, path, action, **headers)
        assert tuple(shown[name] for name in _STAMP) == before
        assert _stamp(context, path) == before
        released = {"release": "0"} if kind == "share" else {}
        assert shown.get("x-ms-lease-time") == {**released, "break": "0"}.get(action)


def test_an_overwritten_file_keeps_its_lease(context: CaseContext) -> None:
    path = lease(context, put(context))
    new = {**NEW, "x-ms-type": "file", "x-ms-content-length": "1", **WITH_LEASE}
    context.do("PUT", path, {}, new)
    assert head(context, path)["x-ms-lease-state"] == "leased"


def test_a_write_ends_a_broken_lease(context: CaseContext) -> None:
    path = lease(context, put(context))
    break_lease(context, path)
    assert head(context, path)["x-ms-lease-state"] == "broken"
    write(context, path, b"x")
    assert head(context, path)["x-ms-lease-state"] == "available"
    assert _act(context, lease(context, path), "break")["x-ms-lease-time"] == "0"


def test_periods_of_breaking_shares(context: CaseContext) -> None:
    path = lease(context, share(context))
    assert break_lease(context, path, x_ms_lease_break_period="5").headers["x-ms-lease-time"] == "5"
    assert context.do("HEAD", path, SHARE).headers["x-ms-lease-state"] == "breaking"
    break_lease(context, path, x_ms_lease_break_period="0")
    assert _act(context, lease(context, path), "break")["x-ms-lease-time"] == "0"


def test_a_share_and_its_snapshots_have_leases_of_their_own(context: CaseContext) -> None:
    path = share(context)
    moment = take_snapshot(context)
    lease(context, path, snapshot=moment)
    assert context.do("HEAD", path, SHARE).headers["x-ms-lease-state"] == "available"
    query = {**SHARE, "sharesnapshot": moment}
    assert context.do("HEAD", path, query).headers["x-ms-lease-state"] == "leased"


# Renames


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_renames_keep_times_and_attributes(context: CaseContext, kind: str) -> None:
    read, make = (head, put) if kind == "file" else (look, directory)
    destination = f"{share(context)}/renamed"
    before = read(context, make(context, "source"))
    context.do_request(rename(kind)(context, destination, {}))
    after = read(context, destination)
    assert moved(before, after) == {"etag", _CHANGED}
    kept = ("x-ms-file-attributes", "x-ms-file-id", "x-ms-file-permission-key")
    assert [before[name] for name in kept] == [after[name] for name in kept]


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_renames_set_times_attributes_and_permission(context: CaseContext, kind: str) -> None:
    read, make = (head, put) if kind == "file" else (look, directory)
    destination = f"{share(context)}/renamed"
    before = read(context, make(context, "source"))
    attributes = {"file": "ReadOnly|Archive", "directory": "ReadOnly|Directory"}[kind]
    sent = {**TIMES, "x-ms-file-attributes": attributes, "x-ms-file-permission": SDDL}
    context.do_request(rename(kind)(context, destination, sent))
    after = read(context, destination)
    assert {name: after[name] for name in TIMES} == TIMES
    assert after["x-ms-file-attributes"] == attributes.replace("|", " | ")
    assert after["x-ms-file-permission-key"] != before["x-ms-file-permission-key"]


def test_a_renamed_file_keeps_its_lease(context: CaseContext) -> None:
    source, target = put(context), put(context, "renamed", b"")
    context.do("PUT", source, {"comp": "metadata"}, META)
    lease(context, source)
    lease(context, target)
    sent = {"x-ms-source-lease-id": LEASE, "x-ms-destination-lease-id": LEASE}
    sent |= {"x-ms-file-rename-replace-if-exists": "true"}
    sent["x-ms-file-rename-source"] = f"{HERE}/{ACCOUNT}/{source}"
    context.do("PUT", target, {"comp": "rename"}, sent)
    shown = head(context, target)
    assert (shown["x-ms-lease-state"], shown["x-ms-meta-hello"]) == ("leased", "world")


def test_a_directory_can_replace_a_file(context: CaseContext) -> None:
    for number, (attributes, headers) in enumerate(
        (
            ("none", {}),
            ("ReadOnly", {"x-ms-file-rename-ignore-readonly": "true"}),
            ("none", {"x-ms-destination-lease-id": LEASE}),
        )
    ):
        if not number:
            share(context)
        path = put(context, f"target{number}", b"", x_ms_file_attributes=attributes)
        if "x-ms-destination-lease-id" in headers:
            lease(context, path)
        directory(context, "source")
        replace = {"x-ms-file-rename-replace-if-exists": "true", **headers}
        context.do_request(rename("directory")(context, path, replace))
        assert "Directory" in look(context, path)["x-ms-file-attributes"]


def test_encoded_slashes_separate_names(context: CaseContext) -> None:
    path = directory(context)
    request = context.request("PUT", path, DIRECTORY, NEW)
    encoded = type(request)(
        request.method, f"{request.path}%2Finner", request.query, request.headers, request.body
    )
    context.do_request(encoded)
    assert (
        look(context, f"{path}/inner")["x-ms-file-parent-id"] == look(context, path)["x-ms-file-id"]
    )


# Copies


@pytest.mark.parametrize("version", ["2019-02-02", "2019-07-07", _NEWEST])
def test_times_of_copies_depend_on_the_version(running: Target, version: str) -> None:
    context = CaseContext(running, "file", version)
    share(context)
    put(context, "source", SECTORS, x_ms_file_creation_time=TIMES[_CREATED])
    source = head(context, f"{context.name}/source")
    path = f"{context.name}/copy"
    answer = context.do("PUT", path, {}, {"x-ms-copy-source": address(context)})
    assert answer.headers["x-ms-copy-status"] == "success"
    copy = head(context, path)
    assert copy["etag"] == answer.headers["etag"]
    if version == "2019-02-02":
        assert (copy[_WRITTEN], copy[_CHANGED]) == (source[_WRITTEN], source[_CHANGED])
    else:
        assert copy[_CREATED] == copy[_WRITTEN] == copy[_CHANGED]
        assert copy[_WRITTEN] != source[_WRITTEN]


def test_times_of_copies_can_be_set(context: CaseContext) -> None:
    share(context)
    put(context, "source", SECTORS)
    path = f"{context.name}/copy"
    context.do("PUT", path, {}, {"x-ms-copy-source": address(context), **TIMES})
    shown = head(context, path)
    assert {name: shown[name] for name in TIMES} == TIMES


# Shares


def test_snapshots_are_named_by_whole_seconds_and_leave_the_share(context: CaseContext) -> None:
    path = share(context)
    before = _stamp(context, path)
    query = {"comp": "snapshot", **SHARE}
    plain = context.do("PUT", path, query).headers
    assert plain["x-ms-snapshot"].endswith(".0000000Z")
    assert tuple(plain[name] for name in _STAMP) == before
    described = context.do("PUT", path, query, META).headers
    assert described["etag"] != plain["etag"]
    assert described["x-ms-snapshot"] > plain["x-ms-snapshot"]
    assert _stamp(context, path) == before


def test_new_shares(context: CaseContext) -> None:
    shown = context.do("HEAD", share(context), SHARE).headers
    assert shown["x-ms-share-quota"] == "5120"
    assert shown["x-ms-access-tier"] == "TransactionOptimized"
    assert "x-ms-root-squash" not in shown
    context.name += "n"
    headers = {"x-ms-enabled-protocols": "NFS", "x-ms-root-squash": "AllSquash"}
    context.do("PUT", context.name, SHARE, headers)
    shown = context.do("HEAD", context.name, SHARE).headers
    assert shown["x-ms-share-quota"] == "100"
    assert shown["x-ms-access-tier"] == "Premium"
    assert shown["x-ms-root-squash"] == "AllSquash"
    assert {shown[f"x-ms-share-provisioned-{way}-mbps"] for way in ("ingress", "egress")} == {"110"}
    assert shown["x-ms-share-provisioned-iops"] == "3100"


def test_listed_snapshots_have_no_tier(context: CaseContext) -> None:
    share(context)
    moment = take_snapshot(context)
    query = {"comp": "list", "prefix": context.name, "include": "snapshots"}
    page = ElementTree.fromstring(context.do("GET", "", query).body)
    tiers = {
        row.findtext("Snapshot"): row.findtext("Properties/AccessTier")
        for row in page.iterfind("Shares/Share")
    }
    assert tiers == {moment: None, None: "TransactionOptimized"}
    shown = context.do("HEAD", context.name, {**SHARE, "sharesnapshot": moment}).headers
    assert shown["x-ms-access-tier"] == "TransactionOptimized"


# Lists


def test_lists_have_one_order(context: CaseContext) -> None:
    share(context)
    for name in ("b", "D"):
        directory(context, name)
    for name in ("a", "C", "e"):
        put(context, name, b"")
    query = {"comp": "list", **DIRECTORY, "maxresults": "2"}
    names, marker = [], ""
    while True:
        asked = {**query, "marker": marker} if marker else query
        page = ElementTree.fromstring(context.do("GET", context.name, asked).body)
        names.append([row.findtext("Name") for row in page.iterfind("Entries/*")])
        marker = page.findtext("NextMarker") or ""
        if not marker:
            break
        found = re.fullmatch(r"1!(\d+)!([A-Za-z0-9+/]+-{0,2})", marker)
        assert found is not None
        assert int(found[1]) == len(found[2])
        assert base64.b64decode(found[2].replace("-", "=")).decode() in "Ce"
    assert names == [["a", "b"], ["C", "D"], ["e"]]


def test_listed_times(context: CaseContext) -> None:
    created = head(context, put(context, content=SECTORS))[_CREATED]
    changed = head(context, f"{context.name}/file")[_CHANGED]
    query = {"comp": "list", **DIRECTORY, "include": "Timestamps"}
    page = ElementTree.fromstring(context.do("GET", context.name, query).body)
    names = ("CreationTime", "LastAccessTime", "LastWriteTime", "ChangeTime")
    shown = [page.findtext(f"Entries/File/Properties/{name}") for name in names]
    assert shown == [created, created, changed, changed]
    assert created != changed


def test_what_lists_repeat(context: CaseContext) -> None:
    directory(context)
    query = {"comp": "list", **DIRECTORY}
    for version, sent, expected in (
        ("2019-02-02", {}, ["Entries", "NextMarker"]),
        ("2020-10-02", {}, ["DirectoryId", "Entries", "NextMarker"]),
        (
            _NEWEST,
            {"prefix": "d", "maxresults": "2"},
            ["Prefix", "MaxResults", "DirectoryId", "Entries", "NextMarker"],
        ),
    ):
        headers = {"x-ms-version": version}
        page = context.do("GET", context.name, {**query, **sent}, headers).body
        assert [element.tag for element in ElementTree.fromstring(page)] == expected


# Reads


def test_ranges_of_an_empty_file(context: CaseContext) -> None:
    path = put(context, content=b"")
    request = context.request("GET", path, {}, {"x-ms-range": "bytes=0-33554431"})
    answer = context.ask(context.sign(request))
    assert (answer.status, answer.headers["content-range"]) == (416, "bytes */0")
    whole = context.do("GET", path)
    assert (whole.status, whole.headers["content-length"]) == (200, "0")


def test_changed_ranges_are_listed_in_one_order(context: CaseContext) -> None:
    path = put(context, content=b"", x_ms_content_length="2048")
    first = take_snapshot(context)
    write(context, path, b"a" * 1_536)
    second = take_snapshot(context)
    clear(context, path, 512, 512)

    def ranges(**query: str) -> list[tuple[str, ...]]:
        body = context.do("GET", path, {"comp": "rangelist", **query}).body
        found = ElementTree.fromstring(body)
        return [(each.tag, *(part.text or "" for part in each)) for each in found]

    start, hole, end = (
        ("Range", "0", "511"),
        ("ClearRange", "512", "1023"),
        ("Range", "1024", "1535"),
    )
    assert ranges(prevsharesnapshot=first) == [start, hole, end]
    assert ranges(prevsharesnapshot=second) == [hole]
    assert ranges() == [start, end]
    assert ranges(sharesnapshot=second) == [("Range", "0", "1535")]
    assert ranges(sharesnapshot=first) == []


def test_tokens_choose_the_version(context: CaseContext) -> None:
    path = put(context)
    token = share_token(ACCOUNT, KEY, context.name, "file", sv="2019-12-12")
    request = context.request("GET", path, {}, {"x-ms-version": ""})
    assert context.ask(token.put_on(request)).headers["x-ms-version"] == "2019-12-12"
    request = context.request("GET", path)
    assert context.ask(token.put_on(request)).headers["x-ms-version"] == _NEWEST


def test_checksums_of_ranges(context: CaseContext) -> None:
    path = put(context)
    stored = base64.b64encode(b"0123456789abcdef").decode()
    context.do("PUT", path, {"comp": "properties"}, {**PRESERVED, "x-ms-content-md5": stored})
    part = {"x-ms-range": "bytes=0-3"}
    plain = context.do("GET", path, {}, part).headers
    assert "content-md5" not in plain
    assert plain["x-ms-content-md5"] == stored
    asked = context.do("GET", path, {}, {**part, "x-ms-range-get-content-md5": "true"}).headers
    assert asked["content-md5"] != stored
    assert asked["x-ms-content-md5"] == stored


def test_permissions_come_back_as_json(context: CaseContext) -> None:
    query = {"comp": "filepermission", **SHARE}
    text = SDDL.removesuffix("S:NO_ACCESS_CONTROL")
    sent = json.dumps({"permission": text})
    made = context.do("PUT", share(context), query, {"Content-Type": "application/json"}, sent)
    key = made.headers["x-ms-file-permission-key"]
    assert "etag" not in made.headers
    answer = context.do("GET", context.name, query, {"x-ms-file-permission-key": key})
    assert "content-type" not in answer.headers
    shown = json.loads(answer.body)
    assert list(shown) == ["permission"]
    assert shown["permission"] == SDDL


def test_names_of_metadata_keep_their_case(context: CaseContext) -> None:
    share(context, **{"x-ms-meta-UPPER": "1", "x-ms-meta-Mixed": "2"})
    query = {"comp": "list", "prefix": context.name, "include": "metadata"}
    page = ElementTree.fromstring(context.do("GET", "", query).body)
    shown = page.find("Shares/Share/Metadata")
    assert shown is not None
    assert {element.tag: element.text for element in shown} == {"UPPER": "1", "Mixed": "2"}
