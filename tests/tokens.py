"""Bearer tokens for tests, and the directory that issues them."""

from __future__ import annotations

import base64
import json
import time
from functools import cache
from typing import Any, Final, NamedTuple

import jwt
from azure.core.credentials import AccessToken
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

ISSUER: Final = "https://issuer.example.com/tenant/"
AUDIENCE: Final = "https://storage.azure.com"
TENANT: Final = "7b1c3f0a-0a51-4c7b-9d3e-9d9d3f0b7a11"
OBJECT_ID: Final = "5a4c8ad6-0f3b-4bb5-9a8d-0d36f4f4cf2e"

_VALID_SECONDS: Final = 24 * 3600
"""Some tokens are made when tests are collected, long before they are used."""

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


class SigningKey(NamedTuple):
    """A private key of an issuer."""

    id: str
    private: PrivateKey
    algorithm: str

    def public(self, **members: object) -> dict[str, Any]:
        """Returns the public key as a JSON Web Key; a member that is None is left out."""
        public = self.private.public_key()
        if isinstance(public, rsa.RSAPublicKey):
            jwk = RSAAlgorithm.to_jwk(public, as_dict=True)
        elif isinstance(public, ec.EllipticCurvePublicKey):
            jwk = ECAlgorithm.to_jwk(public, as_dict=True)
        else:
            jwk = OKPAlgorithm.to_jwk(public, as_dict=True)
        jwk = {**jwk, "kid": self.id, "use": "sig", **members}
        return {name: value for name, value in jwk.items() if value is not None}


@cache
def rsa_key(key_id: str, bits: int = 2048, algorithm: str = "RS256") -> SigningKey:
    return SigningKey(key_id, rsa.generate_private_key(65_537, bits), algorithm)


_CURVES: Final = {
    "ES256": ec.SECP256R1(),
    "ES384": ec.SECP384R1(),
    "ES512": ec.SECP521R1(),
    "ES256K": ec.SECP256K1(),
}


@cache
def ec_key(key_id: str, algorithm: str = "ES256") -> SigningKey:
    return SigningKey(key_id, ec.generate_private_key(_CURVES[algorithm]), algorithm)


@cache
def ed25519_key(key_id: str) -> SigningKey:
    return SigningKey(key_id, ed25519.Ed25519PrivateKey.generate(), "EdDSA")


def key_set(*keys: SigningKey | dict[str, Any]) -> bytes:
    """Returns a JSON Web Key Set."""
    listed = [key.public() if isinstance(key, SigningKey) else key for key in keys]
    return json.dumps({"keys": listed}).encode()


def claims(**changes: object) -> dict[str, Any]:
    """Returns the claims of a valid token, with changes; a claim that is None is left out."""
    now = int(time.time())
    usual: dict[str, Any] = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "iat": now,
        "nbf": now,
        "exp": now + _VALID_SECONDS,
        "oid": OBJECT_ID,
        "tid": TENANT,
    }
    return {name: value for name, value in {**usual, **changes}.items() if value is not None}


def signed(key: SigningKey, headers: dict[str, Any] | None = None, /, **changes: object) -> str:
    """Returns a token. `headers` are added to or, if they are None, removed from the usual ones."""
    all_headers = {"kid": key.id, **(headers or {})}
    named = {name: value for name, value in all_headers.items() if value is not None}
    return jwt.encode(claims(**changes), key.private, algorithm=key.algorithm, headers=named)


def unsigned(**changes: object) -> str:
    return compact({"alg": "none", "typ": "JWT"}, claims(**changes))


def compact(header: object, payload: object, signature: bytes = b"") -> str:
    """Returns a token of any contents."""
    parts = (json.dumps(header).encode(), json.dumps(payload).encode(), signature)
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


class StaticCredential:
    """A credential for the SDKs that always has the same token."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.requested: list[tuple[tuple[str, ...], dict[str, Any]]] = []
        """The scopes and options of each request for a token."""

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        self.requested.append((scopes, options))
        return AccessToken(self.token, int(time.time()) + 3600)
