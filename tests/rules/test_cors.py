"""CORS: the documented tables, and consistency of preflights with requests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etagere.errors import Refusal
from etagere.model.service import CorsRule
from etagere.rules.cors import actual, preflight

CONTOSO = "http://www.contoso.com"
FABRIKAM = "http://www.fabrikam.com"
TYPES = ("x-ms-blob-content-type", "x-ms-blob-content-disposition")
# A permissive rule precedes a strict one, which is therefore never used for GET.
RULES = (
    CorsRule((CONTOSO,), ("PUT", "HEAD"), TYPES, ("x-ms-*",), 5),
    CorsRule(("*",), ("PUT", "GET"), TYPES, ("x-ms-*",), 6),
    CorsRule((CONTOSO,), ("GET",), ("x-ms-client-request-id",), ("x-ms-*",), 7),
)


@pytest.mark.parametrize(
    ("method", "origin", "headers", "max_age"),
    [
        ("PUT", CONTOSO, "x-ms-blob-content-type", "5"),
        ("GET", CONTOSO, "x-ms-blob-content-type", "6"),
        ("GET", CONTOSO, "x-ms-client-request-id", None),
        ("HEAD", CONTOSO, "", "5"),
        ("HEAD", FABRIKAM, "", None),
        ("PUT", FABRIKAM, "", "6"),
        ("DELETE", CONTOSO, "", None),
        ("PUT", CONTOSO.upper(), "", "6"),
        ("PUT", CONTOSO, "x-ms-blob-content-type,x-ms-other", None),
        ("PUT", CONTOSO, "X-Ms-Blob-Content-Type , x-ms-blob-content-disposition", "5"),
    ],
)
def test_the_first_matching_rule_decides(
    method: str, origin: str, headers: str, max_age: str | None
) -> None:
    answer = preflight(RULES, origin, method, headers)
    if isinstance(answer, Refusal):
        assert answer.code == "CorsPreflightFailure"
        assert max_age is None
    else:
        assert dict(answer)["Access-Control-Max-Age"] == max_age


def test_the_response_repeats_the_requested_values() -> None:
    assert preflight(RULES, FABRIKAM, "PUT", TYPES[0]) == [
        ("Access-Control-Allow-Origin", FABRIKAM),
        ("Access-Control-Allow-Methods", "PUT"),
        ("Access-Control-Allow-Headers", TYPES[0]),
        ("Access-Control-Max-Age", "6"),
        ("Access-Control-Allow-Credentials", "true"),
    ]
    assert preflight(RULES, FABRIKAM, "PUT", None) == [
        ("Access-Control-Allow-Origin", FABRIKAM),
        ("Access-Control-Allow-Methods", "PUT"),
        ("Access-Control-Max-Age", "6"),
        ("Access-Control-Allow-Credentials", "true"),
    ]


@pytest.mark.parametrize(
    ("origin", "method", "missing"),
    [
        (None, "GET", "Origin"),
        ("", "GET", "Origin"),
        (CONTOSO, None, "Access-Control-Request-Method"),
        (CONTOSO, "", "Access-Control-Request-Method"),
        (None, None, "Origin"),
    ],
)
def test_incomplete_preflights(origin: str | None, method: str | None, missing: str) -> None:
    assert preflight(RULES, origin, method, None) == Refusal(
        "InvalidHeaderValue", {"HeaderName": missing}
    )


def test_without_rules_there_is_no_cors() -> None:
    refusal = preflight((), CONTOSO, "GET", None)
    assert isinstance(refusal, Refusal)
    assert refusal.code == "CorsPreflightFailure"
    assert actual((), CONTOSO, "GET", ["ETag"]) == []


@pytest.mark.parametrize(
    ("allowed", "origin", "good"),
    [
        ("*", "http://a.example", True),
        ("*", "null", True),
        ("http://a.example", "http://a.example", True),
        ("http://a.example", "https://a.example", False),
        ("http://a.example", "http://a.example:80", False),
        ("http://a.example", "http://A.example", False),
        ("http://a.example", "http://a.example/", False),
        ("http://a.example", "http://a.example.evil", False),
        ("*.a.example", "http://b.a.example", True),
        ("*.a.example", "https://c.b.a.example", True),
        ("*.a.example", "http://a.example", False),
        ("*.a.example", "http://evil.example/.a.example", False),
        ("*.a.example", "b.a.example", False),
        ("a.example", "http://a.example", False),
        ("http://a.example/path", "http://a.example", False),
        ("http://*.a.example", "http://b.a.example", True),
        ("http://*.a.example", "http://c.b.a.example", True),
        ("http://*.a.example", "http://a.example", False),
        ("http://*.a.example", "http://.a.example", False),
        ("http://*.a.example", "http://ba.example", False),
        ("http://*.a.example", "https://b.a.example", False),
        ("http://*.a.example", "http://evil.example/.a.example", False),
        ("http://*.a.example", "http://evil.example#.a.example", False),
        ("http://*.a.example", "http://u@b.a.example", False),
        ("http://*.a.example", "http://b.a.example:8080", False),
        ("http://*.a.example:8080", "http://b.a.example:8080", True),
        ("http://*.a.example", "http://*.a.example", False),
    ],
)
def test_origins(allowed: str, origin: str, good: bool) -> None:
    rules = (CorsRule(("http://other.example", allowed), ("GET",)),)
    assert isinstance(preflight(rules, origin, "GET", None), list) is good


@pytest.mark.parametrize(
    ("allowed", "asked", "good"),
    [
        ((), "", True),
        ((), "a", False),
        (("a",), "a", True),
        (("a",), "A", True),
        (("A",), "a,a", True),
        (("a",), "ab", False),
        (("a*",), "ab,a", True),
        (("a*",), "ba", False),
        (("*",), "anything,at-all", True),
        (("a", "b*"), "a, bc , b", True),
        (("a", "b*"), "a,c", False),
        (("a",), "a,,", True),
    ],
)
def test_headers(allowed: tuple[str, ...], asked: str, good: bool) -> None:
    rules = (CorsRule(("*",), ("GET",), allowed),)
    assert isinstance(preflight(rules, CONTOSO, "GET", asked), list) is good


@pytest.mark.parametrize(
    ("allowed", "asked", "good"),
    [("PUT", "PUT", True), ("put", "PUT", True), ("PUT", "put", True), ("PUT", "PU", False)],
)
def test_methods(allowed: str, asked: str, good: bool) -> None:
    rules = (CorsRule(("*",), ("GET", allowed)),)
    assert isinstance(preflight(rules, CONTOSO, asked, None), list) is good


# Actual requests

FOR_ALL = (CorsRule(("*",), ("GET", "PUT"), (), ("x-ms-*",)),)
FOR_ONE = (CorsRule((CONTOSO,), ("GET", "PUT"), (), ("x-ms-*",)),)
EXPOSED = ("Access-Control-Expose-Headers", "x-ms-version")
ALL = ("Access-Control-Allow-Origin", "*")
ONE = ("Access-Control-Allow-Origin", CONTOSO)
CREDENTIALS = ("Access-Control-Allow-Credentials", "true")
VARY = ("Vary", "Origin")


@pytest.mark.parametrize(
    ("origin", "method", "rules", "expected"),
    [
        # The documented table of GET and HEAD.
        (None, "GET", (), []),
        (None, "GET", FOR_ONE, [VARY]),
        (None, "GET", FOR_ALL, [EXPOSED, ALL]),
        (CONTOSO, "GET", (), []),
        (CONTOSO, "GET", FOR_ONE, [EXPOSED, ONE, CREDENTIALS, VARY]),
        (FABRIKAM, "GET", FOR_ONE, [VARY]),
        (FABRIKAM, "GET", FOR_ALL, [EXPOSED, ALL]),
        # A method that no rule allows.
        (CONTOSO, "HEAD", FOR_ONE, [VARY]),
        (None, "HEAD", FOR_ALL, [VARY]),
        # Responses that are not cached have no Vary.
        (None, "PUT", FOR_ALL, []),
        (None, "PUT", FOR_ONE, []),
        (CONTOSO, "PUT", FOR_ONE, [EXPOSED, ONE, CREDENTIALS]),
        (FABRIKAM, "PUT", FOR_ONE, []),
        (CONTOSO, "DELETE", FOR_ALL, []),
        # The first rule decides.
        (CONTOSO, "GET", FOR_ALL + FOR_ONE, [EXPOSED, ALL]),
        (CONTOSO, "GET", FOR_ONE + FOR_ALL, [EXPOSED, ONE, CREDENTIALS, VARY]),
        (FABRIKAM, "GET", FOR_ONE + FOR_ALL, [EXPOSED, ALL]),
    ],
)
def test_actual_requests(
    origin: str | None,
    method: str,
    rules: tuple[CorsRule, ...],
    expected: list[tuple[str, str]],
) -> None:
    assert actual(rules, origin, method, ["ETag", "x-ms-version"]) == expected


@pytest.mark.parametrize(
    ("exposed", "expected"),
    [
        ((), None),
        (("x-ms-meta-*",), "x-ms-meta-A,x-ms-meta-b"),
        (("etag",), "ETag"),
        (("Date", "etag"), "ETag,Date"),
        (("*",), "ETag,x-ms-meta-A,x-ms-meta-b,Content-Length"),
        (("*", "Date"), "ETag,x-ms-meta-A,x-ms-meta-b,Content-Length,Date"),
        (("other-*",), None),
    ],
)
def test_exposed_headers(exposed: tuple[str, ...], expected: str | None) -> None:
    rules = (CorsRule(("*",), ("GET",), (), exposed),)
    names = ["ETag", "x-ms-meta-A", "x-ms-meta-b", "Content-Length"]
    headers = dict(actual(rules, CONTOSO, "GET", names))
    assert headers.get("Access-Control-Expose-Headers") == expected


ORIGINS = st.sampled_from(["*", CONTOSO, FABRIKAM, "http://*.contoso.com"])
METHODS = st.sampled_from(["GET", "HEAD", "PUT"])
ANY_RULES = st.lists(
    st.builds(
        CorsRule,
        st.lists(ORIGINS, min_size=1, max_size=2).map(tuple),
        st.lists(METHODS, min_size=1, max_size=2).map(tuple),
    ),
    max_size=5,
)


@given(ANY_RULES, st.sampled_from([CONTOSO, FABRIKAM, "http://other"]), METHODS)
def test_preflight_and_request_agree(rules: list[CorsRule], origin: str, method: str) -> None:
    allowed = isinstance(preflight(rules, origin, method, None), list)
    headers = dict(actual(rules, origin, method, []))
    assert ("Access-Control-Allow-Origin" in headers) is allowed
    # Browsers refuse "*" with credentials, and caches need the Vary header.
    if headers.get("Access-Control-Allow-Origin") == "*":
        assert "Access-Control-Allow-Credentials" not in headers
        assert "Vary" not in headers
    elif rules and method != "PUT":
        assert headers["Vary"] == "Origin"


@given(ANY_RULES, st.text(), st.text(), st.text())
def test_any_preflight(rules: list[CorsRule], origin: str, method: str, headers: str) -> None:
    answer = preflight(rules, origin, method, headers)
    if isinstance(answer, Refusal):
        assert answer.code in {"CorsPreflightFailure", "InvalidHeaderValue"}
