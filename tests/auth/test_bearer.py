"""Verification of bearer tokens: what is accepted, and all that is refused."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from etagere.auth.bearer import (
    CLOCK_SKEW_SECONDS,
    STORAGE_APPLICATION,
    TOKEN_CHARACTERS_MAX,
    Claims,
    check_audience,
    check_plausible_audience,
    check_time,
    parse,
    verify,
)
from etagere.auth.challenges import (
    BearerChallenge,
    TokenFault,
    challenge,
    check_authorization,
    is_bearer,
    refuse_bearer,
)
from etagere.auth.key_set import KeySet, parse_key_set
from etagere.errors import http_status
from tests.tokens import (
    ISSUER,
    OBJECT_ID,
    SigningKey,
    claims,
    compact,
    ec_key,
    ed25519_key,
    key_set,
    rsa_key,
    signed,
    unsigned,
)

KEYS = parse_key_set(
    key_set(
        rsa_key("rsa"),
        rsa_key("other"),
        rsa_key("rs256").public(alg="RS256"),
        ec_key("p256"),
        ec_key("p384", "ES384"),
        ec_key("p521", "ES512"),
        ed25519_key("ed"),
    )
)
ISSUERS = (ISSUER, "https://other.example.com")


def verified(token: str, keys: KeySet = KEYS) -> Claims | TokenFault:
    return verify(token, keys, ISSUERS)


def using(key: SigningKey, algorithm: str) -> SigningKey:
    return key._replace(algorithm=algorithm)


# Accepted


@pytest.mark.parametrize(
    "key",
    [
        *(
            using(rsa_key("rsa"), name)
            for name in ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
        ),
        rsa_key("rs256"),
        ec_key("p256"),
        ec_key("p384", "ES384"),
        ec_key("p521", "ES512"),
        ed25519_key("ed"),
    ],
    ids=lambda key: f"{key.algorithm} {key.id}",
)
def test_tokens_of_every_algorithm(key: SigningKey) -> None:
    found = verified(signed(key))
    assert isinstance(found, Claims)
    assert (found.iss, found.oid) == (ISSUER, OBJECT_ID)
    signature = "A" * 86
    assert verified(f"{signed(key).rpartition('.')[0]}.{signature}") is TokenFault.SIGNATURE


@pytest.mark.parametrize(
    "headers",
    [
        {"typ": "at+jwt"},
        {"typ": "application/AT+JWT"},
        {"typ": "jwt"},
        {"x5t": "x", "nonce": "n"},
    ],
)
def test_harmless_headers(headers: dict[str, Any]) -> None:
    assert isinstance(verified(signed(ed25519_key("ed"), headers)), Claims)


def test_every_configured_issuer() -> None:
    for issuer in ISSUERS:
        assert isinstance(verified(signed(ed25519_key("ed"), iss=issuer)), Claims)


# Refused


def hmac_signed(secret: bytes, header: dict[str, Any]) -> str:
    """Returns a token that is signed with a secret: algorithm confusion if it is a public key."""
    signing_input = compact(header, claims()).rpartition(".")[0]
    digest = {"HS256": "sha256", "HS384": "sha384", "HS512": "sha512"}[header["alg"]]
    mac = hmac.new(secret, signing_input.encode(), getattr(hashlib, digest)).digest()
    return f"{signing_input}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}"


def pem(key: SigningKey) -> bytes:
    return key.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


RSA, ED = rsa_key("rsa"), ed25519_key("ed")
RSA_INPUT, _, RSA_SIGNATURE = signed(RSA).rpartition(".")
OTHERS_CLAIMS = signed(RSA, oid="other").split(".")[1]
REFUSED: dict[str, tuple[str, TokenFault]] = {
    "alg none": (unsigned(), TokenFault.UNKNOWN_KEY),
    **{
        f"alg {alg} with a key id": (
            compact({"alg": alg, "kid": "rsa"}, claims()),
            TokenFault.ALGORITHM,
        )
        for alg in ("none", "None", "NONE", "nOnE", "", "RS255", "rs256", "ES256K")
    },
    "alg none with a signature": (
        compact({"alg": "none", "kid": "rsa"}, claims(), b"signature"),
        TokenFault.ALGORITHM,
    ),
    "no alg": (compact({"kid": "rsa"}, claims()), TokenFault.MALFORMED),
    "alg that is no text": (
        compact({"kid": "rsa", "alg": ["RS256"]}, claims()),
        TokenFault.MALFORMED,
    ),
    **{
        f"public key as secret, {alg}, {form}": (
            hmac_signed(secret, {"alg": alg, "kid": "rsa", "typ": "JWT"}),
            TokenFault.ALGORITHM,
        )
        for alg in ("HS256", "HS384", "HS512")
        for form, secret in (("PEM", pem(RSA)), ("modulus", RSA.public()["n"].encode()))
    },
    "empty secret": (hmac_signed(b"", {"alg": "HS256", "kid": "rsa"}), TokenFault.ALGORITHM),
    "key of another type": (signed(ED, {"kid": "rsa"}), TokenFault.ALGORITHM),
    "key of another curve": (
        signed(ec_key("p256"), {"kid": "p384"}),
        TokenFault.ALGORITHM,
    ),
    "algorithm that the key does not name": (
        signed(using(rsa_key("rs256"), "RS512")),
        TokenFault.ALGORITHM,
    ),
    "key id of another key": (signed(RSA, {"kid": "other"}), TokenFault.SIGNATURE),
    "key of somebody else": (signed(rsa_key("mallory"), {"kid": "rsa"}), TokenFault.SIGNATURE),
    "unknown key": (signed(rsa_key("mallory")), TokenFault.UNKNOWN_KEY),
    "no key id": (signed(RSA, {"kid": None}), TokenFault.UNKNOWN_KEY),
    "key id that is no text": (
        compact({"alg": "RS256", "kid": 1}, claims()),
        TokenFault.MALFORMED,
    ),
    "key id like a path": (signed(RSA, {"kid": "../../dev/null"}), TokenFault.UNKNOWN_KEY),
    **{
        f"header {name}": (signed(RSA, {name: value}), TokenFault.MALFORMED)
        for name, value in (
            ("jku", "https://mallory.example.com/keys"),
            ("x5u", "https://mallory.example.com/certificate"),
            ("jwk", rsa_key("mallory").public()),
            ("zip", "DEF"),
            ("enc", "A128GCM"),
        )
    },
    "header crit": (
        compact({"alg": "RS256", "kid": "rsa", "crit": ["exp"], "exp": 1}, claims()),
        TokenFault.MALFORMED,
    ),
    "header b64": (
        compact({"alg": "RS256", "kid": "rsa", "crit": ["b64"], "b64": False}, claims()),
        TokenFault.MALFORMED,
    ),
    "other type": (signed(RSA, {"typ": "logout+jwt"}), TokenFault.MALFORMED),
    "type that is no text": (
        compact({"alg": "RS256", "kid": "rsa", "typ": 1}, claims()),
        TokenFault.MALFORMED,
    ),
    "claims of another token": (
        f"{RSA_INPUT.split('.')[0]}.{OTHERS_CLAIMS}.{RSA_SIGNATURE}",
        TokenFault.SIGNATURE,
    ),
    "no signature": (f"{RSA_INPUT}.", TokenFault.SIGNATURE),
    "short signature": (f"{RSA_INPUT}.{RSA_SIGNATURE[:340]}", TokenFault.SIGNATURE),
    "wrong issuer": (signed(RSA, iss="https://mallory.example.com/"), TokenFault.ISSUER),
    "issuer with another slash": (signed(RSA, iss=ISSUER.rstrip("/")), TokenFault.ISSUER),
    "issuer in capitals": (signed(RSA, iss=ISSUER.upper()), TokenFault.ISSUER),
    "no issuer": (signed(RSA, iss=None), TokenFault.ISSUER),
    "issuers": (
        compact({"alg": "RS256", "kid": "rsa"}, claims(iss=[ISSUER])),
        TokenFault.SIGNATURE,
    ),
    "no expiration": (signed(RSA, exp=None), TokenFault.NO_EXPIRATION),
    "oversized": (signed(RSA, x="x" * TOKEN_CHARACTERS_MAX), TokenFault.MALFORMED),
}


@pytest.mark.parametrize(("token", "fault"), REFUSED.values(), ids=REFUSED)
def test_unacceptable_tokens(token: str, fault: TokenFault) -> None:
    assert verified(token) is fault


def raw_token(payload: bytes) -> str:
    """Returns a token with a valid signature of any payload."""
    import jwt  # noqa: PLC0415

    return jwt.PyJWS().encode(payload, ED.private, "EdDSA", {"kid": "ed"})


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"null",
        b"[]",
        b'"text"',
        b"{",
        b"\xff",
        b"[" * 10_000,
        b'{"x":' * 2_000,
        b'{"exp": "9999999999"}',
        b'{"exp": true}',
        b'{"exp": NaN}',
        b'{"exp": Infinity}',
        b'{"exp": 1e400}',
        b'{"exp": [9999999999]}',
        b'{"exp": 9999999999, "nbf": "0"}',
        b'{"exp": 9999999999, "iss": ["a"]}',
        b'{"exp": 9999999999, "aud": 1}',
        b'{"exp": 9999999999, "aud": [1]}',
        b'{"exp": 9999999999, "roles": {"a": 1}}',
        b'{"exp": 9999999999, "oid": 1}',
    ],
    ids=lambda payload: payload[:40].decode("latin-1"),
)
def test_signed_payloads_that_are_no_claims(payload: bytes) -> None:
    assert verified(raw_token(payload)) is TokenFault.MALFORMED


@pytest.mark.parametrize(
    "token",
    [
        "",
        ".",
        "..",
        "a.b",
        "a.b.c",
        "a.b.c.d",
        "é.b.c",
        "YOU SHALL NOT PASS",
        "e30.e30.",
        f"{signed(ED)}.",
        f"{signed(ED)}.e30.e30",
        f" {signed(ED)}",
        signed(ED).replace(".", " ."),
        f"W10.{signed(ED).partition('.')[2]}",
        f"bnVsbA.{signed(ED).partition('.')[2]}",
        base64.urlsafe_b64encode(b"[" * 9_000).decode() + ".e30.",
    ],
)
def test_texts_that_are_no_tokens(token: str) -> None:
    assert verified(token) is TokenFault.MALFORMED
    assert parse(token) is TokenFault.MALFORMED


def test_the_only_key_verifies_tokens_without_a_key_id() -> None:
    only = parse_key_set(key_set(ED))
    assert isinstance(verified(signed(ED, {"kid": None}), only), Claims)
    assert verified(unsigned(), only) is TokenFault.ALGORITHM
    assert verified(signed(ED), KeySet({})) is TokenFault.UNKNOWN_KEY


# Development mode


def test_development_mode_accepts_any_signature() -> None:
    for token in (
        unsigned(),
        signed(ED),
        signed(rsa_key("mallory")),
        hmac_signed(b"x", {"alg": "HS256"}),
        compact({"alg": "anything"}, claims(), b"no signature"),
    ):
        found = parse(token)
        assert isinstance(found, Claims)
        assert found.oid == OBJECT_ID


def test_development_mode_refuses_headers_and_claims_alike() -> None:
    assert parse(signed(RSA, {"jku": "https://mallory.example.com"})) is TokenFault.MALFORMED
    assert parse(compact({"alg": "none"}, [])) is TokenFault.MALFORMED
    assert parse(compact({"alg": "none"}, {"exp": "1"})) is TokenFault.MALFORMED
    assert parse(unsigned(x="x" * TOKEN_CHARACTERS_MAX)) is TokenFault.MALFORMED


# Times

NOW = time.time()


@pytest.mark.parametrize("skew", [0, CLOCK_SKEW_SECONDS])
@pytest.mark.parametrize(
    ("expires", "begins", "fault"),
    [
        (1, 0, None),
        (1, None, None),
        (10**400, 0, None),
        (0, 0, TokenFault.EXPIRED),
        (-(10**400), 0, TokenFault.EXPIRED),
        (-1, 1, TokenFault.EXPIRED),
        (100, 1, TokenFault.NOT_YET_VALID),
        (100, 10**400, TokenFault.NOT_YET_VALID),
        (None, 1, TokenFault.NOT_YET_VALID),
        (None, None, None),
    ],
)
def test_times(
    skew: int, expires: int | None, begins: int | None, fault: TokenFault | None
) -> None:
    """Times are relative to the limits of the accepted ones."""
    now = int(NOW)
    token = Claims(
        exp=None if expires is None else now - skew + expires,
        nbf=None if begins is None else now + skew + begins,
    )
    assert check_time(token, now, skew) is fault


# Audiences

AUDIENCES = {
    "https://storage.azure.com": True,
    "https://storage.azure.com/": True,
    STORAGE_APPLICATION: True,
    "https://mine.blob.core.windows.net": True,
    "https://mine.blob.core.windows.net/": True,
    "api://etagere": True,
    "https://storage.azure.com//": False,
    "https://storage.azure.com/x": False,
    "http://storage.azure.com": False,
    "https://STORAGE.azure.com": False,
    "https://yours.blob.core.windows.net": False,
    "https://mine.queue.core.windows.net": False,
    "https://mine.blob.core.windows.net.mallory.example.com": False,
    "https://management.azure.com/": False,
    "api://etagere/": False,
    "": False,
}


@pytest.mark.parametrize(("audience", "accepted"), AUDIENCES.items())
def test_audiences(audience: str, accepted: bool) -> None:
    expected = None if accepted else TokenFault.AUDIENCE
    for aud in (audience, [audience], ["x", audience]):
        assert check_audience(Claims(aud=aud), "blob", "mine", ["api://etagere"]) is expected


def test_tokens_without_an_audience_are_refused() -> None:
    for token in (Claims(), Claims(aud=[]), Claims(aud="")):
        assert check_audience(token, "blob", "mine", []) is TokenFault.AUDIENCE


@pytest.mark.parametrize(
    ("aud", "accepted"),
    [
        (None, True),
        ([], True),
        ("https://storage.azure.com/", True),
        (STORAGE_APPLICATION, True),
        ("https://yours.blob.core.windows.net", True),
        ("https://yours.queue.core.usgovcloudapi.net/", True),
        ("https://yours.blob.localhost:10000", True),
        (["x", "api://etagere"], True),
        ("", False),
        ("x", False),
        ("https://management.azure.com", False),
        ("https://graph.microsoft.com", False),
        ("http://yours.blob.core.windows.net", False),
    ],
)
def test_plausible_audiences(aud: str | list[str] | None, accepted: bool) -> None:
    fault = check_plausible_audience(Claims(aud=aud), ["api://etagere"])
    assert fault is (None if accepted else TokenFault.AUDIENCE)


# Refusals


@pytest.mark.parametrize("fault", TokenFault)
@pytest.mark.parametrize(
    ("service", "before", "since"),
    [
        ("blob", "2019-07-07", "2019-12-12"),
        ("queue", "2019-07-07", "2019-12-12"),
        ("file", "2023-11-03", "2024-11-04"),
        ("table", "2019-07-07", "2020-12-06"),
    ],
)
def test_refusals(service: str, before: str, since: str, fault: TokenFault) -> None:
    challenged = refuse_bearer(service, since, fault)
    assert isinstance(challenged, BearerChallenge)
    assert challenged.code == "InvalidAuthenticationInfo"
    assert challenged.facts["AuthenticationErrorDetail"] == fault.value
    earlier = refuse_bearer(service, before, fault)
    assert not isinstance(earlier, BearerChallenge)
    assert (earlier.code, http_status(earlier.code, service)) == ("AuthenticationFailed", 403)
    assert earlier.facts["AuthenticationErrorDetail"] == fault.value


def test_versions_that_have_tokens() -> None:
    def code(service: str, version: str) -> str:
        refusal = check_authorization(service, version, "Bearer x")
        return "" if refusal is None else refusal.code

    for service in ("blob", "queue", "table"):
        assert code(service, "2017-11-09") == ""
        for version in ("2017-07-29", ""):
            assert code(service, version) == "AuthenticationFailed"
    assert code("file", "2022-11-02") == ""
    assert code("file", "2021-12-02") == "AuthenticationFailed"


@pytest.mark.parametrize("service", ["blob", "queue", "file", "table"])
def test_several_words_are_not_a_token(service: str) -> None:
    """Recorded: a token with spaces is no valid header; a single word is an unusable token."""
    for token, refused in (("x", False), (" x ", False), ("", False), ("x y", service != "table")):
        refusal = check_authorization(service, "2026-10-06", f"Bearer {token}")
        assert (refusal is not None) is refused
        if refusal is not None:
            assert (refusal.code, http_status(refusal.code, service)) == (
                "InvalidAuthenticationInfo",
                400,
            )


def test_the_scheme_is_recognized_in_any_case() -> None:
    assert all(map(is_bearer, ("Bearer x", "bearer x", "BEARER", "Bearer ")))
    assert not any(map(is_bearer, ("SharedKey a:b", "Bearerx", "", " Bearer x", "Basic Bearer")))


def test_the_challenge_is_what_clients_parse() -> None:
    from azure.storage.blob._shared.authentication import (  # noqa: PLC0415
        StorageHttpChallenge,
    )

    text = challenge("https://login.example.com/tenant")
    parsed = StorageHttpChallenge(text)  # type: ignore[no-untyped-call]
    assert parsed.tenant_id == "tenant"
    assert parsed.resource_id == "https://storage.azure.com"
    assert json.dumps(parsed.scheme) == '"Bearer"'


# Hostile tokens

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)
HEADER = st.dictionaries(
    st.sampled_from(["alg", "kid", "typ", "crit", "b64", "jwk", "x5c", "cty", "zip"]),
    JSON | st.sampled_from(["RS256", "EdDSA", "none", "rsa", "ed", "JWT"]),
)
CLAIMS = st.dictionaries(
    st.sampled_from(["iss", "aud", "exp", "nbf", "oid", "roles", "scp", "groups", "tid"]), JSON
)


@settings(max_examples=100, deadline=None)
@given(header=HEADER | JSON, payload=CLAIMS | JSON, signature=st.binary(max_size=64))
def test_no_token_causes_an_error(header: object, payload: object, signature: bytes) -> None:
    token = compact(header, payload, signature)
    assert isinstance(verified(token), TokenFault)
    assert isinstance(parse(token), TokenFault | Claims)


@settings(max_examples=100, deadline=None)
@given(payload=CLAIMS | JSON)
def test_no_signed_claims_cause_an_error(payload: object) -> None:
    found = verified(raw_token(json.dumps(payload).encode()))
    if isinstance(found, Claims):
        check_time(found, NOW, 0)
        check_audience(found, "blob", "mine", [])
        check_plausible_audience(found, [])
        list(found.identities())


@settings(max_examples=100, deadline=None)
@given(token=st.text(max_size=60) | st.text(alphabet="eyJ.-_A=", max_size=60))
def test_no_text_causes_an_error(token: str) -> None:
    assert isinstance(verified(token), TokenFault)
    assert isinstance(parse(token), TokenFault | Claims)
