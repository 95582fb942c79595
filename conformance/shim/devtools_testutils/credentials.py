"""Bearer tokens: invalid ones, and those of a development issuer."""

from __future__ import annotations

import base64
import json
import time
from typing import Any, Final

from azure.core.credentials import AccessToken, AccessTokenInfo

IDENTITY: Final = "00000000-0000-0000-0000-000000000001"
"""The object ID of the caller, and the ID of its tenant."""

_LIFE_SECONDS = 3600


def _encode(part: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")


class DevelopmentCredential:
    """Issues tokens without a signature, for `etagere serve --oauth development`."""

    def get_token(self, *_: str, **__: Any) -> AccessToken:
        now = int(time.time())
        claims = {
            "aud": "https://storage.azure.com",
            "iss": f"https://sts.windows.net/{IDENTITY}/",
            "oid": IDENTITY,
            "sub": IDENTITY,
            "tid": IDENTITY,
            "iat": now,
            "nbf": now,
            "exp": now + _LIFE_SECONDS,
        }
        token = f"{_encode({'alg': 'none', 'typ': 'JWT'})}.{_encode(claims)}."
        return AccessToken(token, now + _LIFE_SECONDS)


class FakeTokenCredential:
    """Issues a string that is not a token."""

    def __init__(self) -> None:
        self.token = AccessToken("YOU SHALL NOT PASS", 0)
        self.get_token_count = 0

    def get_token(self, *_: str, **__: Any) -> AccessToken:
        self.get_token_count += 1
        return self.token


class AsyncCredential:
    """Wraps a credential for asynchronous clients."""

    def __init__(self, credential: DevelopmentCredential | FakeTokenCredential) -> None:
        self._credential = credential

    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        return self._credential.get_token(*scopes, **options)

    async def get_token_info(self, *scopes: str, **_: Any) -> AccessTokenInfo:
        token = self._credential.get_token(*scopes)
        return AccessTokenInfo(token.token, token.expires_on)

    async def close(self) -> None:
        """Does nothing."""

    async def __aenter__(self) -> AsyncCredential:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def get_credential(**options: Any) -> DevelopmentCredential | AsyncCredential:
    credential = DevelopmentCredential()
    return AsyncCredential(credential) if options.get("is_async") else credential
