"""SharedKey: requests of SDKs are accepted, and every change to one is refused."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from functools import cmp_to_key
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etagere.auth.request import RestRequest, address, text
from etagere.auth.shared_key import (
    SKEW_TICKS,
    AccountKey,
    header_order,
    http_date,
    parse_authorization,
    strings_to_sign,
    verify,
)
from etagere.clock import TICKS_PER_SECOND
from etagere.errors import Refusal
from tests.auth.samples import (
    ACCOUNT,
    DATE,
    KEY,
    KEY_TEXT,
    NOW,
    OTHER_KEY,
    VECTORS,
    request,
    sign,
    signed,
    ticks,
)

SIGNED: list[dict[str, Any]] = VECTORS["sharedKey"]
STANDARD = {
    *("content-encoding", "content-language", "content-length", "content-md5", "content-type"),
    *("date", "if-modified-since", "if-match", "if-none-match", "if-unmodified-since", "range"),
}


def service_of(vector: dict[str, Any]) -> str:
    return "table" if vector["service"] == "table" else "blob"


def built(vector: dict[str, Any], **changes: Any) -> RestRequest:
    merged = {**vector, **changes}
    return request(
        merged["method"], merged["target"], merged["headers"], service=service_of(vector)
    )


def code(refusal: Refusal | None) -> str:
    return "" if refusal is None else refusal.code


# Accepted


@pytest.mark.parametrize("vector", SIGNED, ids=lambda vector: str(vector["target"]))
def test_requests_of_sdks(vector: dict[str, Any]) -> None:
    assert verify(built(vector), [KEY], NOW) is None


@pytest.mark.parametrize("vector", SIGNED[:1])
def test_both_keys_are_accepted(vector: dict[str, Any]) -> None:
    assert verify(built(vector), [KEY, OTHER_KEY], NOW) is None
    assert verify(built(vector), [OTHER_KEY, KEY], NOW) is None
    assert code(verify(built(vector), [OTHER_KEY], NOW)) == "AuthenticationFailed"
    assert code(verify(built(vector), [], NOW)) == "AuthenticationFailed"


STAMPED = {"x-ms-date": DATE, "x-ms-version": "2026-10-06"}
STAMPED_LINES = f"x-ms-date:{DATE}\nx-ms-version:2026-10-06\n"
PATH = f"/{ACCOUNT}/{ACCOUNT}/c/b"


def lines(method: str = "GET", **values: str) -> str:
    """Returns the first twelve lines of a string to sign."""
    names = ("encoding", "language", "length", "md5", "type", "date")
    conditions = ("since", "match", "none_match", "unmodified", "range")
    return "\n".join([method, *[values.get(name, "") for name in (*names, *conditions)], ""])


@pytest.mark.parametrize(
    ("string", "headers"),
    [
        (lines() + STAMPED_LINES + PATH, {}),
        (lines(length="5", md5="m", type="t") + STAMPED_LINES + PATH,
         {"Content-Length": "5", "Content-MD5": "m", "content-type": "t"}),
        # A length of zero, signed as empty and as "0"
        (lines() + STAMPED_LINES + PATH, {"Content-Length": "0"}),
        (lines(length="0") + STAMPED_LINES + PATH, {"Content-Length": "0"}),
        # Both dates sent, one or both signed
        (lines() + STAMPED_LINES + PATH, {"Date": DATE}),
        (lines(date=DATE) + STAMPED_LINES + PATH, {"Date": DATE}),
        # Encoding and language, in both orders
        (lines(encoding="gzip", language="fr") + STAMPED_LINES + PATH,
         {"Content-Encoding": "gzip", "Content-Language": "fr"}),
        (lines(encoding="fr", language="gzip") + STAMPED_LINES + PATH,
         {"Content-Encoding": "gzip", "Content-Language": "fr"}),
        (lines(language="gzip") + STAMPED_LINES + PATH, {"Content-Encoding": "gzip"}),
        # All of them at once
        (lines(language="gzip", length="0", date=DATE) + STAMPED_LINES + PATH,
         {"Content-Encoding": "gzip", "Content-Length": "0", "Date": DATE}),
        (lines(since="1", match="2", none_match="3", unmodified="4", range="5") + STAMPED_LINES
         + PATH,
         {"If-Modified-Since": "1", "If-Match": "2", "If-None-Match": "3",
          "If-Unmodified-Since": "4", "Range": "5"}),
        # The service's order of names, and that of their bytes
        (lines() + f"x-ms-date:{DATE}\nx-ms-meta-ab:1\nx-ms-meta-a-c:2\nx-ms-version:2026-10-06\n"
         + PATH, {"x-ms-meta-ab": "1", "x-ms-meta-a-c": "2"}),
        (lines() + f"x-ms-date:{DATE}\nx-ms-meta-a-c:2\nx-ms-meta-ab:1\nx-ms-version:2026-10-06\n"
         + PATH, {"x-ms-meta-ab": "1", "x-ms-meta-a-c": "2"}),
        # Values are trimmed, folds become a space
        (lines() + f"x-ms-date:{DATE}\nx-ms-meta-a:1  2 3\nx-ms-version:2026-10-06\n" + PATH,
         {"X-MS-Meta-A": " 1  2 \r\n\t3 "}),
    ],
)  # fmt: skip
def test_accepted_forms(string: str, headers: dict[str, str]) -> None:
    assert verify(signed(string, {**STAMPED, **headers}), [KEY], NOW) is None


def test_date_header_alone() -> None:
    string = lines(date=DATE) + PATH
    assert verify(signed(string, {"Date": DATE}), [KEY], NOW) is None


def test_query_is_sorted_and_decoded() -> None:
    string = lines() + STAMPED_LINES + f"/{ACCOUNT}/{ACCOUNT}/c\ncomp:list\nprefix:p x,q"
    target = f"/{ACCOUNT}/c?Prefix=q&comp=list&prefix=p%20x"
    assert verify(signed(string, STAMPED, target=target), [KEY], NOW) is None


@pytest.mark.parametrize(
    ("host", "target", "resource"),
    [
        ("h", f"/{ACCOUNT}-secondary/c/b", f"/{ACCOUNT}/{ACCOUNT}-secondary/c/b"),
        ("h", f"/{ACCOUNT}-secondary/c/b", f"/{ACCOUNT}/{ACCOUNT}/c/b"),
        ("h", f"/{ACCOUNT}-secondary", f"/{ACCOUNT}/{ACCOUNT}"),
        (f"{ACCOUNT}.blob.localhost", "/c/b", f"/{ACCOUNT}/c/b"),
        (f"{ACCOUNT}-secondary.blob.localhost", "/c/b", f"/{ACCOUNT}/c/b"),
        (f"{ACCOUNT}.blob.localhost", "", f"/{ACCOUNT}/"),
    ],
)
def test_addresses(host: str, target: str, resource: str) -> None:
    string = lines() + STAMPED_LINES + resource
    assert verify(signed(string, STAMPED, target=target, host=host), [KEY], NOW) is None


@pytest.mark.parametrize(
    ("string", "headers"),
    [
        (f"PUT\nm\nt\n\n{STAMPED_LINES}{PATH}?comp=block", STAMPED),
        (f"PUT\nm\nt\n{DATE}\n{STAMPED_LINES}{PATH}?comp=block", {**STAMPED, "Date": DATE}),
        (f"PUT\nm\nt\n{DATE}\n{PATH}?comp=block", {"Date": DATE}),
    ],
)
def test_lite(string: str, headers: dict[str, str]) -> None:
    sent = {**headers, "Content-MD5": "m", "Content-Type": "t", "Content-Length": "3"}
    target = f"/{ACCOUNT}/c/b?blockid=1&comp=block"
    made = signed(string, sent, scheme="SharedKeyLite", method="PUT", target=target)
    assert verify(made, [KEY], NOW) is None


@pytest.mark.parametrize("dated", ["x-ms-date", "Date"])
def test_table_lite(dated: str) -> None:
    string = f"{DATE}\n/{ACCOUNT}/{ACCOUNT}/MyT()?comp=acl"
    target = f"/{ACCOUNT}/MyT()?comp=acl&timeout=3"
    made = signed(string, {dated: DATE}, scheme="SharedKeyLite", target=target, service="table")
    assert verify(made, [KEY], NOW) is None


def test_tables_sign_the_checked_date() -> None:
    """Otherwise a recorded request could be sent again with a new x-ms-date."""
    string = f"GET\n\n\n{DATE}\n/{ACCOUNT}/{ACCOUNT}/MyT"
    later = "Sun, 15 Nov 2026 03:50:16 GMT"
    made = signed(
        string, {"Date": DATE, "x-ms-date": later}, target=f"/{ACCOUNT}/MyT", service="table"
    )
    assert code(verify(made, [KEY], ticks(later))) == "AuthenticationFailed"


# Refused: every single change


def changed_headers(vector: dict[str, Any]) -> Iterator[dict[str, str]]:
    table = service_of(vector) == "table"
    headers: dict[str, str] = vector["headers"]
    for name, value in headers.items():
        rest = {key: each for key, each in headers.items() if key != name}
        lowered = name.lower()
        if table:
            covered = lowered in {"content-md5", "content-type", "x-ms-date", "authorization"}
        else:
            covered = True
        if not covered:
            continue
        yield {**rest, name: f"{value}x"}
        if lowered == "x-ms-date":
            yield {**rest, name: value.replace(":16 ", ":17 ")}
        if lowered == "content-length" and value == "0":
            # Signed as if absent.
            continue
        yield {**rest, name: value[:-1]}
        yield {**rest, name: ""}
        if not table:
            yield rest
            yield {**rest, f"{name}-x": value}
    if not table:
        for name in ("x-ms-added", *STANDARD):
            if name not in {key.lower() for key in headers} | {"date"}:
                yield {**headers, name: "1"}


def flipped(written: str) -> Iterator[str]:
    for at, character in enumerate(written):
        yield written[:at] + ("y" if character == "z" else "z") + written[at + 1 :]
        yield written[:at] + written[at + 1 :]
        if character.swapcase() != character:
            yield written[:at] + character.swapcase() + written[at + 1 :]


def changed_targets(vector: dict[str, Any]) -> Iterator[str]:
    path, mark, query = str(vector["target"]).partition("?")
    for changed in flipped(path):
        yield changed + mark + query
    yield f"{path}/{mark}{query}"
    yield f"{path}?{query}&comp=added"
    if service_of(vector) == "table" and "comp=" not in query:
        # Tables sign no other parameter.
        return
    if service_of(vector) != "table":
        yield f"{path}?{query}&added=1"
    pairs = query.split("&") if query else []
    for at, pair in enumerate(pairs):
        others = pairs[:at] + pairs[at + 1 :]
        name, _, value = pair.partition("=")
        for changed in ("&".join(others), "&".join([*others, f"{name}x={value}"])):
            yield f"{path}?{changed}"
        for other_value in flipped(value):
            yield path + "?" + "&".join([*others, f"{name}={other_value}"])


@pytest.mark.parametrize("vector", SIGNED, ids=lambda vector: str(vector["target"]))
def test_every_single_change_is_refused(vector: dict[str, Any]) -> None:
    assert verify(built(vector), [KEY], NOW) is None
    changes: list[RestRequest] = [
        built(vector, method=method)
        for method in ("GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "MERGE", "get")
        if method != vector["method"]
    ]
    changes += [built(vector, headers=headers) for headers in changed_headers(vector)]
    changes += [built(vector, target=target) for target in changed_targets(vector)]
    authorization: str = vector["headers"]["Authorization"]
    scheme, _, rest = authorization.partition(" ")
    changes += [
        built(vector, headers={**vector["headers"], "Authorization": f"{scheme} {other}"})
        for other in flipped(rest)
    ]
    assert len(changes) > 100
    for changed in changes:
        refusal = verify(changed, [KEY], NOW)
        assert refusal is not None, (changed.method, changed.path, changed.query, changed.fields)
        assert refusal.code in {
            "AuthenticationFailed",
            "InvalidAuthenticationInfo",
            "NoAuthenticationInformation",
        }


def test_signatures_differ_by_scheme() -> None:
    vector = SIGNED[0]
    authorization = vector["headers"]["Authorization"].replace("SharedKey", "SharedKeyLite")
    made = built(vector, headers={**vector["headers"], "Authorization": authorization})
    assert code(verify(made, [KEY], NOW)) == "AuthenticationFailed"


def test_keys_of_other_accounts_are_refused() -> None:
    made = signed(lines() + STAMPED_LINES + "/other/other/c/b", STAMPED, target="/other/c/b")
    assert code(verify(made, [KEY], NOW)) == "AuthenticationFailed"


# The header


@pytest.mark.parametrize(
    "header",
    [
        *("", " ", "SharedKey", "SharedKey ", "SharedKey a", "SharedKey a:", "SharedKey :c2ln"),
        *("Basic a:b", "Bearer x.y.z", "SharedKeyX a:c2ln", "SharedKey a:not base64", "é a:c2ln"),
        *("SharedKey a:b:c", "SharedKey a:c2ln==x", "SharedKey a:====", "SharedKey a:c2l\uff4e"),
    ],
)
def test_malformed_authorization(header: str) -> None:
    refusal = parse_authorization(header)
    assert isinstance(refusal, Refusal)
    assert refusal.code == "InvalidAuthenticationInfo"


def test_no_authorization() -> None:
    assert code(verify(request(headers=STAMPED), [KEY], NOW)) == "NoAuthenticationInformation"


# Dates


@pytest.mark.parametrize(
    ("offset", "accepted"),
    [
        (0, True),
        (SKEW_TICKS, True),
        (-SKEW_TICKS, True),
        (SKEW_TICKS + 1, False),
        (-SKEW_TICKS - 1, False),
        (24 * 3600 * TICKS_PER_SECOND, False),
    ],
)
def test_skew(offset: int, accepted: bool) -> None:
    made = signed(lines() + STAMPED_LINES + PATH, STAMPED)
    assert (verify(made, [KEY], NOW + offset) is None) is accepted


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
        ("Thu, 1 Jan 1970 00:00:00 GMT", 0),
        ("Tue, 29 Feb 2000 23:59:59 GMT", 951_868_799),
        (DATE, 1_794_711_016),
        ("Wed, 30 Feb 2000 00:00:00 GMT", None),
        ("Sun, 15 Nov 0000 02:50:16 GMT", None),
        ("Sun, 15 Foo 2026 02:50:16 GMT", None),
        ("Sun, 15 Nov 2026 24:50:16 GMT", None),
        ("Sun, 15 Nov 2026 02:50:16 UTC", None),
        ("Sun, 15 Nov 2026 02:50:16 GMT ", None),
        ("Sun, \u0661\u0665 Nov 2026 02:50:16 GMT", None),
        ("2026-11-15T02:50:16Z", None),
        ("", None),
    ],
)
def test_http_dates(written: str, seconds: int | None) -> None:
    assert http_date(written) == (None if seconds is None else seconds * TICKS_PER_SECOND)


@pytest.mark.parametrize("date", [None, "", "yesterday", "x" * 1000])
def test_a_request_needs_a_date(date: str | None) -> None:
    headers = {} if date is None else {"x-ms-date": date}
    stamped = "" if date is None else f"x-ms-date:{date}\n"
    made = signed(lines() + stamped + PATH, headers)
    assert code(verify(made, [KEY], NOW)) == "AuthenticationFailed"


# Order of header names


ORDER = "!#$%&*.^_`|~+0123456789abcdefghijklmnopqrstuvwxyz"


def compared(first: str, second: str) -> int:
    """States the rule directly, one character at a time."""
    letters = [[ORDER.index(one) for one in name if one in ORDER] for name in (first, second)]
    if letters[0] != letters[1]:
        return -1 if letters[0] < letters[1] else 1
    for one, other in zip(first, second, strict=False):
        ranks = ["'-".find(character) for character in (one, other)]
        if ranks[0] != ranks[1]:
            return -1 if ranks[0] < ranks[1] else 1
    return len(first) - len(second)


@pytest.mark.parametrize(
    "names",
    [
        [],
        ["x-ms-date"],
        ["x-ms-client-request-id", "x-ms-date", "x-ms-range", "x-ms-version"],
        ["x-ms-meta-ab", "x-ms-meta-a-c"],
        ["x-ms-meta-a_b", "x-ms-meta-a1"],
        ["x-ms-meta-a", "x-ms-meta-a-", "x-ms-meta-a-b"],
        ["x-ms-meta-ab", "x-ms-meta-ab'", "x-ms-meta-ab-", "x-ms-meta-a'b", "x-ms-meta-a-b"],
        ["x-ms-meta-foo", "x-ms-meta-foo_bar", "x-ms-meta-fooz"],
        ["x-ms-meta-a~", "x-ms-meta-a+", "x-ms-meta-a0", "x-ms-meta-a9", "x-ms-meta-aa"],
    ],
)
def test_header_order(names: list[str]) -> None:
    assert header_order(names[::-1]) == names
    assert header_order(names) == names


@given(st.lists(st.text("ab01-'_+~", max_size=6).map("x-ms-".__add__), unique=True, max_size=8))
def test_header_order_is_the_rule(names: list[str]) -> None:
    assert header_order(names) == sorted(names, key=cmp_to_key(compared))


# Keys


@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 200])
def test_prepared_keys_sign_as_hmac_does(length: int) -> None:
    secret = bytes(range(length))
    for message in (b"", b"message", b"x" * 5000):
        encoded = base64.b64encode(secret).decode()
        assert AccountKey(secret).signature(message) == sign(message.decode(), encoded).encode()


def test_repr_of_a_key_hides_it() -> None:
    assert KEY_TEXT not in repr(KEY)
    with pytest.raises(ValueError, match="not valid base64") as caught:
        AccountKey.from_base64("secret!")
    assert "secret" not in str(caught.value)


def test_errors_contain_the_string_to_sign_and_no_secret() -> None:
    secrets = {
        "x-ms-encryption-key": "customer-key",
        "x-ms-lease-id": "00000000-1111",
        "x-ms-copy-source-authorization": "Bearer token",
    }
    made = request(
        target=f"/{ACCOUNT}/q?popreceipt=receipt&sig=token-signature&comp=list",
        headers={**STAMPED, **secrets, "Authorization": f"SharedKey {ACCOUNT}:{sign('')}"},
    )
    refusal = verify(made, [KEY], NOW)
    assert refusal is not None
    detail = str(refusal.facts["AuthenticationErrorDetail"])
    assert DATE in detail
    assert "comp:list" in detail
    for secret in (
        *secrets.values(),
        "=receipt",
        ":receipt",
        "token-signature",
        KEY_TEXT,
        sign(""),
    ):
        assert secret not in detail
    for string in strings_to_sign(made, lite=False):
        assert sign(string) not in detail


# Arbitrary input

ANY_TEXT = st.binary(max_size=60).map(text)
NAMES = st.sampled_from(
    [*sorted(STANDARD), "x-ms-date", "x-ms-meta-a", "x-ms-meta-a-b", "x-ms-", "Host"]
)


@settings(max_examples=300)
@given(
    st.sampled_from(["blob", "queue", "table", "file", "dfs"]),
    ANY_TEXT,
    ANY_TEXT,
    st.one_of(ANY_TEXT, st.just(ACCOUNT), st.just(f"{ACCOUNT}-secondary")),
    ANY_TEXT,
    st.lists(st.tuples(st.one_of(NAMES, ANY_TEXT), st.one_of(ANY_TEXT, st.just(DATE)))),
    st.one_of(
        ANY_TEXT,
        ANY_TEXT.map("SharedKey ".__add__),
        st.sampled_from(["SharedKey", "sharedkeylite"]).map(f"{{}} {ACCOUNT}:c2ln".format),
    ),
)
def test_arbitrary_input_is_refused(
    service: str,
    method: str,
    host: str,
    account: str,
    query: str,
    headers: list[tuple[str, str]],
    authorization: str,
) -> None:
    path = f"/{account}/{quote(query.encode('utf-8', 'surrogateescape'))}{host}"
    made = RestRequest(
        service,
        method,
        address(host, path),
        path,
        query,
        {**dict(headers), "x-ms-date": DATE, "authorization": authorization},
    )
    assert code(verify(made, [KEY, OTHER_KEY], NOW)) in {
        "AuthenticationFailed",
        "InvalidAuthenticationInfo",
    }
    assert not re.search("[\ud800-\udfff]", str(verify(made, [KEY], NOW)))
