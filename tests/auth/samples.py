"""Requests to verify: recorded from SDKs, or signed here by code other than the code under test."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from etagere.auth.request import RestRequest, address
from etagere.auth.sas import iso_time
from etagere.auth.shared_key import AccountKey, http_date

DATA = Path(__file__).parent.parent / "data"
VECTORS: dict[str, Any] = json.loads((DATA / "signature_vectors.json").read_text("utf-8"))
ACCOUNT: str = VECTORS["account"]
KEY_TEXT: str = VECTORS["accountKey"]
KEY = AccountKey.from_base64(KEY_TEXT)
OTHER_KEY = AccountKey(b"another key")
DELEGATION_KEY = AccountKey.from_base64(VECTORS["userDelegationKeyValue"])

DATE = "Sun, 15 Nov 2026 02:50:16 GMT"


def ticks(written: str) -> int:
    """Converts a well-formed time."""
    at = http_date(written) if "," in written else iso_time(written)
    assert at is not None
    return at


NOW = ticks(DATE)
TOKEN_NOW = ticks("2024-01-03")


def request(
    method: str = "GET",
    target: str = f"/{ACCOUNT}/c/b",
    headers: Mapping[str, str] | None = None,
    *,
    service: str = "blob",
    host: str = "127.0.0.1:10000",
    scheme: str = "https",
    client: str = "1.2.3.4",
) -> RestRequest:
    path, _, query = target.partition("?")
    return RestRequest(
        service,
        method,
        address(host, path),
        path,
        query,
        {name.lower(): value for name, value in (headers or {}).items()},
        scheme=scheme,
        client=client,
    )


def sign(string: str, key: str = KEY_TEXT) -> str:
    digest = hmac.new(base64.b64decode(key), string.encode(), hashlib.sha256).digest()
    return base64.b64encode(digest).decode()


def signed(
    string: str,
    headers: Mapping[str, str],
    *,
    scheme: str = "SharedKey",
    method: str = "GET",
    target: str = f"/{ACCOUNT}/c/b",
    service: str = "blob",
    host: str = "127.0.0.1:10000",
) -> RestRequest:
    """Returns a request whose signer used this string to sign."""
    authorization = f"{scheme} {ACCOUNT}:{sign(string)}"
    sent = {**headers, "Authorization": authorization}
    return request(method, target, sent, service=service, host=host)


def query(parameters: Mapping[str, str]) -> str:
    return "&".join(f"{name}={quote(value, safe='')}" for name, value in parameters.items())
