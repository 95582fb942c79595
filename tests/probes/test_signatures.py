"""A signature is good for the request that was signed, and for no other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import pytest

from tests.probes.client import Request, Signer, http_date, md5, shared_key, shared_key_lite
from tests.probes.judgement import refusal
from tests.probes.operations import Operation, Place, each_operation
from tests.probes.stage import Stage
from tests.server import ACCOUNT, KEY

SIGN: Final = shared_key(ACCOUNT, KEY)
SIGN_LITE: Final = shared_key_lite(ACCOUNT, KEY)
METHODS: Final = ("GET", "HEAD", "PUT", "DELETE", "POST", "PATCH", "OPTIONS")
LONG_AGO: Final = "Sat, 01 Jan 2000 00:00:00 GMT"
LONG_HENCE: Final = "Thu, 01 Jan 2099 00:00:00 GMT"
# Refused as unsigned, or before that as no operation, of no version, or as no preflight.
EXPECTED: Final = (
    (403, "AuthenticationFailed"),
    (400, "InvalidQueryParameterValue"),
    (405, "UnsupportedHttpVerb"),
    (400, "InvalidHeaderValue"),
)

# These know no conditions, or none by these names.
UNCONDITIONAL: Final = {
    "put_block", "put_block_from_url", "get_block_list", "set_blob_tier", "get_blob_tags",
    "set_blob_tags", "abort_copy_blob", "create_container", "get_container_properties",
    "get_container_metadata", "get_container_acl", "list_blobs", "list_containers",
    "find_blobs_by_tags", "find_blobs_by_tags_in_container", "blob_batch",
    "blob_batch_in_container", "get_account_information", "get_blob_service_properties",
    "set_blob_service_properties", "get_blob_service_stats",
}  # fmt: skip

Changes = Iterator[tuple[str, Request]]


def harmless_headers(operation: Operation, request: Request) -> dict[str, str]:
    """The standard headers that are signed, with values that change no outcome."""
    headers = {
        "Content-Encoding": "gzip",
        "Content-Language": "en",
        "Content-MD5": md5(request.body),
        "Content-Type": request.header("content-type") or "text/plain",
        "If-Modified-Since": LONG_AGO,
        "If-Match": "*",
        "If-None-Match": '"0x1"',
        "If-Unmodified-Since": LONG_HENCE,
        "Range": "bytes=0-1",
    }
    if operation.creates:
        del headers["If-Match"]
    if operation.row in UNCONDITIONAL:
        return {name: value for name, value in headers.items() if not name.startswith("If-")}
    return headers


def in_headers(request: Request, headers: dict[str, str], sign: Signer) -> Changes:
    """Each header added, removed, changed and doubled after it was signed."""
    for name, value in headers.items():
        request = request.lacking(name)
        yield f"{name} added", sign(request).having((name, value))
        signed = sign(request.having((name, value)))
        yield f"{name} removed", signed.lacking(name)
        yield f"{name} changed", signed.setting(name, value + "1")
        if value != value.swapcase():
            yield f"{name} in another case", signed.setting(name, value.swapcase())
        yield f"{name} doubled", signed.having((name, value))
        yield f"{name} emptied", signed.setting(name, "")


def in_extension_headers(request: Request, sign: Signer) -> Changes:
    signed = sign(request)
    sent = [(name, value) for name, value in signed.headers if name.startswith("x-ms-")]
    for name, value in sent:
        yield f"{name} removed", signed.lacking(name)
        yield f"{name} changed", signed.setting(name, value + "0")
        yield f"{name} doubled", signed.having((name, value))
        yield f"{name} emptied", signed.setting(name, "")
        # Lines of the string to sign that another name or value would make as well.
        yield (
            f"{name} without its dashes",
            signed.lacking(name).having((name.replace("-", "", 1), value)),
        )
    for name in ("x-ms-meta-added", "x-ms-lease-id", "x-ms-client-request-id", "x-ms-"):
        yield f"{name} added", signed.having((name, "11111111-2222-3333-4444-555555555555"))


def in_path(request: Request, sign: Signer) -> Changes:
    signed = sign(request)
    path = request.path
    others = {
        "longer": f"{path}2",
        "shorter": path[:-1],
        "below": f"{path}/b",
        "ends in a slash": f"{path}/",
        "doubled slash": path.replace("/", "//", 2),
        "dot": path.replace("/", "/./", 1),
        "dots": f"{path}/../{path.rpartition('/')[2]}",
        "encoded letter": f"{path[:-1]}%{ord(path[-1]):02x}",
        "encoded slash": "/" + path[1:].replace("/", "%2F", 1),
        "upper case": path[:-1] + path[-1:].upper() + "X",
        "NUL": f"{path}%00",
        "account encoded": path.replace("/d", "/%64", 1),
    }
    for label, other in others.items():
        yield f"path: {label}", replace(signed, path=other)


def in_method(request: Request, sign: Signer) -> Changes:
    signed = sign(request)
    for method in METHODS:
        if method != request.method:
            yield f"method: {method}", replace(signed, method=method)


def in_query(request: Request, sign: Signer, names: frozenset[str] | None = None) -> Changes:
    """Parameters, or those of these `names`, removed, changed, doubled and added."""
    signed = sign(request)
    for name, value in request.query:
        if names is not None and name not in names:
            continue
        yield f"{name} removed", signed.asking_not(name)
        yield f"{name} emptied", signed.asking_not(name).asking((name, ""))
        yield f"{name} changed", signed.asking_not(name).asking((name, value + "s"))
        yield f"{name} in capitals", signed.asking_not(name).asking((name, value.upper()))
        yield f"{name} doubled", signed.asking((name, value))
        yield f"{name} doubled in capitals", signed.asking((name.upper(), value))
        yield f"{name} encoded twice", signed.asking_not(name).asking((name, f"%25{value}"))
    added = {"timeout": "30", "prefix": "a", "include": "metadata", "snapshot": "now"}
    added |= {"comp": "metadata", "restype": "container", "unheard": "of", "": "a"}
    for name, value in added.items():
        if names is None or name in names:
            yield f"{name} added", signed.asking((name, value))


def carried_out(stage: Stage, changes: Changes) -> list[tuple[str, str]]:
    """The changed requests that were not refused as they should be."""
    return [
        (label, told)
        for label, changed in changes
        if (told := refusal(stage.client.ask(changed), *EXPECTED))
    ]


@each_operation
def test_the_signed_headers_are_harmless(stage: Stage, operation: Operation) -> None:
    """So that what refuses them below is the signature."""
    names = harmless_headers(operation, operation.request(Place("nowhere")))
    for name in names:
        with stage.place_for(operation) as place:
            request = operation.request(place)
            stage.own(request.setting(name, harmless_headers(operation, request)[name]))


@each_operation
def test_changed_after_it_was_signed(stage: Stage, operation: Operation) -> None:
    with stage.place_for(operation) as place, stage.unchanged():
        request = operation.request(place)
        headers = harmless_headers(operation, request)
        wrong = carried_out(stage, in_headers(request, headers, SIGN))
        wrong += carried_out(stage, in_extension_headers(request, SIGN))
        wrong += carried_out(stage, in_path(request, SIGN))
        wrong += carried_out(stage, in_method(request, SIGN))
        wrong += carried_out(stage, in_query(request, SIGN))
        assert not wrong


@each_operation
def test_changed_after_it_was_signed_lightly(stage: Stage, operation: Operation) -> None:
    """SharedKeyLite covers less: two standard headers, and `comp` of the query."""
    with stage.place_for(operation) as place, stage.unchanged():
        request = operation.request(place)
        headers = {
            name: value
            for name, value in harmless_headers(operation, request).items()
            if name in {"Content-MD5", "Content-Type"}
        }
        wrong = carried_out(stage, in_headers(request, headers, SIGN_LITE))
        wrong += carried_out(stage, in_extension_headers(request, SIGN_LITE))
        wrong += carried_out(stage, in_path(request, SIGN_LITE))
        wrong += carried_out(stage, in_method(request, SIGN_LITE))
        wrong += carried_out(stage, in_query(request, SIGN_LITE, frozenset({"comp"})))
        assert not wrong


@pytest.mark.parametrize("sign", [SIGN, SIGN_LITE], ids=["SharedKey", "SharedKeyLite"])
@each_operation
def test_the_date_is_signed(stage: Stage, operation: Operation, sign: Signer) -> None:
    with stage.place_for(operation) as place, stage.unchanged():
        signed = sign(operation.request(place).having(("Date", http_date())))
        later = http_date(60)
        changes = [
            ("changed", signed.setting("Date", later)),
            ("removed", signed.lacking("Date")),
            ("replaced", signed.lacking("Date").having(("x-ms-date", later))),
            ("joined by another", signed.having(("x-ms-date", later))),
            ("doubled", signed.having(("Date", later))),
        ]
        assert not carried_out(stage, iter(changes))


@each_operation
def test_the_length_of_the_body_is_signed(stage: Stage, operation: Operation) -> None:
    with stage.place_for(operation) as place, stage.unchanged():
        signed = SIGN(operation.request(place))
        body = signed.body + b" "
        longer = replace(signed.setting("Content-Length", str(len(body))), body=body)
        assert not carried_out(stage, iter([("longer", longer)]))


# What one parameter says must not be taken from another


LISTING: Final = (
    ("restype", "container"),
    ("comp", "list"),
    ("delimiter", "%2F"),
    ("prefix", "secret%3Aonly"),
)


def _without_lines(request: Request) -> Request:
    """The same text to sign, where the prefix is a part of the delimiter."""
    query = (("restype", "container"), ("comp", "list"))
    return replace(request, query=(*query, ("delimiter", "%2F%0Aprefix:secret:only")))


def _with_a_longer_name(request: Request) -> Request:
    """The same text to sign, where a part of the prefix is in the name of the parameter."""
    return request.asking_not("prefix").asking(("prefix%3Asecret", "only"))


@pytest.mark.parametrize("rewritten", [_without_lines, _with_a_longer_name])
def test_one_text_to_sign_is_one_request(
    stage: Stage, rewritten: Callable[[Request], Request]
) -> None:
    """A listing that was signed for a prefix does not become one of everything."""
    place = stage.make()
    path = f"/{ACCOUNT}/{place.container}"
    listing = Request("GET", path, LISTING)
    assert b"<BlobPrefix>" not in stage.own(listing).body
    answer = stage.client.ask(rewritten(SIGN(listing)))
    stage.remove(place)
    assert not refusal(answer, (403, "AuthenticationFailed")), answer.body
