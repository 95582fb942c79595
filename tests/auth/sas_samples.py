"""SAS tokens to judge: recorded from SDKs with requests to use them in, and built here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, quote

import pytest

from etagere.auth.request import RestRequest
from etagere.auth.sas import DelegationKey, Sas
from etagere.auth.sas_parsing import parse
from etagere.auth.sas_signature import verify
from etagere.auth.shared_key import AccountKey
from etagere.errors import Refusal
from tests.auth.samples import ACCOUNT, DELEGATION_KEY, KEY, VECTORS, query, request, sign

TOKENS: list[dict[str, Any]] = VECTORS["sas"]
# Optional parameters of a token, each with a well-formed value.
ADDED = {
    "sp": "r", "st": "2024-01-01", "se": "2031-01-01", "si": "other", "sip": "1.2.3.4",
    "spr": "https", "ses": "es", "rscc": "no-cache", "rsct": "text/html", "rsce": "gzip",
    "ss": "b", "srt": "o", "skoid": "oid", "saoid": "oid", "suoid": "oid", "scid": "cid",
    "sduoid": "du", "skdutid": "tid", "spk": "a", "srk": "a", "epk": "z", "erk": "z",
    "srh": "x-ms-version", "srq": "sv",
}  # fmt: skip


def parameters_of(vector: Mapping[str, Any]) -> dict[str, str]:
    return dict(parse_qsl(vector["token"].replace("+", "%2B"), keep_blank_values=True))


def built(
    vector: Mapping[str, Any],
    parameters: Mapping[str, str] | None = None,
    *,
    name: str | None = None,
    timestamp: str | None = None,
    account: str = ACCOUNT,
) -> RestRequest:
    """Returns a request that the token of a vector is valid for."""
    token = parameters_of(vector) if parameters is None else parameters
    service = "blob" if vector["service"] == "account" else vector["service"]
    if token.get("ss") == "t":
        service = "table"
    path = quote(vector["canonicalName"] if name is None else name)
    if service == "table" and name is None:
        path = quote(parameters_of(vector).get("tn", "t"))
    moment = vector["timestamp"] if timestamp is None else timestamp
    more = dict(vector.get("requestQuery", {}))
    if "/" not in path and service == "blob":
        more["restype"] = "container"
    if moment:
        more["versionid" if "sr=bv" in vector["token"] else "snapshot"] = moment
    return request(
        target=f"/{account}/{path}?{query({**token, **more})}",
        headers=vector.get("requestHeaders", {}),
        service=service,
    )


def delegated(_: DelegationKey) -> AccountKey:
    return DELEGATION_KEY


def judged(made: RestRequest) -> Refusal | None:
    sas = parse(made)
    return sas if isinstance(sas, Refusal) else verify(sas, [KEY], delegated)


def accepted(made: RestRequest) -> Sas:
    sas = parse(made)
    assert isinstance(sas, Sas), sas
    assert verify(sas, [KEY], delegated) is None
    return sas


tokens = pytest.mark.parametrize(
    "vector", TOKENS, ids=lambda each: f"{each['service']} {each['token'][:60]}"
)


def blob_token(resource: str, canon: str, version: str = "2020-12-06", **more: str) -> str:
    """Returns a token signed with the account key, its string to sign written out."""
    given = {"sp": "rwl", "se": "2030-01-01", "sv": version, "sr": resource, **more}
    order = ["sp", "st", "se", "canon", "si", "sip", "spr", "sv"]
    if version >= "2018-11-09":
        order += ["sr", "timestamp"]
    if version >= "2020-12-06":
        order += ["ses"]
    order += ["rscc", "rscd", "rsce", "rscl", "rsct"]
    values = {**given, "canon": f"/blob/{ACCOUNT}/{canon}"}
    string = "\n".join(values.get(name, "") for name in order)
    return query({**given, "sig": sign(string)})


def file_token(resource: str, canon: str, version: str = "2020-12-06", **more: str) -> str:
    """Returns a token for a share or a file. No version of it signs `sr`."""
    given = {"sp": "rw", "se": "2030-01-01", "sv": version, "sr": resource, **more}
    order = ["sp", "st", "se", "canon", "si"]
    order += ["sip", "spr", "sv"] if version >= "2015-04-05" else ["sv"]
    order += ["rscc", "rscd", "rsce", "rscl", "rsct"]
    values = {**given, "canon": f"/file/{ACCOUNT}/{canon}"}
    string = "\n".join(values.get(name, "") for name in order)
    return query({**given, "sig": sign(string)})
