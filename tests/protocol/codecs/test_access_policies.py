"""Stored access policies as XML: literal documents, refusals and round trips."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etagere.auth.sas import iso_time
from etagere.errors import ERRORS, Refusal
from etagere.model.service import AccessPolicy, SignedIdentifier
from etagere.protocol.codecs.access_policies import decode, encode

DOCUMENT = (
    b'<?xml version="1.0" encoding="utf-8"?>'
    b"<SignedIdentifiers>"
    b"<SignedIdentifier>"
    b"<Id>policy-1</Id>"
    b"<AccessPolicy>"
    b"<Start>2024-01-05T10:00:00.0000000Z</Start>"
    b"<Expiry>2024-02-05T00:00:00.0000000Z</Expiry>"
    b"<Permission>rwd</Permission>"
    b"</AccessPolicy>"
    b"</SignedIdentifier>"
    b"<SignedIdentifier>"
    b"<Id>&lt;2&gt;</Id>"
    b"</SignedIdentifier>"
    b"</SignedIdentifiers>"
)
IDENTIFIERS = (
    SignedIdentifier("policy-1", AccessPolicy("2024-01-05T10:00:00.0000000Z", "2024-02-05", "rwd")),
    SignedIdentifier("<2>"),
)
EMPTY = b'<?xml version="1.0" encoding="utf-8"?><SignedIdentifiers />'


def test_golden() -> None:
    assert encode(IDENTIFIERS) == DOCUMENT
    assert decode(DOCUMENT.replace(b"T00:00:00.0000000Z", b""), "blob") == IDENTIFIERS
    assert encode(()) == EMPTY


@pytest.mark.parametrize("body", [b"", EMPTY, b"<SignedIdentifiers>\n</SignedIdentifiers>"])
def test_an_empty_document_clears_the_policies(body: bytes) -> None:
    assert decode(body, "blob") == ()


def test_empty_elements_are_absent() -> None:
    body = one("<AccessPolicy><Start/><Expiry> </Expiry><Permission></Permission></AccessPolicy>")
    assert decode(body, "blob") == (SignedIdentifier("a"),)
    assert decode(one(""), "blob") == (SignedIdentifier("a"),)


def one(content: str, id_element: str = "<Id>a</Id>") -> bytes:
    return (
        f"<SignedIdentifiers><SignedIdentifier>{id_element}{content}</SignedIdentifier>"
        f"</SignedIdentifiers>"
    ).encode()


def policy(**nodes: str) -> bytes:
    content = "".join(f"<{name}>{text}</{name}>" for name, text in nodes.items())
    return one(f"<AccessPolicy>{content}</AccessPolicy>")


@pytest.mark.parametrize(
    ("service", "permission", "good"),
    [
        ("blob", "racwdxyltmeiopf", True),
        ("blob", "dr", True),
        ("blob", "u", False),
        ("blob", "rr", False),
        ("blob", "R", False),
        ("queue", "raup", True),
        ("queue", "w", False),
        ("table", "raud", True),
        ("table", "p", False),
        ("file", "rcwdl", True),
        ("file", "a", False),
    ],
)
def test_permissions(service: str, permission: str, good: bool) -> None:
    expected: object = Refusal(
        "InvalidXmlNodeValue", {"XmlNodeName": "Permission", "XmlNodeValue": permission}
    )
    if good:
        expected = (SignedIdentifier("a", AccessPolicy(permission=permission)),)
    assert decode(policy(Permission=permission), service) == expected


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("2024-01-05", True),
        ("2024-01-05T10:00Z", True),
        ("2024-01-05T10:00:00Z", True),
        ("2024-01-05T10:00:00.1Z", True),
        ("2024-01-05T10:00:00.1234567Z", True),
        ("2024-01-05T10:00:00.12345678Z", False),
        ("2024-01-05T10:00:00+01:00", False),
        ("2024-02-30", False),
        ("2024-13-01", False),
        ("Fri, 05 Jan 2024 10:00:00 GMT", False),
        ("soon", False),
    ],
)
def test_times(text: str, good: bool) -> None:
    for name in ("Start", "Expiry"):
        expected: object = Refusal(
            "InvalidXmlNodeValue", {"XmlNodeName": name, "XmlNodeValue": text}
        )
        if good:
            expected = (SignedIdentifier("a", AccessPolicy(**{name.lower(): text})),)
        assert decode(policy(**{name: text}), "blob") == expected


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"<Other />", "InvalidXmlDocument"),
        (b"<SignedIdentifiers>", "InvalidXmlDocument"),
        (b"<SignedIdentifiers><Other /></SignedIdentifiers>", "UnsupportedXmlNode"),
        (one("", ""), "MissingRequiredXmlNode"),
        (one("", "<Id />"), "InvalidXmlNodeValue"),
        (one("", f"<Id>{'é' * 64}</Id>"), None),
        (one("", f"<Id>{'a' * 65}</Id>"), "InvalidXmlNodeValue"),
        (one("", "<Id>a</Id><Id>b</Id>"), "InvalidXmlDocument"),
        (one("", "<Id><a /></Id>"), "InvalidXmlDocument"),
        (one("<Other />"), "UnsupportedXmlNode"),
        (one("<AccessPolicy><Other /></AccessPolicy>"), "UnsupportedXmlNode"),
        (encode([SignedIdentifier(str(number)) for number in range(5)]), None),
        (encode([SignedIdentifier(str(number)) for number in range(6)]), "InvalidXmlDocument"),
        (encode([SignedIdentifier("a"), SignedIdentifier("a")]), "InvalidXmlDocument"),
        (encode([SignedIdentifier("a"), SignedIdentifier("A")]), None),
    ],
)
def test_refusals(body: bytes, code: str | None) -> None:
    result = decode(body, "blob")
    assert (result.code if isinstance(result, Refusal) else None) == code


CHARACTERS = st.characters(
    min_codepoint=32, exclude_characters="\ufffe\uffff", exclude_categories=["Cs"]
)
IDS = st.text(CHARACTERS, min_size=1, max_size=64)
TIMES = st.none() | st.datetimes().map(lambda moment: f"{moment.isoformat(timespec='seconds')}Z")
POLICIES = st.builds(
    AccessPolicy,
    start=TIMES,
    expiry=TIMES,
    permission=st.none()
    | st.text(alphabet="raup", min_size=1).map(lambda text: "".join(set(text))),
)


@given(
    st.lists(
        st.builds(SignedIdentifier, IDS, POLICIES),
        max_size=5,
        unique_by=lambda identifier: identifier.id,
    )
)
def test_round_trip(identifiers: list[SignedIdentifier]) -> None:
    """Except for the digits of times, which are always written out."""
    encoded = encode(identifiers)
    read = decode(encoded, "queue")
    assert isinstance(read, tuple)
    assert encode(read) == encoded
    for result, given_ in zip(read, identifiers, strict=True):
        assert (result.id, result.policy.permission) == (given_.id, given_.policy.permission)
        assert _ticks(result.policy) == _ticks(given_.policy)


def _ticks(policy: AccessPolicy) -> list[int | None]:
    return [iso_time(time) if time else None for time in (policy.start, policy.expiry)]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("2024-02-05", "2024-02-05T00:00:00.0000000Z"),
        ("2024-02-05T10:11Z", "2024-02-05T10:11:00.0000000Z"),
        ("2024-02-05T10:11:12Z", "2024-02-05T10:11:12.0000000Z"),
        ("2024-02-05T10:11:12.5Z", "2024-02-05T10:11:12.5000000Z"),
        ("2024-02-05T10:11:12.1234567Z", "2024-02-05T10:11:12.1234567Z"),
    ],
)
def test_times_are_written_with_all_digits(written: str, expected: str) -> None:
    shown = encode((SignedIdentifier("a", AccessPolicy(written, written, "r")),)).decode()
    assert f"<Start>{expected}</Start><Expiry>{expected}</Expiry>" in shown


def test_too_many_policies() -> None:
    body = "<SignedIdentifiers>" + "".join(
        f"<SignedIdentifier><Id>{number}</Id></SignedIdentifier>" for number in range(6)
    )
    refusal = decode(f"{body}</SignedIdentifiers>".encode(), "table")
    assert isinstance(refusal, Refusal)
    assert refusal.code == "InvalidXmlDocument"
    assert list(refusal.facts) == ["LineNumber", "LinePosition", "Reason"]


NAMES = ["SignedIdentifiers", "SignedIdentifier", "Id", "AccessPolicy", "Start", "Permission"]
TREES = st.recursive(
    st.sampled_from(["", "a", "rw", "2024-01-05", "&amp;", "&x;"]),
    lambda inner: st.tuples(st.sampled_from(NAMES), st.lists(inner, max_size=3)).map(
        lambda pair: f"<{pair[0]}>{''.join(pair[1])}</{pair[0]}>"
    ),
    max_leaves=8,
)


@given(TREES)
def test_arbitrary_trees(content: str) -> None:
    result = decode(f"<SignedIdentifiers>{content}</SignedIdentifiers>".encode(), "file")
    if isinstance(result, Refusal):
        assert ERRORS[result.code].status == 400
