"""The source of a copy or a rename is read or moved only if the caller may do so."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.probes.answers import refusal_fault
from tests.probes.blob.fixture import BlobFixture
from tests.probes.blob.operations import OPERATIONS as BLOB_OPERATIONS
from tests.probes.client import Answer, Request, shared_key
from tests.probes.file.fixture import CONTENT, FileFixture
from tests.probes.file.operations import OPERATIONS, SERVER_URL, FileOperation, FileTarget
from tests.probes.tokens import Token, account_token, moment, service_token, share_token
from tests.server import ACCOUNT, KEY, SECOND_ACCOUNT, SECOND_KEYS, WRONG_KEY

SIGN = shared_key(ACCOUNT, KEY)
SIGN_SECOND = shared_key(SECOND_ACCOUNT, SECOND_KEYS[0])
COPIES = [form for form in OPERATIONS if form.source == "file to copy"]
WITH_SOURCES = [form for form in OPERATIONS if form.source]
CANNOT_VERIFY = "CannotVerifyCopySource"
REFUSALS = (
    CANNOT_VERIFY,
    "AuthenticationFailed",
    "AuthorizationFailure",
    "AuthorizationPermissionMismatch",
    "AuthorizationProtocolMismatch",
    "AuthorizationResourceTypeMismatch",
    "AuthorizationServiceMismatch",
    "AuthorizationSourceIPMismatch",
    "InvalidHeaderValue",
    "InvalidResourceName",
    "OutOfRangeInput",
    # To anonymous readers, files look absent.
    "ResourceNotFound",
)

each_copy = pytest.mark.parametrize("operation", COPIES, ids=str)
each_operation = pytest.mark.parametrize("operation", WITH_SOURCES, ids=str)


def _with_source(operation: FileOperation, target: FileTarget, address: str) -> Request:
    header = "x-ms-copy-source" if operation.source == "file to copy" else "x-ms-file-rename-source"
    return operation.request(target).setting(header, address)


def _plain(target: FileTarget) -> str:
    """Returns the URL of the source without a token."""
    return f"{SERVER_URL}/{target.account}/{target.share}/{target.source}"


def _fault(answer: Answer, *codes: str) -> str:
    """Returns what is wrong with the answer to a request whose source must not be touched."""
    if CONTENT in answer.body:
        return "the source was shown"
    if fault := refusal_fault(answer):
        return fault
    is_expected = answer.code in (*REFUSALS, *codes)
    return "" if is_expected else f"answered {answer.status} {answer.code}"


def _destination_token(operation: FileOperation, target: FileTarget) -> Token:
    path = "" if operation.level == "directory" else operation.path(target)
    if path:
        return share_token(ACCOUNT, KEY, target.share, path)
    # Only tokens for the share reach directories. This one could delete, but not read.
    return share_token(ACCOUNT, KEY, target.share, permissions="cwdl")


def _insufficient_tokens(target: FileTarget, other: FileTarget) -> Iterator[tuple[str, Token]]:
    """Yields tokens that grant neither reading nor moving the source."""

    def token(**options: str) -> Token:
        return share_token(ACCOUNT, KEY, target.share, target.source, **options)

    yield "only writes", token(permissions="cwd")
    yield "has expired", token(se=moment(hours=-1))
    yield "is not valid yet", token(st=moment(minutes=30))
    yield "is for another address", token(sip="10.0.0.1")
    yield "is for the address of this server", token(sip="0.0.0.0")
    yield "is for HTTPS", token(spr="https")
    yield "was forged", token(permissions="w").setting("sp", "rw")
    yield "names a missing policy", share_token(ACCOUNT, KEY, target.share, si="readers")
    yield "is for the destination", share_token(ACCOUNT, KEY, target.share, target.file)
    yield "is for a prefix", share_token(ACCOUNT, KEY, target.share, target.source[:-1])
    yield "is for the directory", share_token(ACCOUNT, KEY, target.share, "shelf")
    yield "has another case", share_token(ACCOUNT, KEY, target.share, target.source.upper())
    yield "has a trailing dot", share_token(ACCOUNT, KEY, target.share, f"{target.source}.")
    yield "is for another share", share_token(ACCOUNT, KEY, other.share)
    yield "claims to be for the share", token().setting("sr", "s")
    yield (
        "only writes and lists the share",
        share_token(ACCOUNT, KEY, target.share, permissions="cwdl"),
    )
    yield "is for a container", service_token(ACCOUNT, KEY, target.share)
    yield "is for a blob", service_token(ACCOUNT, KEY, target.share, target.source)
    for key in (WRONG_KEY, *SECOND_KEYS):
        yield "has another key", share_token(ACCOUNT, key, target.share, target.source)
        yield "is of another account", share_token(SECOND_ACCOUNT, key, target.share)
    yield "is for the service", account_token(ACCOUNT, KEY, services="f", types="sc")
    yield "is for other services", account_token(ACCOUNT, KEY, services="bqt")
    yield (
        "lacks a permission",
        account_token(ACCOUNT, KEY, services="f", permissions="wdxylacupfti"),
    )


def _spellings(target: FileTarget) -> Iterator[str]:
    """Yields URLs of the source without a token."""
    path = f"/{target.account}/{target.share}/{target.source}"
    for written in (
        path,
        path.upper(),
        path.replace("s", "%73"),
        f"/{target.account}-secondary/{target.share}/{target.source}",
        f"/{target.account}/{target.share}/{target.source.replace('/', '%2F')}",
        f"/{target.account}/{target.share}/{target.source.upper()}",
        f"/{target.account}/{target.share}/{target.source}.",
        f"/{target.account}/nothing/../{target.share}/{target.source}",
        f"/{target.account}/{target.share}/x/../{target.source}",
        f"/{target.account}/{target.share}//{target.source}",
        f"//{target.account}/{target.share}/{target.source}",
        f"/{target.account}/{target.share}/./{target.source}",
        f"/{target.account}/{target.share}%2F{target.source}",
        f"/{target.account}/{target.share}/{target.source.replace('/', '%5C')}",
    ):
        yield SERVER_URL + written
        yield f"{SERVER_URL}{written}?sharesnapshot=2026-01-01T00:00:00.0000000Z"
    for authority in (
        "localhost", "127.0.0.1:80", "127.1", "[::1]", f"{target.account}.file.127.0.0.1",
        "other@127.0.0.1", f"{target.account}.file.localhost", "127.0.0.1%00",
        "127.0.0.1#@localhost",
    ):  # fmt: skip
        yield f"http://{authority}{path}"
        yield f"http://{authority}/{target.share}/{target.source}"
    yield path
    yield f"{SERVER_URL}{path}?sv=2021-12-02&sp=rw&se=2099-01-01&sr=f"
    yield f"{SERVER_URL}{path}?sv=2021-12-02&sp=rw&se=2099-01-01&sr=f&sig="
    yield f"file://{path}"


# Tokens


@each_operation
def test_rights_on_the_destination(files: FileFixture, operation: FileOperation) -> None:
    """A token for the destination does not reach the source, however the source is written."""
    other = files.create()
    with files.target_for(operation) as target:
        token = _destination_token(operation, target)
        wrong = []
        with files.unchanged():
            for address in _spellings(target):
                sent = token.put_on(_with_source(operation, target, address))
                if fault := _fault(files.client.ask(sent)):
                    wrong.append((address, fault))
            for label, useless in _insufficient_tokens(target, other):
                address = f"{_plain(target)}?{useless}"
                sent = token.put_on(_with_source(operation, target, address))
                if fault := _fault(files.client.ask(sent)):
                    wrong.append((label, fault))
            assert not wrong
    files.remove(other)


@each_operation
def test_keys_and_insufficient_tokens(files: FileFixture, operation: FileOperation) -> None:
    """A token in the URL counts, even if the owner of the account sent it."""
    other = files.create()
    with files.target_for(operation) as target, files.unchanged():
        for label, useless in _insufficient_tokens(target, other):
            address = f"{_plain(target)}?{useless}"
            answer = files.client.ask(SIGN(_with_source(operation, target, address)))
            assert not _fault(answer), (label, answer)
    files.remove(other)


@each_copy
def test_token_of_the_request(files: FileFixture, operation: FileOperation) -> None:
    """A token of the request is not used for the source of a copy, even if it covers it."""
    with files.target_for(operation) as target, files.unchanged():
        request = _with_source(operation, target, _plain(target))
        for token in (
            account_token(ACCOUNT, KEY, services="f"),
            share_token(ACCOUNT, KEY, target.share),
        ):
            assert not _fault(files.client.ask(token.put_on(request)))


@each_copy
def test_trailing_dots_of_sources(files: FileFixture, operation: FileOperation) -> None:
    """Without the header that allows it, the server removes the dot that the token is for."""
    with files.target_for(operation) as target, files.unchanged():
        dotted = target._replace(source=f"{target.source}.")
        request = operation.request(dotted)
        answer = files.client.ask(SIGN(request))
        assert (answer.status, answer.code) == (403, CANNOT_VERIFY), answer
        allowed = request.having(("x-ms-source-allow-trailing-dot", "true"))
        answer = files.client.ask(SIGN(allowed))
        assert answer.status == 404, answer


# Keys


@each_operation
def test_keys_and_sources_of_the_account(files: FileFixture, operation: FileOperation) -> None:
    """The owner of an account needs no token for a source in it, except to write a range."""
    with files.target_for(operation) as target:
        answer = files.client.ask(SIGN(_with_source(operation, target, _plain(target))))
        if operation.name == "put_range_from_url":
            assert answer.code == CANNOT_VERIFY, answer
        else:
            assert 200 <= answer.status < 300, answer


@each_operation
def test_keys_and_sources_of_another_account(files: FileFixture, operation: FileOperation) -> None:
    foreign = files.create(account=SECOND_ACCOUNT)
    with files.target_for(operation) as target, files.unchanged():
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
            answer = files.client.ask(SIGN(_with_source(operation, target, address)))
            assert not _fault(answer), (address, answer)
    files.remove(foreign)


@each_copy
def test_sources_of_another_account(files: FileFixture, operation: FileOperation) -> None:
    """The owner of one account copies from another only what a token grants."""
    second = files.create(account=SECOND_ACCOUNT)
    with files.target_for(operation) as target:
        destination = operation.request(second)
        request = _with_source(operation, second, f"{_plain(target)}?{_reading(target)}")
        assert request.path == destination.path
        with files.unchanged():
            for token in ("", share_token(ACCOUNT, WRONG_KEY, target.share)):
                sent = _with_source(operation, second, f"{_plain(target)}?{token}")
                assert not _fault(files.client.ask(SIGN_SECOND(sent)))
        answer = files.client.ask(SIGN_SECOND(request))
        assert 200 <= answer.status < 300, answer
    files.remove(second)


def _reading(target: FileTarget) -> Token:
    return share_token(ACCOUNT, KEY, target.share, target.source, permissions="r")


@each_copy
def test_other_credentials_for_a_source(files: FileFixture, operation: FileOperation) -> None:
    """Credentials that are not accepted are refused, not ignored."""
    with files.target_for(operation) as target, files.unchanged():
        request = _with_source(operation, target, _plain(target))
        for value in ("Bearer a", SIGN(Request("GET", "/")).header("authorization") or ""):
            signed = SIGN(request.having(("x-ms-copy-source-authorization", value)))
            assert not _fault(files.client.ask(signed), "UnsupportedHeader")


# Sources of the other service


@each_copy
def test_blobs_as_sources(files: FileFixture, blobs: BlobFixture, operation: FileOperation) -> None:
    """A blob needs a token of the blob service, or public access, whoever copies it to a file."""
    source = blobs.create()
    plain = _local_address(blobs, f"{source.container}/{source.blob}")
    refused = [
        "",
        share_token(ACCOUNT, KEY, source.container),
        share_token(ACCOUNT, KEY, source.container, source.blob),
        account_token(ACCOUNT, KEY, services="f"),
        service_token(ACCOUNT, KEY, source.container, source.blob, permissions="w"),
    ]
    with files.target_for(operation) as target:
        with files.unchanged():
            for token in refused:
                sent = _with_source(operation, target, f"{plain}?{token}")
                assert not _fault(files.client.ask(SIGN(sent))), token
        token = service_token(ACCOUNT, KEY, source.container, source.blob, permissions="r")
        files.send_as_owner(_with_source(operation, target, f"{plain}?{token}"))
    blobs.remove(source)


@pytest.mark.parametrize("row", ["copy_blob", "copy_blob_from_url", "put_block_from_url"])
def test_files_as_sources_of_blobs(files: FileFixture, blobs: BlobFixture, row: str) -> None:
    operation = next(each for each in BLOB_OPERATIONS if each.row == row and each.source)
    source = files.create()
    plain = _local_address(files, f"{source.share}/{source.file}")
    refused = [
        "",
        service_token(ACCOUNT, KEY, source.share),
        service_token(ACCOUNT, KEY, source.share, source.file),
        account_token(ACCOUNT, KEY, services="b"),
        share_token(ACCOUNT, KEY, source.share, source.file, permissions="cwd"),
        share_token(ACCOUNT, KEY, source.share, f"{source.file}."),
    ]
    with blobs.target_for(operation) as target:
        request = operation.request(target)
        with blobs.unchanged():
            for token in refused:
                sent = request.setting("x-ms-copy-source", f"{plain}?{token}")
                assert not _fault(blobs.client.ask(SIGN(sent))), token
        token = share_token(ACCOUNT, KEY, source.share, source.file, permissions="r")
        blobs.send_as_owner(request.setting("x-ms-copy-source", f"{plain}?{token}"))
    files.remove(source)


def _local_address(fixture: FileFixture | BlobFixture, path: str) -> str:
    port = urlsplit(fixture.server.endpoints[fixture.service]).port
    return f"http://127.0.0.1:{port}/{ACCOUNT}/{path}"
