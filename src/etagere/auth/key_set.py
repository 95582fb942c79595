"""Sets of public keys that verify the signatures of bearer tokens (RFC 7517).

A key verifies only the algorithms of its type, and only the one that it names if it names one. So a
token cannot choose how it is verified: a public key is never the secret of an HMAC. Keys of other
types, keys for encryption and keys that are too small are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from jwt.exceptions import PyJWTError

KEY_SET_BYTES_MAX: Final = 1 << 20
KEYS_MAX: Final = 128
_RSA_BITS_MIN, _RSA_BITS_MAX = 2_048, 8_192
_KEY_ID_CHARACTERS_MAX: Final = 512

_RSA: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_CURVES: Final = {
    "secp256r1": frozenset({"ES256"}),
    "secp384r1": frozenset({"ES384"}),
    "secp521r1": frozenset({"ES512"}),
}
_ED25519: Final = frozenset({"EdDSA"})

PublicKey = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey


class VerificationKey(NamedTuple):
    """A public key, and the algorithms whose signatures it verifies."""

    key: PublicKey
    algorithms: frozenset[str]


class KeySet:
    """The keys of an issuer by key id."""

    def __init__(self, keys: Mapping[str, VerificationKey]) -> None:
        self._keys = dict(keys)

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, key_id: str | None) -> VerificationKey | None:
        """Returns the key with an id. A token without a key id is verified with the only key, if
        there is only one."""
        if key_id is not None:
            return self._keys.get(key_id)
        return next(iter(self._keys.values())) if len(self._keys) == 1 else None


class BadKeySet(ValueError):
    """The text is not a usable set of keys."""


class _Jwk(msgspec.Struct):
    """The members of a JSON Web Key that matter for verification; not those of private keys."""

    kty: str = ""
    kid: str = ""
    use: str = "sig"
    key_ops: tuple[str, ...] = ("verify",)
    alg: str = ""
    crv: str = ""
    n: str = ""
    e: str = ""
    x: str = ""
    y: str = ""


class _Jwks(msgspec.Struct):
    keys: list[dict[str, Any]]


def parse_key_set(text: bytes) -> KeySet:
    """Parses a JSON Web Key Set; raises `BadKeySet`. Of two keys with the same id, the first
    counts."""
    if len(text) > KEY_SET_BYTES_MAX:
        raise BadKeySet(f"has more than {KEY_SET_BYTES_MAX} bytes")
    try:
        listed = msgspec.json.decode(text, type=_Jwks).keys
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BadKeySet("is not a JSON Web Key Set") from None
    if len(listed) > KEYS_MAX:
        raise BadKeySet(f"has more than {KEYS_MAX} keys")
    keys: dict[str, VerificationKey] = {}
    for members in listed:
        try:
            jwk = msgspec.convert(members, _Jwk)
        except msgspec.ValidationError:
            continue
        key = _usable(jwk)
        if key is not None and len(jwk.kid) <= _KEY_ID_CHARACTERS_MAX:
            keys.setdefault(jwk.kid, key)
    if not keys:
        raise BadKeySet("has no key that verifies signatures of tokens")
    return KeySet(keys)


def _usable(jwk: _Jwk) -> VerificationKey | None:
    if jwk.use != "sig" or "verify" not in jwk.key_ops:
        return None
    try:
        key = _public_key(jwk)
    except (PyJWTError, ValueError, TypeError):
        return None
    algorithms = _algorithms_of(key)
    if jwk.alg:
        algorithms &= {jwk.alg}
    return VerificationKey(key, algorithms) if key is not None and algorithms else None


def _public_key(jwk: _Jwk) -> PublicKey | None:
    key: object = None
    if jwk.kty == "RSA":
        key = RSAAlgorithm.from_jwk({"kty": "RSA", "n": jwk.n, "e": jwk.e})
    elif jwk.kty == "EC":
        key = ECAlgorithm.from_jwk({"kty": "EC", "crv": jwk.crv, "x": jwk.x, "y": jwk.y})
    elif jwk.kty == "OKP":
        key = OKPAlgorithm.from_jwk({"kty": "OKP", "crv": jwk.crv, "x": jwk.x})
    is_public = isinstance(key, RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey)
    return key if is_public else None  # type: ignore[return-value]


def _algorithms_of(key: PublicKey | None) -> frozenset[str]:
    if isinstance(key, RSAPublicKey) and _RSA_BITS_MIN <= key.key_size <= _RSA_BITS_MAX:
        return _RSA
    if isinstance(key, EllipticCurvePublicKey):
        return _CURVES.get(key.curve.name, frozenset())
    return _ED25519 if isinstance(key, Ed25519PublicKey) else frozenset()
