"""Requests about shares and permissions: the headers of answers, and values that are refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final
from xml.etree import ElementTree

import pytest

from tests.probes.answers import answer_faults
from tests.probes.client import Answer, Pairs, Request
from tests.probes.file.fixture import FileFixture
from tests.probes.file.operations import LEASE, OPERATIONS, SDDL, VERSION, FileTarget
from tests.server import ACCOUNT

INVALID_HEADER: Final = (400, "InvalidHeaderValue")
INVALID_NAME: Final = (400, "InvalidResourceName")
INVALID_PARAMETER: Final = (400, "InvalidQueryParameterValue")
INVALID_PERMISSION: Final = (400, "FileInvalidPermission")
MISSING_HEADER: Final = (400, "MissingRequiredHeader")
OUT_OF_RANGE: Final = (400, "OutOfRangeInput")
DIGITS: Final = "1" * 5_000
SHARE: Final = (("restype", "share"),)
COMMON: Final = {
    "content-length", "date", "server", "x-ms-request-id", "x-ms-version", "content-type",
    "transfer-encoding",
}  # fmt: skip


@pytest.fixture(scope="module")
def target(files: FileFixture) -> Iterator[FileTarget]:
    created = files.create()
    yield created
    files.remove(created)


def _ask(
    files: FileFixture,
    method: str,
    path: str,
    query: Pairs = SHARE,
    headers: Pairs = (),
    body: bytes = b"",
) -> Answer:
    sent = dict((("x-ms-version", VERSION), *headers))
    request = Request(method, f"/{ACCOUNT}/{path}", query, tuple(sent.items()), body)
    answer = files.client.ask(files.sign_as_owner(request))
    faults = list(answer_faults(answer, "file", head=method == "HEAD"))
    assert not faults, (request, answer, faults)
    return answer


def _comp(comp: str) -> Pairs:
    return (*SHARE, ("comp", comp))


# Answers


def _headers(answer: Answer) -> set[str]:
    return set(answer.headers) - COMMON


def test_headers_of_a_standard_share(files: FileFixture, target: FileTarget) -> None:
    stamps = {"etag", "last-modified"}
    old = {
        *stamps,
        "x-ms-share-quota",
        "x-ms-has-immutability-policy",
        "x-ms-has-legal-hold",
    }
    tiers = old | {"x-ms-access-tier", "x-ms-access-tier-change-time"}
    leases = tiers | {"x-ms-lease-status", "x-ms-lease-state"}
    for version, expected in (
        ("2019-02-02", old),
        ("2019-12-12", tiers),
        ("2020-02-10", leases),
        (VERSION, leases),
    ):
        for method in ("GET", "HEAD"):
            versioned = (("x-ms-version", version),)
            answer = _ask(files, method, target.share, headers=versioned)
            assert (answer.status, _headers(answer), answer.body) == (200, expected, b"")
    for comp, expected in (("acl", stamps), ("metadata", stamps), ("stats", set[str]())):
        answer = _ask(files, "GET", target.share, _comp(comp))
        assert (answer.status, _headers(answer)) == (200, expected), comp


def test_headers_of_answers_to_changes(files: FileFixture) -> None:
    name, stamps = "headers-of-answers", {"etag", "last-modified"}
    lease = (("x-ms-lease-action", "acquire"), ("x-ms-lease-duration", "-1"))
    release = (("x-ms-lease-action", "release"), ("x-ms-lease-id", LEASE))
    steps: tuple[tuple[str, Pairs, Pairs, int, set[str]], ...] = (
        ("PUT", SHARE, (), 201, stamps),
        ("PUT", _comp("properties"), (("x-ms-share-quota", "1"),), 200, stamps),
        ("PUT", _comp("metadata"), (("x-ms-meta-a", "b"),), 200, stamps),
        ("PUT", _comp("acl"), (), 200, stamps),
        ("PUT", _comp("snapshot"), (), 201, stamps | {"x-ms-snapshot"}),
        (
            "PUT",
            _comp("lease"),
            (*lease, ("x-ms-proposed-lease-id", LEASE)),
            201,
            stamps | {"x-ms-lease-id"},
        ),
        ("PUT", _comp("lease"), release, 200, stamps | {"x-ms-lease-time"}),
        ("DELETE", SHARE, (("x-ms-delete-snapshots", "include"),), 202, set()),
    )
    for method, query, headers, status, expected in steps:
        answer = _ask(files, method, name, query, headers)
        assert (answer.status, _headers(answer), answer.body) == (status, expected, b""), query


def test_a_permission_is_json_without_a_content_type(
    files: FileFixture, target: FileTarget
) -> None:
    document = json.dumps({"permission": SDDL}).encode()
    created = _ask(files, "PUT", target.share, _comp("filepermission"), (), document)
    assert (created.status, _headers(created)) == (201, {"x-ms-file-permission-key"})
    key = ("x-ms-file-permission-key", created.headers["x-ms-file-permission-key"])
    answer = _ask(files, "GET", target.share, _comp("filepermission"), (key,))
    assert (answer.status, answer.headers.get("content-type")) == (200, None)
    assert json.loads(answer.body) == {"permission": f"{SDDL}S:NO_ACCESS_CONTROL"}
    binary = (key, ("x-ms-file-permission-format", "Binary"))
    answer = _ask(files, "GET", target.share, _comp("filepermission"), binary)
    assert json.loads(answer.body)["format"] == "binary"


def test_the_elements_of_a_listing(files: FileFixture, target: FileTarget) -> None:
    query = (("comp", "list"), ("prefix", target.share), ("maxresults", "5"), ("include", ""))
    page = ElementTree.fromstring(_ask(files, "GET", "", query).body)
    assert [child.tag for child in page] == ["Prefix", "MaxResults", "Shares", "NextMarker"]
    (share,) = page.findall("Shares/Share")
    assert [child.tag for child in share] == ["Name", "Properties"]
    assert [child.tag for child in share.findall("Properties/*")] == [
        "Last-Modified",
        "Etag",
        "LeaseStatus",
        "LeaseState",
        "Quota",
        "AccessTier",
        "AccessTierChangeTime",
        "DefaultEncryptionScope",
        "DenyEncryptionScopeOverride",
    ]
    older = _ask(files, "GET", "", query, (("x-ms-version", "2019-07-07"),)).body
    (share,) = ElementTree.fromstring(older).findall("Shares/Share")
    tags = [child.tag for child in share.findall("Properties/*")]
    assert tags == ["Last-Modified", "Etag", "Quota"]


def test_the_days_that_a_deleted_share_is_kept(files: FileFixture) -> None:
    (restore,) = [operation for operation in OPERATIONS if operation.restores]
    with files.target_for(restore) as target:
        query = (("comp", "list"), ("prefix", target.share), ("include", "deleted"))
        page = ElementTree.fromstring(_ask(files, "GET", "", query).body)
        # The first of the days has just begun.
        assert page.findtext("Shares/Share/Properties/RemainingRetentionDays") == "1"


# Refusals

NAMES: Final[dict[str, tuple[int, str]]] = {
    **dict.fromkeys(("ab", "a" * 64), OUT_OF_RANGE),
    **dict.fromkeys(
        ("a--b", "-ab", "ab-", "A" * 5, "a_b", "a.b", "%C3%A9%C3%A9%C3%A9"), INVALID_NAME
    ),
    **dict.fromkeys(("%00%01%02", "a%0Ab", "%FF%FF%FF", "a%20b", "a%3Ab"), INVALID_NAME),
}


@pytest.mark.parametrize("name", NAMES, ids=lambda name: name[:20])
def test_names(files: FileFixture, name: str) -> None:
    with files.unchanged():
        for method, query in (
            ("PUT", SHARE),
            ("GET", SHARE),
            ("DELETE", SHARE),
            ("PUT", _comp("metadata")),
            ("PUT", _comp("snapshot")),
            ("GET", _comp("filepermission")),
        ):
            answer = _ask(files, method, name, query)
            assert (answer.status, answer.code) == NAMES[name], (method, query)


SETTINGS: Final[dict[str, tuple[str, ...]]] = {
    "x-ms-share-quota": ("0", "-1", "102401", "1.0", "ten", DIGITS),
    "x-ms-access-tier": ("Archive", "1", DIGITS),
    "x-ms-root-squash": ("Pumpkin", "AllSquash"),
    "x-ms-enable-snapshot-virtual-directory-access": ("perhaps", "true"),
    "x-ms-share-paid-bursting-enabled": ("1", "yes"),
    "x-ms-share-paid-bursting-max-iops": ("-1", "many", DIGITS),
    "x-ms-share-paid-bursting-max-bandwidth-mibps": ("-1", "wide", DIGITS),
    "x-ms-share-provisioned-iops": ("-1", "0x100", DIGITS),
    "x-ms-share-provisioned-bandwidth-mibps": ("-1", "1e3", DIGITS),
    "x-ms-enable-smb-directory-lease": ("0", "on"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings(files: FileFixture, target: FileTarget, name: str) -> None:
    with files.unchanged():
        for value in SETTINGS[name]:
            for path, query in ((target.share, _comp("properties")), (target.free_share, SHARE)):
                answer = _ask(files, "PUT", path, query, ((name, value),))
                assert (answer.status, answer.code) == INVALID_HEADER, (path, value)


def test_protocols(files: FileFixture, target: FileTarget) -> None:
    with files.unchanged():
        for value in ("FTP", "SMB,NFS", "SMB;NFS", DIGITS):
            headers = (("x-ms-enabled-protocols", value),)
            answer = _ask(files, "PUT", target.free_share, SHARE, headers)
            assert (answer.status, answer.code) == INVALID_HEADER, value


def test_deletion_and_restoration(files: FileFixture, target: FileTarget) -> None:
    name, version = "x-ms-deleted-share-name", "x-ms-deleted-share-version"
    of_snapshot = (*SHARE, ("sharesnapshot", "2020-01-01T00%3A00%3A00.0000000Z"))
    undelete = _comp("undelete")
    cases: tuple[tuple[str, Pairs, Pairs, tuple[int, str]], ...] = (
        ("DELETE", SHARE, (("x-ms-delete-snapshots", "only"),), INVALID_HEADER),
        ("DELETE", of_snapshot, (("x-ms-delete-snapshots", "include"),), INVALID_HEADER),
        ("DELETE", of_snapshot, (), (404, "ShareSnapshotNotFound")),
        ("GET", of_snapshot, (), (404, "ShareSnapshotNotFound")),
        ("PUT", of_snapshot, (), INVALID_PARAMETER),
        ("PUT", (*of_snapshot, ("comp", "metadata")), (), INVALID_PARAMETER),
        ("PUT", (*of_snapshot, ("comp", "properties")), (), INVALID_PARAMETER),
        ("PUT", (*of_snapshot, ("comp", "acl")), (), INVALID_PARAMETER),
        ("PUT", (*of_snapshot, ("comp", "filepermission")), (), INVALID_PARAMETER),
        ("GET", (*of_snapshot, ("comp", "acl")), (), INVALID_PARAMETER),
        ("GET", (*SHARE, ("sharesnapshot", "yesterday")), (), INVALID_PARAMETER),
        (
            "GET",
            (*SHARE, ("sharesnapshot", "2020-01-01T00%3A00%3A00.0000001Z")),
            (),
            INVALID_PARAMETER,
        ),
        ("PUT", undelete, (), MISSING_HEADER),
        ("PUT", undelete, ((name, "gone"),), MISSING_HEADER),
        ("PUT", undelete, ((name, "/gone"), (version, "0" * 16)), INVALID_HEADER),
        ("PUT", undelete, ((name, "gone"), (version, "0" * 15)), INVALID_HEADER),
        ("PUT", undelete, ((name, "gone"), (version, DIGITS)), INVALID_HEADER),
        ("PUT", undelete, ((name, "gone"), (version, "F" * 16)), INVALID_HEADER),
        ("PUT", undelete, ((name, "gone"), (version, "7" + "F" * 15)), (404, "ShareNotFound")),
    )
    with files.unchanged():
        for method, query, headers, expected in cases:
            path = target.free_share if query is undelete else target.share
            answer = _ask(files, method, path, query, headers)
            assert (answer.status, answer.code) == expected, (method, query, headers)


def test_leases(files: FileFixture, target: FileTarget) -> None:
    action, seconds = "x-ms-lease-action", "x-ms-lease-duration"
    cases: tuple[tuple[Pairs, tuple[int, str]], ...] = (
        ((), MISSING_HEADER),
        (((action, "steal"),), INVALID_HEADER),
        (((action, "acquire"),), MISSING_HEADER),
        (((action, "acquire"), (seconds, "14")), INVALID_HEADER),
        (((action, "acquire"), (seconds, "61")), INVALID_HEADER),
        (((action, "acquire"), (seconds, "-1"), ("x-ms-proposed-lease-id", "x")), INVALID_HEADER),
        (((action, "renew"),), MISSING_HEADER),
        (((action, "release"), ("x-ms-lease-id", "x")), INVALID_HEADER),
        (((action, "change"), ("x-ms-lease-id", LEASE)), MISSING_HEADER),
        (((action, "break"), ("x-ms-lease-break-period", "61")), INVALID_HEADER),
        (((action, "break"),), (409, "LeaseNotPresentWithLeaseOperation")),
        (((action, "renew"), ("x-ms-lease-id", LEASE)), (409, "LeaseIdMismatchWithLeaseOperation")),
    )
    with files.unchanged():
        for headers, expected in cases:
            answer = _ask(files, "PUT", target.share, _comp("lease"), headers)
            assert (answer.status, answer.code) == expected, headers


def test_policies(files: FileFixture, target: FileTarget) -> None:
    identifier = "<SignedIdentifier><Id>{}</Id></SignedIdentifier>"
    too_many = "".join(identifier.format(number) for number in range(6))
    letters = "<AccessPolicy><Permission>z</Permission></AccessPolicy>"
    with files.unchanged():
        for document, expected in (
            ("<", "InvalidXmlDocument"),
            ("<Policies />", "InvalidXmlDocument"),
            (f"<SignedIdentifiers>{too_many}</SignedIdentifiers>", "InvalidXmlDocument"),
            (
                "<SignedIdentifiers><SignedIdentifier><Id>a</Id>"
                f"{letters}</SignedIdentifier></SignedIdentifiers>",
                "InvalidXmlNodeValue",
            ),
        ):
            answer = _ask(files, "PUT", target.share, _comp("acl"), (), document.encode())
            assert (answer.status, answer.code) == (400, expected), document


PARAMETERS: Final[dict[str, dict[str, tuple[int, str]]]] = {
    "prefix": dict.fromkeys(("%FF", "a" * 9_000), INVALID_PARAMETER),
    "marker": dict.fromkeys(
        ("%FF", "a", "YWFh", "1!4!YWFh", "1!8!YS8xLzE-", DIGITS, "1!4!%FF"), OUT_OF_RANGE
    ),
    "include": dict.fromkeys(("everything", "metadata,blobs", "%FF", DIGITS), INVALID_PARAMETER),
    "maxresults": dict.fromkeys(("0", "-1", "ten", DIGITS), (400, "OutOfRangeQueryParameterValue")),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_of_listings(files: FileFixture, name: str) -> None:
    for value, expected in PARAMETERS[name].items():
        answer = _ask(files, "GET", "", (("comp", "list"), (name, value)))
        assert (answer.status, answer.code) == expected, value


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"permission": 7}',
        b'{"permission": null}',
        b'{"permission": "O:SYG:SY"}',
        b'{"permission": "O:SYG:SYD:", "format": "yaml"}',
        b'{"permission": "O:SYG:SYD:", "format": 7}',
        b'{"permission": "not base64", "format": "binary"}',
        b'{"permission": "' + b"A" * 200_000 + b'", "format": "binary"}',
        b'{"permission": "O:SYG:SYD:' + b"(" * 200_000 + b'"}',
        b"\xff\xfe",
        b"[" * 10_000,
    ],
    ids=lambda document: repr(document[:40]),
)
def test_invalid_permissions(files: FileFixture, target: FileTarget, document: bytes) -> None:
    answer = _ask(files, "PUT", target.share, _comp("filepermission"), (), document)
    assert (answer.status, answer.code) == INVALID_PERMISSION


def test_a_permission_that_is_too_long(files: FileFixture, target: FileTarget) -> None:
    document = b'{"permission": "' + b"A" * 300_000 + b'"}'
    answer = _ask(files, "PUT", target.share, _comp("filepermission"), (), document)
    assert (answer.status, answer.code) == (413, "RequestBodyTooLarge")


def test_keys_of_permissions(files: FileFixture, target: FileTarget) -> None:
    key = "x-ms-file-permission-key"
    answer = _ask(files, "GET", target.share, _comp("filepermission"))
    assert (answer.status, answer.code) == MISSING_HEADER
    for value in ("0", "*", "0*0", "-1*1", "1*", DIGITS, f"{DIGITS}*{DIGITS}"):
        answer = _ask(files, "GET", target.share, _comp("filepermission"), ((key, value),))
        assert (answer.status, answer.code) == (400, "FileInvalidPermissionKey"), value


def test_inline_permissions(files: FileFixture, target: FileTarget) -> None:
    permission, key = "x-ms-file-permission", "x-ms-file-permission-key"
    long = "O:SYG:SYD:" + "(A;;FA;;;SY)" * 700
    directory = (("restype", "directory"),)
    path = f"{target.share}/new"
    existing = f"{target.share}/{target.directory}"
    with files.unchanged():
        for headers, expected in (
            (((permission, "SDDL"),), INVALID_PERMISSION),
            (((permission, long),), INVALID_PERMISSION),
            (((permission, "preserve"),), INVALID_PERMISSION),
            (((permission, SDDL), ("x-ms-file-permission-format", "binary")), INVALID_PERMISSION),
            (((permission, SDDL), ("x-ms-file-permission-format", "yaml")), INVALID_HEADER),
            (((permission, SDDL), (key, "0*0")), INVALID_HEADER),
            (((key, "0*0"),), (400, "FileInvalidPermissionKey")),
        ):
            answer = _ask(files, "PUT", path, directory, headers)
            assert (answer.status, answer.code) == expected, headers
        answer = _ask(
            files, "PUT", existing, (*directory, ("comp", "properties")), ((permission, "inherit"),)
        )
        assert (answer.status, answer.code) == INVALID_PERMISSION
