"""Shared access signatures: the tokens of SDKs, every change to them, and what they grant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any
from urllib.parse import parse_qsl, quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etagere.auth.principal import KeyRange, Kind, TokenHolder, covers
from etagere.auth.request import SignedRequest, address, text
from etagere.auth.sas import (
    ACCOUNT_LETTERS,
    LETTERS,
    DelegationKey,
    Effective,
    Policy,
    Sas,
    carries_sas,
    check_origin,
    check_time,
    effective,
    iso_time,
    parse,
    principal,
    verify,
)
from etagere.auth.shared_key import AccountKey
from etagere.clock import TICKS_PER_SECOND
from etagere.errors import Refusal
from tests.auth.samples import (
    ACCOUNT,
    DELEGATION_KEY,
    KEY,
    OTHER_KEY,
    TOKEN_NOW,
    VECTORS,
    query,
    request,
    sign,
    ticks,
)

TOKENS: list[dict[str, Any]] = VECTORS["sas"]


def parameters_of(vector: Mapping[str, Any]) -> dict[str, str]:
    return dict(parse_qsl(vector["token"].replace("+", "%2B"), keep_blank_values=True))


def built(
    vector: Mapping[str, Any],
    parameters: Mapping[str, str] | None = None,
    *,
    name: str | None = None,
    timestamp: str | None = None,
    account: str = ACCOUNT,
) -> SignedRequest:
    """A request that the token of a vector was made for."""
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


def judged(made: SignedRequest) -> Refusal | None:
    sas = parse(made)
    return sas if isinstance(sas, Refusal) else verify(sas, [KEY], delegated)


def accepted(made: SignedRequest) -> Sas:
    sas = parse(made)
    assert isinstance(sas, Sas), sas
    assert verify(sas, [KEY], delegated) is None
    return sas


tokens = pytest.mark.parametrize(
    "vector", TOKENS, ids=lambda each: f"{each['service']} {each['token'][:60]}"
)


# The tokens of SDKs


@tokens
def test_tokens_of_sdks(vector: dict[str, Any]) -> None:
    made = built(vector)
    assert carries_sas(made)
    sas = accepted(made)
    if vector["service"] != "account":
        assert sas.scope == vector["canonicalName"]
        assert sas.timestamp == vector["timestamp"]
    assert (sas.kind is Kind.DELEGATION) is vector["userDelegation"]
    assert verify(sas, [OTHER_KEY, KEY], delegated) is None
    assert verify(sas, [OTHER_KEY], lambda _: OTHER_KEY) is not None
    assert verify(sas, [], lambda _: None) is not None
    granted = effective(sas, Policy(None, ticks("2030-01-01"), "r") if sas.policy_id else None)
    assert isinstance(granted, Effective)
    assert check_time(granted, TOKEN_NOW) is None
    holder = principal(sas, granted)
    assert holder.permissions == parameters_of(vector).get("sp", "r")
    assert covers(holder, vector["canonicalName"])


@tokens
def test_a_key_does_not_stand_in_for_another(vector: dict[str, Any]) -> None:
    sas = accepted(built(vector))
    if vector["userDelegation"]:
        assert verify(sas, [DELEGATION_KEY, KEY], lambda _: None) is not None
    else:
        assert verify(sas, [OTHER_KEY], lambda _: KEY) is not None


def test_dfs_signs_as_blob() -> None:
    vector = next(each for each in TOKENS if each["canonicalName"] == "fs/d1/d2")
    made = request(target=f"/{ACCOUNT}/fs/d1/d2/f?{vector['token']}", service="dfs")
    assert accepted(made).scope == "fs/d1/d2"


# Every single change

OTHER_VALUES = {
    "sv": ("2012-02-12", "2015-02-21", "2015-04-05", "2018-11-09", "2020-02-10", "2020-12-06",
           "2025-07-05", "2026-04-06", "2026-10-06", "2030-01-01"),
    "sp": ("r", "w", "rw", "lr", "racwdl", "puar"),
    "st": ("2023-01-02", "2024-01-02T03:04:05.0Z", "2024-01-02T03:04Z"),
    "se": ("2031-01-02", "2030-01-02T03:04:05.0000000Z"),
    "skt": ("2023-12-31T00:00:00Z",),
    "ske": ("2024-01-08T00:00:00Z",),
    "sip": ("1.2.3.4", "0.0.0.0-255.255.255.255", "1.1.1.1"),
    "spr": ("https,http",),
    "sr": ("b", "bs", "bv", "c", "d", "f", "s"),
    "ss": ("b", "bqtf", "f"),
    "srt": ("s", "sco", "oc"),
    "sdd": ("0", "1", "3"),
    "tn": ("OtherTable",),
    "srh": ("x-ms-a", "x-ms-b,x-ms-a"),
    "srq": ("p", "p2,p"),
    "sig": (sign("something else"),),
}  # fmt: skip
ADDED = {
    "sp": "r", "st": "2024-01-01", "se": "2031-01-01", "si": "other", "sip": "1.2.3.4",
    "spr": "https", "ses": "es", "rscc": "no-cache", "rsct": "text/html", "rsce": "gzip",
    "ss": "b", "srt": "o", "skoid": "oid", "saoid": "oid", "suoid": "oid", "scid": "cid",
    "sduoid": "du", "skdutid": "tid", "spk": "a", "srk": "a", "epk": "z", "erk": "z",
    "srh": "x-ms-version", "srq": "sv",
}  # fmt: skip


def changed_parameters(given: dict[str, str]) -> Iterator[dict[str, str]]:
    for name, value in given.items():
        rest = {key: each for key, each in given.items() if key != name}
        yield rest
        yield {**rest, name: ""}
        yield {**rest, name: value + "x"}
        yield {**rest, name: value[:-1]}
        yield {**rest, name: "x" + value[1:]}
        yield {**rest, name: value + "\n"}
        yield {**rest, name: f"\n{value}"}
        for other in OTHER_VALUES.get(name, ()):
            if other != value:
                yield {**rest, name: other}
    for name, value in ADDED.items():
        if name not in given:
            yield {**given, name: value}


def is_ignored(vector: Mapping[str, Any], parameters: Mapping[str, str]) -> bool:
    """Response headers in a token that does not sign them: without effect, so no harm."""
    added = parameters.keys() - parameters_of(vector).keys()
    signs_none = vector["service"] in {"account", "queue", "table"}
    return signs_none and bool(added) and added <= {"rscc", "rsct", "rsce"}


@tokens
def test_every_single_change_is_refused(vector: dict[str, Any]) -> None:
    given = parameters_of(vector)
    for changed in changed_parameters(given):
        if changed == given or is_ignored(vector, changed):
            continue
        made = built(vector, changed)
        refusal = judged(made)
        assert refusal is not None, f"{made.path}?{made.query}"
        assert refusal.code in {"AuthenticationFailed", "NoAuthenticationInformation"}


@tokens
def test_a_token_serves_no_other_resource(vector: dict[str, Any]) -> None:
    if vector["service"] == "account":
        assert judged(built(vector, account="other")) is not None
        return
    named = vector["canonicalName"]
    others = {named[:at] + "z" + named[at + 1 :] for at in range(len(named))}
    others |= {named[:at] + named[at + 1 :] for at in range(len(named))}
    others |= {named.upper(), named.rpartition("/")[0], f"z/{named}", f"{named}z"}
    for other in others - {named}:
        if vector["service"] == "table" and other.lower() in {named, ""}:
            continue
        if "sr=d" in vector["token"] and other.startswith(f"{named}/"):
            continue
        assert judged(built(vector, name=other)) is not None, other
    assert judged(built(vector, account="other")) is not None
    if vector["timestamp"]:
        assert judged(built(vector, timestamp="2024-01-01T00:00:00.0000001Z")) is not None
        assert judged(built(vector, timestamp="")) is not None


@tokens
def test_tokens_are_of_one_service(vector: dict[str, Any]) -> None:
    if vector["service"] == "account":
        return
    made = built(vector)
    for service in {"blob", "queue", "table", "file"} - {vector["service"]}:
        made.service = service
        assert judged(made) is not None


def test_a_parameter_said_twice_is_not_the_one_that_was_signed() -> None:
    vector = TOKENS[0]
    made = built(vector)
    made.query += "&sp=racwd"
    assert judged(made) is not None


def test_headers_and_parameters_that_a_token_requires() -> None:
    vector = next(each for each in TOKENS if "srh=" in each["token"])
    accepted(built(vector))
    for name in ("requestHeaders", "requestQuery"):
        for key in vector[name]:
            assert judged(built({**vector, name: {**vector[name], key: "other"}})) is not None
            rest = {other: value for other, value in vector[name].items() if other != key}
            assert judged(built({**vector, name: rest})) is not None


# Where a token applies


def blob_token(resource: str, canon: str, version: str = "2020-12-06", **more: str) -> str:
    """A token with the account key, its string to sign written out."""
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


@pytest.mark.parametrize(
    ("resource", "canon", "more", "target", "scope"),
    [
        ("c", "c", {}, "c?restype=container", "c"),
        ("c", "c", {}, "c/any/blob", "c"),
        ("c", "$root", {}, "blob", "$root"),
        ("c", "c", {}, "c", None),
        ("b", "c/b", {}, "c/b", "c/b"),
        ("b", "c/b", {}, "c/b?snapshot=2024-01-01T00:00:00.0000000Z", "c/b"),
        ("b", "c/a b/ü", {}, "c/a%20b/%C3%BC", "c/a b/ü"),
        ("b", "$root/b", {}, "b", "$root/b"),
        ("b", "$root/b", {}, "$root/b", "$root/b"),
        ("b", "$root/c", {}, "c?restype=container", None),
        ("b", "c", {}, "c?restype=container", None),
        ("c", "c/d", {}, "c%2Fd/x", None),
        ("c", "c/d", {}, "c%2Fd?restype=container", None),
        ("b", "c/b\n", {}, "c/b%0A", None),
        ("c", "", {}, "", None),
        ("d", "c/x/y", {"sdd": "2"}, "c/x/y", "c/x/y"),
        ("d", "c/x/y", {"sdd": "2"}, "c/x/y/", "c/x/y"),
        ("d", "c/x/y", {"sdd": "2"}, "c/x/y/deep/er", "c/x/y"),
        ("d", "c", {"sdd": "0"}, "c/x/y", "c"),
        ("d", "c", {"sdd": "0"}, "c?restype=container&comp=list", "c"),
        ("d", "c/x/y", {"sdd": "2"}, "c/x", None),
        ("d", "c/x/y", {"sdd": "2"}, "c/x/yz", None),
        ("d", "c/x/y", {"sdd": "2"}, "c/x/y/../../secret", None),
        ("d", "c/x/y", {"sdd": "2"}, "c/x/y/./b", None),
        ("d", "c/x/y", {"sdd": "2"}, "c/x/y/%2E%2E/b", None),
        ("d", "c/x/y", {"sdd": "2"}, "c/x/y//b", None),
        ("d", "c/x/y", {}, "c/x/y", None),
        ("d", "c/x/y", {"sdd": "-2"}, "c/x/y", None),
        ("d", "c/x/y", {"sdd": "99999"}, "c/x/y", None),
        ("d", "c/x", {"sdd": "1"}, "c?restype=container&comp=list&prefix=x%2F", "c/x"),
        ("d", "c/x", {"sdd": "1"}, "c?restype=container&comp=list&prefix=x%2Fy", "c/x"),
        # Also lists xy/…
        ("d", "c/x", {"sdd": "1"}, "c?restype=container&comp=list&prefix=x", None),
        ("d", "c/x", {"sdd": "1"}, "c?restype=container&comp=list", None),
        ("d", "c/x", {"sdd": "1"}, "c?restype=container&comp=list&directory=x", None),
        ("q", "c", {}, "c/b", None),
        ("", "c", {}, "c/b", None),
    ],
)
def test_scope(
    resource: str, canon: str, more: dict[str, str], target: str, scope: str | None
) -> None:
    token = blob_token(resource, canon, **more)
    mark = "&" if "?" in target else "?"
    made = request(target=f"/{ACCOUNT}/{target}{mark}{token}")
    if scope is None:
        assert judged(made) is not None
    else:
        assert accepted(made).scope == scope


@pytest.mark.parametrize(
    ("target", "scope"),
    [
        ("c?resource=filesystem&directory=x", "c/x"),
        ("c?resource=filesystem&directory=x%2Fy", "c/x"),
        ("c?resource=filesystem&directory=y", None),
        ("c?resource=filesystem", None),
        ("c?resource=filesystem&prefix=x%2F", None),
        ("c?restype=container&comp=list&directory=x", None),
        ("c?restype=container&comp=list&prefix=x%2F", "c/x"),
        ("c?restype=container&comp=list&resource=filesystem&directory=x&prefix=x%2F", None),
    ],
)
def test_scope_of_directory_listings(target: str, scope: str | None) -> None:
    token = blob_token("d", "c/x", sdd="1")
    made = request(target=f"/{ACCOUNT}/{target}&{token}", service="dfs")
    if scope is None:
        assert judged(made) is not None
    else:
        assert accepted(made).scope == scope


def test_old_tokens_do_not_sign_what_they_are_for_yet_keep_to_it() -> None:
    """Before 2018-11-09 `sr` is not signed, so it must not turn one resource into another."""
    container = blob_token("c", "c", "2015-04-05")
    blob = blob_token("b", "c/b", "2015-04-05")
    accepted(request(target=f"/{ACCOUNT}/c/b?{container}"))
    accepted(request(target=f"/{ACCOUNT}/c/b?{blob}"))
    for token, old, new in ((container, "c", "b"), (blob, "b", "c"), (blob, "b", "bs")):
        changed = token.replace(f"sr={old}", f"sr={new}")
        for target in ("c", "c/b", "b", "c%2Fb", "c%2Fb/x", "c?restype=container"):
            mark = "&" if "?" in target else "?"
            made = request(target=f"/{ACCOUNT}/{target}{mark}{changed}")
            assert judged(made) is not None, (target, changed)


@pytest.mark.parametrize("resource", ["bs", "bv"])
def test_snapshot_and_version_at_once(resource: str) -> None:
    vector = next(each for each in TOKENS if f"sr={resource}" in each["token"])
    made = built(vector)
    made.query += "&snapshot=1" if resource == "bv" else "&versionid=1"
    assert judged(made) is not None


@pytest.mark.parametrize(
    ("resource", "version"), [("bs", "2018-03-28"), ("bv", "2018-03-28"), ("d", "2019-12-12")]
)
def test_resources_that_came_later(resource: str, version: str) -> None:
    token = blob_token(resource, "c/b", version, sdd="1")
    made = request(target=f"/{ACCOUNT}/c/b?{token}&snapshot=1")
    assert judged(made) is not None


@pytest.mark.parametrize(
    ("version", "prefix", "order"),
    [
        ("2012-02-12", "", "sp st se canon si sv"),
        ("2013-08-15", "", "sp st se canon si sv rscc rscd rsce rscl rsct"),
        ("2015-02-21", "/blob", "sp st se canon si sv rscc rscd rsce rscl rsct"),
    ],
)
def test_formats_before_2015_04_05(version: str, prefix: str, order: str) -> None:
    given = {"sp": "r", "se": "2030-01-01", "sv": version, "sr": "b"}
    values = {**given, "canon": f"{prefix}/{ACCOUNT}/c/b"}
    string = "\n".join(values.get(name, "") for name in order.split())
    made = request(target=f"/{ACCOUNT}/c/b?{query({**given, 'sig': sign(string)})}")
    accepted(made)
    # A bound that is not signed would be a false promise.
    made.query += "&sip=1.2.3.4"
    bounded = request(target=f"/{ACCOUNT}/c/b?{made.query}")
    assert judged(bounded) is not None


@pytest.mark.parametrize(
    "version", ["2011-08-18", "", "x", "2015-4-5", "9" * 5000, "\uff12015-04-05"]
)
def test_versions_without_tokens(version: str) -> None:
    made = request(target=f"/{ACCOUNT}/c/b?{blob_token('b', 'c/b', version)}")
    assert judged(made) is not None


def test_account_tokens_begin_later_than_others() -> None:
    given = {"sp": "r", "ss": "b", "srt": "o", "se": "2030-01-01", "sv": "2015-02-21"}
    lines = (ACCOUNT, "r", "b", "o", "", "2030-01-01", "", "", "2015-02-21", "")
    signature = sign("\n".join(lines))
    assert judged(request(target=f"/{ACCOUNT}/c/b?{query({**given, 'sig': signature})}"))


@pytest.mark.parametrize(
    "changed",
    [
        *({"ss": "x"}, {"srt": "x"}, {"ss": ""}, {"srt": ""}, {"sp": "rz"}, {"si": "policy"}),
        *({"sv": ""}, {"sv": "2014-02-14"}),
    ],
)
def test_malformed_account_tokens(changed: dict[str, str]) -> None:
    given = {"sp": "r", "ss": "b", "srt": "o", "se": "2030-01-01", "sv": "2020-12-06", "sig": "x"}
    assert isinstance(parse(request(target=f"/{ACCOUNT}/c/b?{query(given)}")), Sas)
    made = request(target=f"/{ACCOUNT}/c/b?{query({**given, **changed})}")
    refusal = parse(made)
    assert isinstance(refusal, Refusal)
    assert refusal.code == "AuthenticationFailed"


@pytest.mark.parametrize(("service", "resource"), LETTERS)
def test_letters(service: str, resource: str) -> None:
    known = LETTERS[service, resource]
    given = {"se": "2030-01-01", "sv": "2026-10-06", "sig": "x", "sr": resource, "tn": "c"}
    given |= {"sdd": "1", "snapshot" if resource == "bs" else "versionid": "1"}
    for letter in "abcdefghijklmnopqrstuvwxyzR, -é":
        below = "" if service == "table" else "/b"
        target = f"/{ACCOUNT}/c{below}?{query({**given, 'sp': letter})}"
        sas = parse(request(target=target, service=service))
        assert isinstance(sas, Sas) is (letter in known), letter


def test_letters_of_account_tokens() -> None:
    given = {"ss": "b", "srt": "o", "se": "2030-01-01", "sv": "2020-12-06", "sig": "x"}
    for letter in "abcdefghijklmnopqrstuvwxyz":
        sas = parse(request(target=f"/{ACCOUNT}/c/b?{query({**given, 'sp': letter})}"))
        assert isinstance(sas, Sas) is (letter in ACCOUNT_LETTERS), letter


# Tables


def table_vector() -> dict[str, Any]:
    return next(each for each in TOKENS if each["service"] == "table")


@pytest.mark.parametrize(
    "path",
    ["MyTable", "mytable()", "MYTABLE(PartitionKey='a',RowKey='b')", "$batch", "Tables", ""],
)
def test_table_names(path: str) -> None:
    token = table_vector()["token"]
    made = request(target=f"/{ACCOUNT}/{path}?{token}", service="table", client="1.2.3.4")
    sas = accepted(made)
    granted = effective(sas, None)
    assert isinstance(granted, Effective)
    holder = principal(sas, granted)
    assert holder.keys == KeyRange("a", "b", "c", "d")
    assert covers(holder, "MyTable")
    assert not covers(holder, "OtherTable")


@pytest.mark.parametrize("path", ["other", "mytable2()", "my"])
def test_other_tables(path: str) -> None:
    token = table_vector()["token"]
    assert judged(request(target=f"/{ACCOUNT}/{path}?{token}", service="table")) is not None


def test_a_token_without_a_range_has_none() -> None:
    given = {"sp": "r", "se": "2030-01-01", "sv": "2019-02-02", "tn": "T"}
    canon = f"/table/{ACCOUNT}/t"
    string = "\n".join(["r", "", "2030-01-01", canon, "", "", "", "2019-02-02", "", "", "", ""])
    target = f"/{ACCOUNT}/T?{query({**given, 'sig': sign(string)})}"
    sas = accepted(request(target=target, service="table"))
    assert principal(sas, Effective("r", None, 0)).keys is None


# Times


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("1970-01-01", 0),
        ("1970-01-01T00:01Z", 60 * TICKS_PER_SECOND),
        ("1970-01-01T00:00:01Z", TICKS_PER_SECOND),
        ("1970-01-01T00:00:01.5Z", 15_000_000),
        ("1970-01-01T00:00:00.0000001Z", 1),
        ("1970-01-01T00:00:00.00000001Z", None),
        ("2024-02-29", 1_709_164_800 * TICKS_PER_SECOND),
        ("2023-02-29", None),
        ("0000-01-01", None),
        ("1970-01-01T24:00Z", None),
        ("1970-01-01T00:60Z", None),
        ("1970-01-01T00:00", None),
        ("1970-01-01T00:00:00+00:00", None),
        ("1970-01-01Z", None),
        ("1970-1-1", None),
        ("", None),
        ("\u0661970-01-01", None),
        ("1970-01-01\n", None),
    ],
)
def test_iso_times(written: str, expected: int | None) -> None:
    assert iso_time(written) == expected


def made_token(**changes: Any) -> Sas:
    sas = accepted(built(TOKENS[0]))
    return type(sas)(**{**{name: getattr(sas, name) for name in sas.__struct_fields__}, **changes})


@pytest.mark.parametrize(
    ("now", "valid"), [(9, False), (10, True), (15, True), (20, True), (21, False)]
)
def test_time_window(now: int, valid: bool) -> None:
    assert (check_time(Effective("r", 10, 20), now) is None) is valid
    assert (check_time(Effective("r", None, 20), now) is None) is (now <= 20)


def test_a_delegated_token_is_not_worth_more_than_its_key() -> None:
    vector = next(each for each in TOKENS if each["userDelegation"])
    sas = accepted(built(vector))
    granted = effective(sas, None)
    assert isinstance(granted, Effective)
    assert (granted.start, granted.expiry) == (ticks("2024-01-02T03:04:05Z"), ticks("2024-01-07"))
    assert check_time(granted, ticks("2024-01-07T00:00:01Z")) is not None
    assert principal(sas, granted).delegating_user == "oid-1"


@pytest.mark.parametrize("changed", [{"skt": ""}, {"ske": ""}, {"skt": "x"}, {"si": "policy"}])
def test_malformed_delegation_tokens(changed: dict[str, str]) -> None:
    vector = next(each for each in TOKENS if each["userDelegation"])
    assert isinstance(parse(built(vector, {**parameters_of(vector), **changed})), Refusal)


def test_the_key_is_looked_up_by_what_the_token_claims() -> None:
    vector = next(each for each in TOKENS if each["userDelegation"])
    sas = accepted(built(vector))
    claims: list[DelegationKey] = []

    def look_up(claim: DelegationKey) -> None:
        claims.append(claim)

    assert verify(sas, [KEY], look_up) is not None
    assert claims == [
        DelegationKey(
            "oid-1", "tid-1", "2024-01-01T00:00:00Z", "2024-01-07T00:00:00Z", "b", "2024-11-04", ""
        )
    ]


# Policies

AT, LATER = 10, 20


@pytest.mark.parametrize(
    ("in_token", "in_policy"), list(product(product((False, True), repeat=3), repeat=2))
)
def test_policy_merge(
    in_token: tuple[bool, bool, bool], in_policy: tuple[bool, bool, bool]
) -> None:
    """Start, expiry and permissions: each in the token or in the policy, never in both."""
    sas = made_token(
        policy_id="id",
        start=AT if in_token[0] else None,
        expiry=LATER if in_token[1] else None,
        permissions="rw" if in_token[2] else "",
    )
    policy = Policy(
        AT if in_policy[0] else None,
        LATER if in_policy[1] else None,
        "rw" if in_policy[2] else "",
    )
    granted = effective(sas, policy)
    twice = any(mine and theirs for mine, theirs in zip(in_token, in_policy, strict=True))
    said = [mine or theirs for mine, theirs in zip(in_token, in_policy, strict=True)]
    if twice or not said[1] or not said[2]:
        assert isinstance(granted, Refusal)
        assert granted.code == "AuthenticationFailed"
    else:
        assert granted == Effective("rw", AT if said[0] else None, LATER)


def test_unknown_policy() -> None:
    refusal = effective(made_token(policy_id="id"), None)
    assert isinstance(refusal, Refusal)
    assert refusal.code == "AuthenticationFailed"


def test_a_policy_that_is_not_named_is_not_asked() -> None:
    sas = made_token()
    assert effective(sas, Policy(1, 2, "d")) == effective(sas, None)


def test_letters_of_a_policy_that_the_token_cannot_have() -> None:
    sas = made_token(policy_id="id", permissions="", start=None, expiry=LATER)
    assert effective(sas, Policy(permissions="rfl")) == Effective("rl", None, LATER)
    assert isinstance(effective(sas, Policy(permissions="f")), Refusal)


# Origin


@pytest.mark.parametrize(
    ("sip", "client", "expected"),
    [
        ("1.2.3.4", "1.2.3.4", ""),
        ("1.2.3.4", "1.2.3.5", "AuthorizationSourceIPMismatch"),
        ("1.2.3.4-1.2.3.9", "1.2.3.4", ""),
        ("1.2.3.4-1.2.3.9", "1.2.3.9", ""),
        ("1.2.3.4-1.2.3.9", "1.2.3.10", "AuthorizationSourceIPMismatch"),
        ("1.2.3.4-1.2.3.9", "1.2.3.3", "AuthorizationSourceIPMismatch"),
        ("1.2.3.4", "::ffff:1.2.3.4", ""),
        ("1.2.3.4", "::1", "AuthorizationSourceIPMismatch"),
        ("1.2.3.4", "", "AuthorizationSourceIPMismatch"),
        ("1.2.3.9-1.2.3.4", "1.2.3.5", "AuthenticationFailed"),
        ("1.2.3.4-", "1.2.3.4", "AuthenticationFailed"),
        ("-1.2.3.4", "1.2.3.4", "AuthenticationFailed"),
        ("1.2.3.4-1.2.3.5-1.2.3.6", "1.2.3.4", "AuthenticationFailed"),
        ("1.2.3", "1.2.3.4", "AuthenticationFailed"),
        ("1.2.3.256", "1.2.3.4", "AuthenticationFailed"),
        ("01.2.3.4", "1.2.3.4", "AuthenticationFailed"),
        ("1.2.3.4/24", "1.2.3.4", "AuthenticationFailed"),
        ("::1", "::1", "AuthenticationFailed"),
    ],
)
def test_addresses(sip: str, client: str, expected: str) -> None:
    token = blob_token("b", "c/b", sip=sip)
    made = request(target=f"/{ACCOUNT}/c/b?{token}", client=client)
    sas = parse(made)
    refusal = sas if isinstance(sas, Refusal) else check_origin(sas, made)
    assert ("" if refusal is None else refusal.code) == expected


@pytest.mark.parametrize(
    ("spr", "scheme", "expected"),
    [
        ("https", "https", ""),
        ("https", "http", "AuthorizationProtocolMismatch"),
        ("https,http", "http", ""),
        ("https,http", "https", ""),
        ("", "http", ""),
        ("http", "http", "AuthenticationFailed"),
        ("HTTPS", "https", "AuthenticationFailed"),
    ],
)
def test_protocols(spr: str, scheme: str, expected: str) -> None:
    token = blob_token("b", "c/b", spr=spr)
    made = request(target=f"/{ACCOUNT}/c/b?{token}", scheme=scheme)
    sas = parse(made)
    refusal = sas if isinstance(sas, Refusal) else check_origin(sas, made)
    assert ("" if refusal is None else refusal.code) == expected


# What the holder is


def test_the_holder_of_a_token() -> None:
    vector = next(each for each in TOKENS if each["canonicalName"] == "c/a b/ü.txt")
    sas = accepted(built(vector))
    granted = effective(sas, None)
    assert isinstance(granted, Effective)
    assert principal(sas, granted) == TokenHolder(
        account=ACCOUNT,
        kind=Kind.SERVICE,
        version="2026-10-06",
        permissions="racwd",
        service="blob",
        resource="b",
        scope="c/a b/ü.txt",
        overrides={
            "cache-control": "cc",
            "content-disposition": "cd",
            "content-encoding": "ce",
            "content-language": "cl",
            "content-type": "ct",
        },
    )


def test_the_holder_of_an_account_token() -> None:
    vector = next(each for each in TOKENS if "srt=co" in each["token"] and "ses" in each["token"])
    sas = accepted(built(vector))
    granted = effective(sas, None)
    assert isinstance(granted, Effective)
    assert principal(sas, granted) == TokenHolder(
        account=ACCOUNT,
        kind=Kind.ACCOUNT,
        version=sas.version,
        permissions="rl",
        services="b",
        resource_types="co",
        encryption_scope="es",
    )


def test_a_refusal_shows_no_signature_of_ours() -> None:
    sas = accepted(built(TOKENS[0]))
    refusal = verify(sas, [OTHER_KEY])
    assert refusal is not None
    detail = str(refusal.facts["AuthenticationErrorDetail"])
    assert "/blob/devstoreaccount1/c/b/x" in detail
    assert OTHER_KEY.signature(sas.string_to_sign().encode()).decode() not in detail
    assert sas.signature not in detail


def test_a_refusal_shows_no_header_that_the_client_chose() -> None:
    vector = next(each for each in TOKENS if "srh=" in each["token"])
    refusal = verify(accepted(built(vector)), [], lambda _: OTHER_KEY)
    assert refusal is not None
    assert "x-ms-a" not in str(refusal)


def test_no_token() -> None:
    made = request(target=f"/{ACCOUNT}/c/b?comp=list&sv=2020-12-06")
    assert not carries_sas(made)
    assert not carries_sas(request())
    refusal = parse(made)
    assert isinstance(refusal, Refusal)
    assert refusal.code == "NoAuthenticationInformation"


# Anything at all

ANY_TEXT = st.binary(max_size=30).map(text)
PARAMETERS = sorted({name for vector in TOKENS for name in parameters_of(vector)} | set(ADDED))
PLAUSIBLE = st.sampled_from(
    [
        *sorted({value for vector in TOKENS for value in parameters_of(vector).values()}),
        *("", "0", "-", ",", "%", "%0A", "%00", "%FF", "2020-02-30", "1.1.1.1-", "9" * 400),
    ]
)


@settings(max_examples=500)
@given(
    st.sampled_from(["blob", "queue", "table", "file", "dfs", "unknown"]),
    st.one_of(st.sampled_from(["/a/c/b", "/a/c", "/a", "/", "", "/a/fs/d1/d2"]), ANY_TEXT),
    st.dictionaries(st.sampled_from(PARAMETERS), st.one_of(PLAUSIBLE, ANY_TEXT)),
    st.one_of(st.none(), st.sampled_from(TOKENS)),
    ANY_TEXT,
    ANY_TEXT,
)
def test_whatever_comes_is_refused(
    service: str,
    path: str,
    given: dict[str, str],
    vector: dict[str, Any] | None,
    header: str,
    client: str,
) -> None:
    base = {} if vector is None else {**parameters_of(vector), "sig": "x"}
    joined = "&".join(f"{name}={value}" for name, value in {**base, **given}.items())
    made = SignedRequest(
        service, "GET", address("h", path), path, joined, [("x-ms-a", header)], client=client
    )
    sas = parse(made)
    if isinstance(sas, Refusal):
        assert sas.code in {"AuthenticationFailed", "NoAuthenticationInformation"}
        return
    assert verify(sas, [KEY], delegated) is not None
    check_origin(sas, made)
    for policy in (None, Policy(), Policy(1, 2, "r")):
        granted = effective(sas, policy)
        if isinstance(granted, Effective):
            check_time(granted, 0)
            holder = principal(sas, granted)
            covers(holder, path)
