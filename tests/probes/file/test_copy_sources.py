"""A source is read only if the caller may read it, in either service; bad requests for copies are
refused and change nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.probes.answers import refusal_fault
from tests.probes.blob.fixture import BlobFixture
from tests.probes.client import Answer, Request, shared_key
from tests.probes.file.fixture import CONTENT, FileFixture
from tests.probes.file.operations import (
    OPERATIONS,
    SDDL,
    SERVER_URL,
    VERSION,
    FileOperation,
    FileTarget,
)
from tests.probes.tokens import Token, account_token, moment, service_token, share_token
from tests.server import ACCOUNT, KEY, SECOND_ACCOUNT, SECOND_KEYS, WRONG_KEY, Server

SIGN = shared_key(ACCOUNT, KEY)
WITH_SOURCES = [form for form in OPERATIONS if form.source == "file to copy"]
MISSING = ("ResourceNotFound", "ParentNotFound", "ShareNotFound")

each_operation = pytest.mark.parametrize("operation", WITH_SOURCES, ids=str)


def _with_source(request: Request, address: str) -> Request:
    return request.setting("x-ms-copy-source", address)


def _read_fault(answer: Answer) -> str:
    """Returns what is wrong with the answer to a request whose source must not be read."""
    if CONTENT in answer.body:
        return "the source was shown"
    if fault := refusal_fault(answer):
        return fault
    expected = ("CannotVerifyCopySource", "InvalidHeaderValue", "InvalidResourceName", *MISSING)
    return "" if answer.code in expected else f"answered {answer.status} {answer.code}"


def _insufficient_tokens(target: FileTarget, other: FileTarget) -> Iterator[tuple[str, Token]]:
    """Tokens that do not grant reading the source."""

    def token(**options: str) -> Token:
        return share_token(ACCOUNT, KEY, target.share, target.source, **options)

    yield "only writes", token(permissions="cwd")
    yield "has expired", token(se=moment(hours=-1))
    yield "is not valid yet", token(st=moment(minutes=30))
    yield "is for another address", token(sip="10.0.0.1")
    yield "is for HTTPS", token(spr="https")
    yield "was forged", token(permissions="w").setting("sp", "rw")
    yield "has no signature", token().lacking("sig")
    yield "names a missing policy", share_token(ACCOUNT, KEY, target.share, si="readers")
    yield "is for the destination", share_token(ACCOUNT, KEY, target.share, target.file)
    yield "is for a prefix", share_token(ACCOUNT, KEY, target.share, target.source[:-1])
    yield "is for another share", share_token(ACCOUNT, KEY, other.share)
    yield "only lists", share_token(ACCOUNT, KEY, target.share, permissions="l")
    yield "is for a container", service_token(ACCOUNT, KEY, target.share)
    yield "is for a blob", service_token(ACCOUNT, KEY, target.share, target.source)
    for key in (WRONG_KEY, *SECOND_KEYS):
        yield "has another key", share_token(ACCOUNT, key, target.share, target.source)
        yield "is of another account", share_token(SECOND_ACCOUNT, key, target.share)
    yield "is for the service", account_token(ACCOUNT, KEY, types="sc")
    yield "is for blobs", account_token(ACCOUNT, KEY, services="bqt")
    yield "lacks a permission", account_token(ACCOUNT, KEY, permissions="wdxylacupfti")


def _spellings(target: FileTarget) -> Iterator[str]:
    """URLs of the source without a token."""
    path = f"/{target.account}/{target.share}/{target.source}"
    for written in (
        path,
        path.upper(),
        path.replace("s", "%73"),
        path.replace(target.source, target.source.replace("/", "%2F")),
        path.replace(target.source, target.source.replace("/", "\\")),
        f"{path}.",
        f"/{target.account}-secondary/{target.share}/{target.source}",
        f"/{target.account}/nothing/../{target.share}/{target.source}",
        f"/{target.account}/{target.share}/x/../{target.source}",
        f"/{target.account}/{target.share}//{target.source}",
        f"//{target.account}/{target.share}/{target.source}",
        f"{path}?sharesnapshot=2026-01-01T00:00:00.0000000Z",
        f"{path}?sharesnapshot=now",
    ):
        yield SERVER_URL + written
    for authority in ("localhost", "[::1]", "127.1", f"{target.account}.file.127.0.0.1", "x@y"):
        yield f"http://{authority}{path}"
        yield f"http://{authority}/{target.share}/{target.source}"
    yield path
    yield f"{SERVER_URL}{path}?sv=2021-12-02&sp=r&se=2099-01-01&sr=f&sig="
    yield f"file://{path}"


@each_operation
def test_rights_on_the_destination(files: FileFixture, operation: FileOperation) -> None:
    """A token for the destination does not grant reading the source."""
    other = files.create()
    with files.target_for(operation) as target:
        request = operation.request(target)
        token = share_token(ACCOUNT, KEY, target.share, operation.path(target))
        plain = f"{SERVER_URL}/{ACCOUNT}/{target.share}/{target.source}"
        addresses = [(address, address) for address in _spellings(target)]
        addresses += [
            (label, f"{plain}?{useless}") for label, useless in _insufficient_tokens(target, other)
        ]
        wrong = []
        with files.unchanged():
            for label, address in addresses:
                answer = files.client.ask(token.put_on(_with_source(request, address)))
                if fault := _read_fault(answer):
                    wrong.append((label, fault))
            assert not wrong
        answer = files.client.ask(token.put_on(request))
        assert 200 <= answer.status < 300, answer
    files.remove(other)


@each_operation
def test_key_and_sources_of_another_account(files: FileFixture, operation: FileOperation) -> None:
    foreign = files.create(SECOND_ACCOUNT)
    with files.target_for(operation) as target, files.unchanged():
        request = operation.request(target)
        path = f"/{SECOND_ACCOUNT}/{foreign.share}/{foreign.file}"
        own = share_token(ACCOUNT, KEY, foreign.share, foreign.file)
        disguised = share_token(SECOND_ACCOUNT, KEY, foreign.share, foreign.file)
        for address in (
            f"{SERVER_URL}{path}",
            f"{SERVER_URL}{path}?{own}",
            f"{SERVER_URL}{path}?{disguised}",
            f"{SERVER_URL}/{ACCOUNT}/../{path[1:]}",
            f"http://{SECOND_ACCOUNT}.file.127.0.0.1/{foreign.share}/{foreign.file}",
        ):
            answer = files.client.ask(SIGN(_with_source(request, address)))
            assert not _read_fault(answer), (address, answer)
    files.remove(foreign)


def test_sources_in_the_other_service(
    probed_server: Server, files: FileFixture, blobs: BlobFixture
) -> None:
    """Neither service reads from the other with the key of the account, or with a token of the
    wrong service."""
    file, blob = files.create(), blobs.create()
    blob_url = f"{probed_server.endpoints['blob']}/{ACCOUNT}/{blob.container}/{blob.blob}"
    file_url = f"{probed_server.endpoints['file']}/{ACCOUNT}/{file.share}/{file.file}"
    version = ("x-ms-version", VERSION)
    to_file = Request("PUT", f"/{ACCOUNT}/{file.share}/copy", (), (version,))
    to_blob = Request("PUT", f"/{ACCOUNT}/{blob.container}/copy", (), (version,))
    of_blob = service_token(ACCOUNT, KEY, blob.container, blob.blob, permissions="r")
    of_file = share_token(ACCOUNT, KEY, file.share, file.file, permissions="r")
    with files.unchanged(), blobs.unchanged():
        for useless in ("", str(of_file), str(share_token(ACCOUNT, KEY, blob.container))):
            request = to_file.having(("x-ms-copy-source", f"{blob_url}?{useless}"))
            assert not _read_fault(files.client.ask(SIGN(request)))
        for useless in ("", str(of_blob), str(service_token(ACCOUNT, KEY, file.share))):
            request = to_blob.having(("x-ms-copy-source", f"{file_url}?{useless}"))
            assert not _read_fault(blobs.client.ask(SIGN(request)))
    request = to_file.having(("x-ms-copy-source", f"{blob_url}?{of_blob}"))
    assert files.client.ask(SIGN(request)).status == 202
    request = to_blob.having(("x-ms-copy-source", f"{file_url}?{of_file}"))
    assert blobs.client.ask(SIGN(request)).status == 202
    files.remove(file)
    blobs.remove(blob)


BAD_HEADERS = [
    ("x-ms-copy-source", "", "MissingRequiredHeader"),
    ("x-ms-copy-source", "/devstoreaccount1/share/file", "InvalidHeaderValue"),
    ("x-ms-file-attributes", "Directory", "InvalidHeaderValue"),
    ("x-ms-file-attributes", "Preserve", "InvalidHeaderValue"),
    ("x-ms-file-creation-time", "yesterday", "InvalidHeaderValue"),
    ("x-ms-file-last-write-time", "preserve", "InvalidHeaderValue"),
    ("x-ms-file-change-time", "9999-99-99", "InvalidHeaderValue"),
    ("x-ms-file-permission", "nonsense", "FileInvalidPermission"),
    ("x-ms-file-permission-key", "nonsense", "FileInvalidPermissionKey"),
    ("x-ms-file-permission-key", "123*456", "FileInvalidPermissionKey"),
    ("x-ms-file-permission-copy-mode", "both", "InvalidHeaderValue"),
    ("x-ms-file-copy-ignore-readonly", "perhaps", "InvalidHeaderValue"),
    ("x-ms-file-copy-set-archive", "1", "InvalidHeaderValue"),
    ("x-ms-file-owner-copy-mode", "x", "InvalidHeaderValue"),
    ("x-ms-file-mode-copy-mode", "x", "InvalidHeaderValue"),
    ("x-ms-mode", "0755", "UnsupportedHeader"),
    ("x-ms-owner", "0", "UnsupportedHeader"),
    ("x-ms-lease-id", "x", "InvalidHeaderValue"),
    ("x-ms-meta-1", "x", "InvalidMetadata"),
    ("x-ms-source-allow-trailing-dot", "x", "InvalidHeaderValue"),
    ("x-ms-copy-source-authorization", "Bearer x", "UnsupportedHeader"),
]


def test_bad_copies(files: FileFixture) -> None:
    operation = next(form for form in WITH_SOURCES if form.name == "copy_file_over_another")
    with files.target_for(operation) as target, files.unchanged():
        wrong = []
        for name, value, code in BAD_HEADERS:
            answer = files.client.ask(SIGN(operation.request(target).setting(name, value)))
            if (answer.code, 400 <= answer.status < 500) != (code, True):
                wrong.append((name, value, answer.status, answer.code))
        both = operation.request(target).having(
            ("x-ms-file-permission-copy-mode", "source"), ("x-ms-file-permission", SDDL)
        )
        assert files.client.ask(SIGN(both)).code == "InvalidHeaderValue"
        assert not wrong


def test_bad_aborts(files: FileFixture) -> None:
    target = files.create()
    path = f"/{ACCOUNT}/{target.share}/{target.file}"
    action = ("x-ms-copy-action", "abort")
    copy_id = ("copyid", "11111111-2222-3333-4444-555555555555")
    comp, version = ("comp", "copy"), ("x-ms-version", VERSION)
    with files.unchanged():
        for query, headers, code in (
            ((comp, copy_id), (action,), "NoPendingCopyOperation"),
            ((comp, copy_id), (), "MissingRequiredHeader"),
            ((comp, copy_id), (("x-ms-copy-action", "stop"),), "InvalidHeaderValue"),
            ((comp,), (action,), "MissingRequiredQueryParameter"),
            ((comp, ("copyid", "x")), (action,), "InvalidQueryParameterValue"),
            ((comp, copy_id, ("sharesnapshot", "x")), (action,), "InvalidQueryParameterValue"),
        ):
            answer = files.client.ask(SIGN(Request("PUT", path, query, (version, *headers))))
            assert answer.code == code, (query, headers, answer)
        missing = Request("PUT", f"{path}x", (comp, copy_id), (version, action))
        assert files.client.ask(SIGN(missing)).code == "ResourceNotFound"
        directory = Request("PUT", f"/{ACCOUNT}/{target.share}/{target.directory}",
                            (comp, copy_id), (version, action))  # fmt: skip
        assert files.client.ask(SIGN(directory)).code == "ResourceTypeMismatch"
    files.remove(target)
