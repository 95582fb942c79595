"""Key sets: which keys are used, and for which algorithms."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from etagere.auth.key_set import (
    KEY_SET_BYTES_MAX,
    KEYS_MAX,
    BadKeySet,
    parse_key_set,
)
from tests.tokens import SigningKey, ec_key, ed25519_key, key_set, rsa_key

RSA = {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}


@pytest.mark.parametrize(
    ("key", "algorithms"),
    [
        (rsa_key("a"), RSA),
        (ec_key("a"), {"ES256"}),
        (ec_key("a", "ES384"), {"ES384"}),
        (ec_key("a", "ES512"), {"ES512"}),
        (ed25519_key("a"), {"EdDSA"}),
    ],
    ids=["RSA", "P-256", "P-384", "P-521", "Ed25519"],
)
def test_a_key_verifies_the_algorithms_of_its_type(key: SigningKey, algorithms: set[str]) -> None:
    found = parse_key_set(key_set(key)).find("a")
    assert found is not None
    assert found.algorithms == algorithms
    named = parse_key_set(key_set(key.public(alg=key.algorithm))).find("a")
    assert named is not None
    assert named.algorithms == {key.algorithm}


def oct_key(**members: object) -> dict[str, Any]:
    secret = base64.urlsafe_b64encode(b"s" * 32).decode().rstrip("=")
    return {"kty": "oct", "kid": "a", "k": secret, "use": "sig", **members}


UNUSABLE: dict[str, dict[str, Any]] = {
    "a secret": oct_key(),
    "a secret that names an algorithm": oct_key(alg="RS256"),
    "encryption": rsa_key("a").public(use="enc"),
    "signing only": rsa_key("a").public(key_ops=["sign"]),
    "an algorithm of secrets": rsa_key("a").public(alg="HS256"),
    "no algorithm": rsa_key("a").public(alg="none"),
    "an algorithm of another type": ec_key("a").public(alg="RS256"),
    "an algorithm of another curve": ec_key("a").public(alg="ES384"),
    "a short key": rsa_key("a", 1024).public(),
    "another curve": ec_key("a", "ES256K").public(),
    "a point that is not on the curve": ec_key("a").public(y=ec_key("a").public()["x"]),
    "no modulus": rsa_key("a").public(n=None),
    "not base64": rsa_key("a").public(n="!"),
    "no type": rsa_key("a").public(kty=None),
    "a type that is no text": rsa_key("a").public(kty=1),
    "an id that is no text": rsa_key("a").public(kid=1),
    "a long id": rsa_key("a").public(kid="k" * 513),
    "an unknown type": rsa_key("a").public(kty="X"),
}


@pytest.mark.parametrize("key", UNUSABLE.values(), ids=UNUSABLE)
def test_other_keys_are_ignored(key: dict[str, Any]) -> None:
    usable = ec_key("b")
    keys = parse_key_set(key_set(key, usable))
    assert len(keys) == 1
    assert keys.find("a") is None
    with pytest.raises(BadKeySet, match="has no key"):
        parse_key_set(key_set(key))


def test_a_private_key_is_used_as_a_public_one() -> None:
    private = ed25519_key("a").public(d=base64.urlsafe_b64encode(b"d" * 32).decode())
    found = parse_key_set(key_set(private)).find("a")
    assert found is not None
    assert found.key == ed25519_key("a").private.public_key()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b'{"keys": {}}',
        b'{"keys": []}',
        b'{"keys": [1]}',
        b'{"keys": [{}]}',
        b'{"keys": [' + b"[" * 100_000,
        b"\xff",
        key_set(rsa_key("a"))[:-1],
        key_set(*[ec_key("a")] * (KEYS_MAX + 1)),
        json.dumps({"keys": [ec_key("a").public()], "x": "x" * KEY_SET_BYTES_MAX}).encode(),
    ],
)
def test_texts_that_are_no_key_sets(text: bytes) -> None:
    with pytest.raises(BadKeySet):
        parse_key_set(text)


def test_of_two_keys_with_an_id_the_first_counts() -> None:
    first, second = ed25519_key("a"), ec_key("a")
    found = parse_key_set(key_set(first, second)).find("a")
    assert found is not None
    assert found.algorithms == {"EdDSA"}


def test_a_key_is_found_without_an_id_only_if_it_is_the_only_one() -> None:
    one, two = ec_key("a"), ed25519_key("b")
    assert parse_key_set(key_set(one)).find(None) is not None
    assert parse_key_set(key_set(one, two)).find(None) is None
    assert parse_key_set(key_set(one)).find("") is None
