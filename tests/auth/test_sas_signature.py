"""SAS signatures: tokens of SDKs are accepted, and every change to one is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from etagere.auth.principal import TokenKind, covers
from etagere.auth.sas import (
    DelegationKey,
    Effective,
    Policy,
    Sas,
    check_time,
    effective,
    principal,
)
from etagere.auth.sas_parsing import carries_sas, parse
from etagere.auth.sas_signature import verify
from etagere.errors import Refusal
from tests.auth.samples import (
    ACCOUNT,
    DELEGATION_KEY,
    KEY,
    OTHER_KEY,
    TOKEN_NOW,
    query,
    request,
    sign,
    ticks,
)
from tests.auth.sas_samples import (
    ADDED,
    TOKENS,
    accepted,
    blob_token,
    built,
    delegated,
    judged,
    parameters_of,
    tokens,
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
    assert (sas.kind is TokenKind.DELEGATION) is vector["userDelegation"]
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
def test_another_key_is_refused(vector: dict[str, Any]) -> None:
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
    """True for response headers in a token that does not sign them: they have no effect."""
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
def test_another_resource_is_refused(vector: dict[str, Any]) -> None:
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


def test_repeated_parameters_are_refused() -> None:
    vector = TOKENS[0]
    made = built(vector)
    repeated = request(target=f"{made.path}?{made.query}&sp=racwd", service=made.service)
    assert judged(repeated) is not None


def test_headers_and_parameters_that_a_token_requires() -> None:
    vector = next(each for each in TOKENS if "srh=" in each["token"])
    accepted(built(vector))
    for name in ("requestHeaders", "requestQuery"):
        for key in vector[name]:
            assert judged(built({**vector, name: {**vector[name], key: "other"}})) is not None
            rest = {other: value for other, value in vector[name].items() if other != key}
            assert judged(built({**vector, name: rest})) is not None


def test_a_required_parameter_cannot_be_renamed() -> None:
    vector = next(each for each in TOKENS if "srq=" in each["token"])
    given = parameters_of(vector)
    required = {**vector, "requestQuery": {"snapshot": "2026-01-01T00:00Z"}}
    sas = parse(built(required, {**given, "srq": "snapshot"}))
    assert isinstance(sas, Sas)
    assert "\nsnapshot:2026-01-01T00:00Z\n" in sas.string_to_sign()
    # The same text would be signed, and any snapshot could be named besides.
    renamed = {**vector, "requestQuery": {"snapshot:2026-01-01T00": "00Z", "snapshot": "other"}}
    assert isinstance(parse(built(renamed, {**given, "srq": "snapshot:2026-01-01T00"})), Refusal)


# Formats


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
    # An unsigned bound would be no bound.
    bounded = request(target=f"/{ACCOUNT}/c/b?{made.query}&sip=1.2.3.4")
    assert judged(bounded) is not None


@pytest.mark.parametrize(
    "version", ["2011-08-18", "", "x", "2015-4-5", "9" * 5000, "\uff12015-04-05"]
)
def test_versions_without_tokens(version: str) -> None:
    made = request(target=f"/{ACCOUNT}/c/b?{blob_token('b', 'c/b', version)}")
    assert judged(made) is not None


def test_first_version_of_account_tokens() -> None:
    given = {"sp": "r", "ss": "b", "srt": "o", "se": "2030-01-01", "sv": "2015-02-21"}
    lines = (ACCOUNT, "r", "b", "o", "", "2030-01-01", "", "", "2015-02-21", "")
    signature = sign("\n".join(lines))
    assert judged(request(target=f"/{ACCOUNT}/c/b?{query({**given, 'sig': signature})}"))


# Verification


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


def test_errors_do_not_contain_our_signature() -> None:
    sas = accepted(built(TOKENS[0]))
    refusal = verify(sas, [OTHER_KEY])
    assert refusal is not None
    detail = str(refusal.facts["AuthenticationErrorDetail"])
    assert "/blob/devstoreaccount1/c/b/x" in detail
    assert OTHER_KEY.signature(sas.string_to_sign().encode()).decode() not in detail
    assert sas.signature not in detail


def test_errors_do_not_contain_client_headers() -> None:
    vector = next(each for each in TOKENS if "srh=" in each["token"])
    refusal = verify(accepted(built(vector)), [], lambda _: OTHER_KEY)
    assert refusal is not None
    assert "x-ms-a" not in str(refusal)
