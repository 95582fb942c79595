"""User delegation keys in XML."""

from __future__ import annotations

import pytest

from etagere.auth.sas import DelegationKey, iso_time
from etagere.errors import Refusal
from etagere.protocol.codecs.delegation_keys import KeyInfo, decode, encode

NEW, OLD = "2026-10-06", "2023-08-03"
EXPIRY = "<Expiry>2030-01-02T03:04:05Z</Expiry>"
AT = iso_time("2030-01-02T03:04:05Z") or 0
START = iso_time("2030-01-01") or 0


def key_info(content: str) -> bytes:
    return f'<?xml version="1.0" encoding="utf-8"?><KeyInfo>{content}</KeyInfo>'.encode()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (EXPIRY, KeyInfo(None, AT, "")),
        (f"<Start>2030-01-01</Start>{EXPIRY}", KeyInfo(START, AT, "")),
        (f"<Start />{EXPIRY}", KeyInfo(None, AT, "")),
        (f"{EXPIRY}<Start> 2030-01-01T00:00Z\n</Start>", KeyInfo(START, AT, "")),
        (f"{EXPIRY}<DelegatedUserTid>t-1</DelegatedUserTid>", KeyInfo(None, AT, "t-1")),
        ("", "MissingRequiredXmlNode"),
        ("<Start>2030-01-01</Start>", "MissingRequiredXmlNode"),
        ("<Expiry></Expiry>", "InvalidXmlNodeValue"),
        ("<Expiry>tomorrow</Expiry>", "InvalidXmlNodeValue"),
        ("<Expiry>2030-02-30</Expiry>", "InvalidXmlNodeValue"),
        (f"<Start>now</Start>{EXPIRY}", "InvalidXmlNodeValue"),
        (f"{EXPIRY}<DelegatedUserTid>a&#10;b</DelegatedUserTid>", "InvalidXmlNodeValue"),
        (f"{EXPIRY}<DelegatedUserTid>{'t' * 129}</DelegatedUserTid>", "InvalidXmlNodeValue"),
        (f"{EXPIRY}<DelegatedUserTid />", KeyInfo(None, AT, "")),
        (f"{EXPIRY}{EXPIRY}", "InvalidXmlDocument"),
        (f"{EXPIRY}<Other />", "UnsupportedXmlNode"),
        (f"{EXPIRY}<Start><x /></Start>", "InvalidXmlDocument"),
        (f"{EXPIRY}<Start>", "InvalidXmlDocument"),
    ],
)
def test_decoding(content: str, expected: KeyInfo | str) -> None:
    found = decode(key_info(content), NEW)
    if isinstance(expected, str):
        assert isinstance(found, Refusal)
        assert found.code == expected
    else:
        assert found == expected


def test_older_versions_have_no_other_tenant() -> None:
    found = decode(key_info(f"{EXPIRY}<DelegatedUserTid>t</DelegatedUserTid>"), OLD)
    assert isinstance(found, Refusal)
    assert found.code == "UnsupportedXmlNode"


def test_encoding() -> None:
    key = DelegationKey("oid", "tid", "2030-01-01T00:00:00Z", "2030-01-02T03:04:05Z", "b", NEW, "")
    body = encode(key, b"\xff" * 32).decode()
    assert body.endswith(
        "<UserDelegationKey><SignedOid>oid</SignedOid><SignedTid>tid</SignedTid>"
        "<SignedStart>2030-01-01T00:00:00Z</SignedStart>"
        "<SignedExpiry>2030-01-02T03:04:05Z</SignedExpiry>"
        f"<SignedService>b</SignedService><SignedVersion>{NEW}</SignedVersion>"
        "<Value>//////////////////////////////////////////8=</Value></UserDelegationKey>"
    )
    other = encode(DelegationKey("o", "t", "s", "e", "q", NEW, "du"), b"").decode()
    assert "<SignedDelegatedUserTid>du</SignedDelegatedUserTid>" in other
