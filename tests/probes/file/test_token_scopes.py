"""A token for a share or a file is not valid for another one, however its path is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import pytest

from tests.probes.answers import (
    AUTHENTICATION_FAILED,
    AUTHORIZATION_FAILURE,
    PERMISSION_MISMATCH,
    refusal_fault,
)
from tests.probes.client import Answer, Pairs, Request
from tests.probes.file.fixture import CONTENT, FileFixture
from tests.probes.file.operations import (
    FILE_KIND,
    OPERATIONS,
    SERVER_URL,
    SHARE_KIND,
    VERSION,
    FileOperation,
    FileTarget,
)
from tests.probes.tokens import (
    FILE_LETTERS,
    SHARE_LETTERS,
    Token,
    account_token,
    share_token,
)
from tests.server import ACCOUNT, KEY

OUT_OF_SCOPE: Final = (AUTHENTICATION_FAILED, AUTHORIZATION_FAILURE)
GRANTED_BY_SHARE: Final = [
    pytest.param(operation, id=str(operation), marks=operation.marks)
    for operation in OPERATIONS
    if SHARE_KIND.grants(operation, SHARE_LETTERS)
]
GRANTED_BY_FILE: Final = [
    pytest.param(operation, id=str(operation), marks=operation.marks)
    for operation in OPERATIONS
    if FILE_KIND.grants(operation, FILE_LETTERS)
]


@pytest.fixture(scope="module")
def own(files: FileFixture) -> FileTarget:
    """The share and file that the tokens are for."""
    return files.create()


def _is_out_of_scope(answer: Answer, *more: tuple[int, str]) -> bool:
    # A path of one segment has the routes of a share.
    routes = ((400, "InvalidQueryParameterValue"), (405, "UnsupportedHttpVerb"))
    return not refusal_fault(answer, *OUT_OF_SCOPE, *routes, *more)


# Other shares and files


@pytest.mark.parametrize("operation", GRANTED_BY_SHARE)
def test_neighbouring_shares(files: FileFixture, own: FileTarget, operation: FileOperation) -> None:
    neighbours = [own.share[:-1] + "z", f"{own.share}-z", own.share.upper()]
    with files.target_for(operation) as other, files.unchanged():
        token = SHARE_KIND.make(operation, own)
        paths = [operation.request(other).path]
        paths += [operation.request(own).path.replace(own.share, name) for name in neighbours]
        paths += [
            f"/{ACCOUNT}/{own.share}%2F..%2F{other.share}/{other.file}",
            f"/{ACCOUNT}/{other.share}/../{own.share}/{own.file}",
            f"/{ACCOUNT}//{own.share}/{own.file}",
            f"/{ACCOUNT}/{own.share}%2F{own.file}",
            f"/{ACCOUNT}/{own.share}%5C..%5C{other.share}/{other.file}",
        ]
        for path in paths:
            answer = files.client.ask(token.put_on(replace(operation.request(own), path=path)))
            assert _is_out_of_scope(answer), (path, answer)


@pytest.mark.parametrize("operation", GRANTED_BY_SHARE)
def test_paths_do_not_leave_the_share(
    files: FileFixture, own: FileTarget, operation: FileOperation
) -> None:
    """A token for a share is valid for all of its paths, but `..` is no way out of it."""
    with files.target_for(operation) as other, files.unchanged():
        token = SHARE_KIND.make(operation, own)
        for way in (
            f"../{other.share}/{other.file}",
            f"..%2F{other.share}%2F{other.file}",
            f"shelf/../../{other.share}/{other.file}",
            f"%2E%2E/{other.share}/{other.file}",
            f"..%5C{other.share}%5C{other.file}",
            f"./../{other.share}/{other.file}",
            f".../{other.share}/{other.file}",
        ):
            path = f"/{ACCOUNT}/{own.share}/{way}"
            answer = files.client.ask(token.put_on(replace(operation.request(own), path=path)))
            assert answer.status in {400, 403, 404, 405}, (way, answer)


def _neighbours(target: FileTarget) -> Iterator[str]:
    """Yields other spellings of the path of a file, and other paths."""
    directory, name = target.file.split("/")
    yield f"{target.share}/{target.file}2"
    yield f"{target.share}/{target.file[:-1]}"
    yield f"{target.share}/{target.file}/"
    yield f"{target.share}/{target.file}."
    yield f"{target.share}/{directory}./{name}"
    yield f"{target.share}/{directory}.../{name}..."
    yield f"{target.share}/{target.file}/below"
    yield f"{target.share}/{target.file.upper()}"
    yield f"{target.share}/{directory}/{name.capitalize()}"
    yield f"{target.share}/{target.file}%00"
    yield f"{target.share}/{target.file}%0A"
    yield f"{target.share}/{target.file}%20"
    yield f"{target.share}/./{target.file}"
    yield f"{target.share}//{target.file}"
    yield f"{target.share}/{directory}//{name}"
    yield f"{target.share}/{directory}%5C{name}"
    yield f"{target.share}/{directory}/../{target.file}"
    yield f"{target.share}/{directory}/%2E/{name}"
    yield f"{target.share}%2F{target.file}"
    yield f"{target.share}/{directory}"
    yield f"{target.share}/"
    yield target.share


@pytest.mark.parametrize("operation", GRANTED_BY_FILE)
@pytest.mark.parametrize("allowed", ["", "true", "false"], ids=["", "dots", "no-dots"])
def test_neighbouring_files(
    files: FileFixture, own: FileTarget, operation: FileOperation, allowed: str
) -> None:
    with files.unchanged():
        token = share_token(ACCOUNT, KEY, own.share, own.file)
        request = operation.request(own)
        if allowed:
            request = request.having(("x-ms-allow-trailing-dot", allowed))
        for path in _neighbours(own):
            answer = files.client.ask(token.put_on(replace(request, path=f"/{ACCOUNT}/{path}")))
            assert _is_out_of_scope(answer), (path, answer)


@pytest.mark.parametrize("operation", GRANTED_BY_FILE)
def test_encoded_slashes(files: FileFixture, operation: FileOperation) -> None:
    """An encoded slash separates names, too, so it is another spelling of the same path."""
    with files.target_for(operation) as target:
        request = operation.request(target)
        path = request.path.replace("shelf/", "shelf%2F")
        token = FILE_KIND.make(operation, target)
        answer = files.client.ask(token.put_on(replace(request, path=path)))
        assert 200 <= answer.status < 300, answer


@pytest.mark.parametrize("operation", GRANTED_BY_FILE)
def test_trailing_dots(files: FileFixture, operation: FileOperation) -> None:
    """A token for a name with a trailing dot is not valid for the name without it, which the
    request is for unless it allows trailing dots."""
    with files.target_for(operation) as target, files.unchanged():
        below = operation.path(target)
        request = operation.request(target)
        for dotted in (f"{below}.", f"{below}...", below.replace("shelf", "shelf.")):
            token = share_token(ACCOUNT, KEY, target.share, dotted)
            path = f"/{ACCOUNT}/{target.share}/{dotted}"
            for headers in ((), (("x-ms-allow-trailing-dot", "false"),)):
                sent = token.put_on(replace(request, path=path).having(*headers))
                assert not refusal_fault(files.client.ask(sent), AUTHORIZATION_FAILURE), dotted


@pytest.mark.parametrize("operation", GRANTED_BY_FILE)
def test_resources_are_not_exchangeable(
    files: FileFixture, own: FileTarget, operation: FileOperation
) -> None:
    """`sr` is not signed."""
    with files.unchanged():
        request = operation.request(own)
        file = share_token(ACCOUNT, KEY, own.share, own.file)
        share = share_token(ACCOUNT, KEY, own.share, permissions=FILE_LETTERS)
        for token in (file.setting("sr", "s"), share.setting("sr", "f")):
            for path in (request.path, f"/{ACCOUNT}/{own.share}%2F{own.file}"):
                answer = files.client.ask(token.put_on(replace(request, path=path)))
                assert not refusal_fault(answer, AUTHENTICATION_FAILED), (path, answer)
        for resource in ("c", "b", "d", "bs", "", "S", "F", "sf"):
            answer = files.client.ask(share.setting("sr", resource).put_on(request))
            assert not refusal_fault(answer, AUTHENTICATION_FAILED), resource


# Hard links


@pytest.mark.parametrize("letters", ["w", "c", "cw", "cwd", "r", "rcd"])
def test_a_hard_link_is_no_way_to_read_a_file(files: FileFixture, letters: str) -> None:
    """Otherwise a caller who may write all files, and read one path, could read all files."""
    target = files.create(is_nfs=True)
    path = f"/{ACCOUNT}/{target.share}/{target.free_file}"
    headers = (
        ("x-ms-version", VERSION),
        ("x-ms-type", "file"),
        ("x-ms-file-target-file", f"/{target.file}"),
    )
    request = Request("PUT", path, (("restype", "hardlink"),), headers)
    with files.unchanged():
        for token in (
            share_token(ACCOUNT, KEY, target.share, permissions=letters),
            account_token(ACCOUNT, KEY, permissions=letters, services="f"),
        ):
            answer = files.client.ask(token.put_on(request))
            assert not refusal_fault(answer, PERMISSION_MISMATCH), answer
    files.remove(target)


# Sources of renames


def _rename(target: FileTarget, source: str, *headers: tuple[str, str]) -> Request:
    path = f"/{target.account}/{target.share}/{target.free_file}"
    named = ("x-ms-file-rename-source", source)
    return Request("PUT", path, (("comp", "rename"),), (("x-ms-version", VERSION), named, *headers))


def _address(target: FileTarget, path: str, token: Token | None = None) -> str:
    address = f"{SERVER_URL}/{target.account}/{target.share}/{path}"
    return f"{address}?{token}" if token is not None else address


def _tokens_without_the_right(target: FileTarget) -> Iterator[tuple[str, Token]]:
    account, key, share = ACCOUNT, KEY, target.share
    for letters in ("r", "w", "d", "wd", "rd", "c", "cd"):
        yield letters, share_token(account, key, share, target.file, permissions=letters)
        yield letters, share_token(account, key, share, permissions=letters)
    yield "l", share_token(account, key, share, permissions="l")
    yield "another file", share_token(account, key, share, target.directory)
    yield "another share", share_token(account, key, f"{share}x")
    yield "expired", share_token(account, key, share, se="2020-01-01")
    yield "forged", share_token(account, key, share).setting("sig", "AAAA")


def test_a_rename_needs_permission_for_its_source(files: FileFixture) -> None:
    target = files.create()
    expected = (*OUT_OF_SCOPE, PERMISSION_MISMATCH)
    destination = share_token(ACCOUNT, KEY, target.share, target.free_file)
    with files.unchanged():
        for label, token in _tokens_without_the_right(target):
            for request in (
                files.sign_as_owner(_rename(target, _address(target, target.file, token))),
                destination.put_on(_rename(target, _address(target, target.file, token))),
            ):
                answer = files.client.ask(request)
                assert not refusal_fault(answer, *expected), (label, answer)
        # Without a token for the source, the one of the destination must reach it.
        answer = files.client.ask(
            destination.put_on(_rename(target, _address(target, target.file)))
        )
        assert not refusal_fault(answer, *expected), answer
        answer = files.client.ask(_rename(target, _address(target, target.file)).framed())
        assert answer.status == 401
    answer = files.client.ask(
        share_token(ACCOUNT, KEY, target.share).put_on(
            _rename(target, _address(target, target.file))
        )
    )
    assert answer.status == 200, answer
    files.remove(target)


@pytest.mark.parametrize("permissions", ["c", "r", "d", "rd"])
def test_a_rename_needs_permission_for_its_destination(
    files: FileFixture, permissions: str
) -> None:
    """`c` suffices for a free name only."""
    target = files.create()
    files.write(target, target.free_file, b"precious")
    source = _address(target, target.file, share_token(ACCOUNT, KEY, target.share))
    replaces = ("x-ms-file-rename-replace-if-exists", "true")
    token = share_token(ACCOUNT, KEY, target.share, target.free_file, permissions=permissions)
    with files.unchanged():
        answer = files.client.ask(token.put_on(_rename(target, source, replaces)))
        assert not refusal_fault(answer, PERMISSION_MISMATCH), answer
    files.remove(target)


@pytest.mark.parametrize(
    "source",
    [
        "{share}",
        "{share}/",
        "{other}/{file}",
        "{share}/../{other}/{file}",
        "{share}/..%2F{other}/{file}",
        "{share}%2F..%2F{other}/{file}",
        "{share}//{file}",
        "{share}/{file}?sharesnapshot=2024-01-01T00:00:00.0000000Z",
    ],
)
def test_sources_outside_of_the_share(files: FileFixture, own: FileTarget, source: str) -> None:
    target = files.create()
    path = source.format(share=target.share, other=own.share, file=own.file)
    with files.unchanged():
        for account in (ACCOUNT, "second"):
            request = _rename(target, f"{SERVER_URL}/{account}/{path}")
            for sent in (
                files.sign_as_owner(request),
                share_token(ACCOUNT, KEY, target.share).put_on(request),
            ):
                answer = files.client.ask(sent)
                assert answer.status in {400, 403}, (path, answer)
    files.remove(target)


def test_a_source_with_a_trailing_dot(files: FileFixture) -> None:
    """The token of the source is for the file that is moved."""
    target = files.create()
    dotted = f"{target.file}."
    token = share_token(ACCOUNT, KEY, target.share, dotted)
    request = _rename(target, _address(target, dotted, token))
    with files.unchanged():
        answer = files.client.ask(files.sign_as_owner(request))
        assert not refusal_fault(answer, AUTHORIZATION_FAILURE), answer
        allowed = request.having(("x-ms-source-allow-trailing-dot", "true"))
        answer = files.client.ask(files.sign_as_owner(allowed))
        assert (answer.status, answer.code) == (404, "ResourceNotFound"), answer
    files.remove(target)


# What a token adds to answers

_OVERRIDES: Final = {
    "rscc": ("cache-control", "no-store"),
    "rscd": ("content-disposition", "attachment"),
    "rsce": ("content-encoding", "br"),
    "rscl": ("content-language", "fr"),
    "rsct": ("content-type", "text/odd"),
}


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("of_file", [True, False], ids=["file", "share"])
def test_headers_that_a_token_replaces(
    files: FileFixture, own: FileTarget, method: str, of_file: bool
) -> None:
    request = Request(method, f"/{ACCOUNT}/{own.share}/{own.file}")
    replaced = {name: value for name, (_, value) in _OVERRIDES.items()}
    token = share_token(ACCOUNT, KEY, own.share, own.file if of_file else "", **replaced)
    answer = files.client.ask(token.put_on(request))
    assert answer.status == 200
    assert answer.body == (CONTENT if method == "GET" else b"")
    for header, value in _OVERRIDES.values():
        assert answer.headers[header] == value
    for name in _OVERRIDES:
        forged = files.client.ask(token.setting(name, "text/html").put_on(request))
        assert not refusal_fault(forged, AUTHENTICATION_FAILED) or method == "HEAD", name
        assert forged.status == 403
    plain = files.send_as_owner(request)
    assert plain.headers["content-type"] == "application/octet-stream"


# Snapshots


def test_tokens_and_snapshots(files: FileFixture) -> None:
    """A token for a share or a file is valid for its snapshots as well, which cannot be changed."""
    target = files.create()
    share = Request(
        "PUT", f"/{ACCOUNT}/{target.share}", (("restype", "share"), ("comp", "snapshot"))
    )
    snapshot = files.send_as_owner(share).headers["x-ms-snapshot"]
    files.write(target, target.file, b"newer")
    moment: Pairs = (("sharesnapshot", snapshot),)
    read = Request("GET", f"/{ACCOUNT}/{target.share}/{target.file}", moment)
    for path in ("", target.file):
        token = share_token(ACCOUNT, KEY, target.share, path)
        assert files.client.ask(token.put_on(read)).body == CONTENT
        with files.unchanged():
            delete = replace(read, method="DELETE")
            answer = files.client.ask(token.put_on(delete))
            assert (answer.status, answer.code) == (400, "InvalidQueryParameterValue")
    files.remove(target)
