"""Parsing SAS tokens: their scope, their form, and malformed ones."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etagere.auth.principal import EntityRange, covers
from etagere.auth.request import RestRequest, address, text
from etagere.auth.sas import (
    ACCOUNT_LETTERS,
    LETTERS,
    Effective,
    Policy,
    Sas,
    check_origin,
    check_time,
    effective,
    principal,
)
from etagere.auth.sas_parsing import carries_sas, parse
from etagere.auth.sas_signature import verify
from etagere.errors import Refusal
from tests.auth.samples import ACCOUNT, KEY, query, request, sign
from tests.auth.sas_samples import (
    ADDED,
    TOKENS,
    accepted,
    blob_token,
    built,
    delegated,
    file_token,
    judged,
    parameters_of,
)

# Scope


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
        # Also covers xy/…
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


def test_old_tokens_keep_to_their_resource() -> None:
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


@pytest.mark.parametrize(
    ("resource", "canon", "target", "scope"),
    [
        ("s", "s", "s?restype=share", "s"),
        ("s", "s", "s/d/f", "s"),
        ("s", "s", "s/", "s"),
        ("s", "s", "s/d%2Ff", "s"),
        ("s", "s", "s?sharesnapshot=2024-01-01T00:00:00.0000000Z", "s"),
        ("s", "s", "S/d/f", None),
        ("s", "s", "s2/d/f", None),
        ("s", "s", "", None),
        ("s", "s", "/s/f", None),
        ("s", "s", "s%2Ff", None),
        ("s", "s/d", "s%2Fd", None),
        ("s", "s/d", "s%2Fd/f", None),
        ("s", "s/d", "s/d", None),
        ("f", "s/d/f", "s/d/f", "s/d/f"),
        ("f", "s/d/f", "s/d%2Ff", "s/d/f"),
        ("f", "s/d/f", "s/d/f?sharesnapshot=2024-01-01T00:00:00.0000000Z", "s/d/f"),
        ("f", "s/a b/ü+%", "s/a%20b/%C3%BC+%25", "s/a b/ü+%"),
        ("f", "s/Dir/A.txt", "s/Dir/A.txt", "s/Dir/A.txt"),
        ("f", "s/Dir/A.txt", "s/dir/a.txt", None),
        ("f", "s/d/f", "s/d/f.", None),
        ("f", "s/d/f", "s/d./f", None),
        ("f", "s/d/f", "s/d/f/", None),
        ("f", "s/d/f", "s/d//f", None),
        ("f", "s/d/f", "s//d/f", None),
        ("f", "s/d/f", "s/d/./f", None),
        ("f", "s/d/f", "s/d/x/../f", None),
        ("f", "s/d/f", "s/d/%2E%2E/d/f", None),
        ("f", "s/d/f", "s/d%5Cf", None),
        ("f", "s/d/f", "s%2Fd/f", None),
        ("f", "s/d/f", "s%2Fd%2Ff", None),
        ("f", "s/d/f", "s/d/f%00", None),
        ("f", "s/d/f\n", "s/d/f%0A", None),
        ("f", "s/d/f", "s/d", None),
        ("f", "s", "s", None),
        ("f", "s/", "s/", None),
        ("d", "s/d", "s/d", None),
        ("c", "s", "s/d", None),
        ("", "s", "s/d", None),
    ],
)
def test_scope_of_files(resource: str, canon: str, target: str, scope: str | None) -> None:
    """The scope of a token for a file is the path of the request, in the same spelling."""
    mark = "&" if "?" in target else "?"
    made = request(target=f"/{ACCOUNT}/{target}{mark}{file_token(resource, canon)}", service="file")
    if scope is None:
        assert judged(made) is not None
    else:
        assert accepted(made).scope == scope


@pytest.mark.parametrize("version", ["2015-02-21", "2015-04-05", "2026-10-06"])
def test_file_tokens_keep_to_their_resource(version: str) -> None:
    """No version of them signs `sr`, so it must not turn one resource into another."""
    share, file = file_token("s", "s", version), file_token("f", "s/d/f", version)
    for token in (share, file):
        accepted(request(target=f"/{ACCOUNT}/s/d/f?{token}", service="file"))
    for token, old, new in ((share, "s", "f"), (file, "f", "s")):
        changed = token.replace(f"sr={old}", f"sr={new}")
        for target in ("", "s", "s/", "s/d", "s/d/f", "s/d/f/g", "s%2Fd%2Ff", "s%2Fd/f", "d/f"):
            made = request(target=f"/{ACCOUNT}/{target}?{changed}", service="file")
            assert judged(made) is not None, (target, changed)


def test_limits_that_old_file_tokens_do_not_sign() -> None:
    for limit in ({"sip": "1.2.3.4"}, {"spr": "https"}):
        token = file_token("s", "s", "2015-02-21", **limit)
        assert judged(request(target=f"/{ACCOUNT}/s/f?{token}", service="file")) is not None


@pytest.mark.parametrize("version", ["2012-02-12", "2013-08-15", "2014-02-14"])
def test_old_tokens_for_containers_are_not_valid_for_shares(version: str) -> None:
    """Before 2015-02-21 the service is not signed, and there were no tokens for files."""
    order = "sp st se canon si sv" + (
        " rscc rscd rsce rscl rsct" if version >= "2013-08-15" else ""
    )
    for path, container, share in (("c", "c", "s"), ("c/b", "b", "f")):
        fields = {"sp": "r", "se": "2030-01-01", "sv": version}
        values = {**fields, "canon": f"/{ACCOUNT}/{path}"}
        fields["sig"] = sign("\n".join(values.get(name, "") for name in order.split()))
        accepted(request(target=f"/{ACCOUNT}/c/b?{query({**fields, 'sr': container})}"))
        made = request(target=f"/{ACCOUNT}/c/b?{query({**fields, 'sr': share})}", service="file")
        assert judged(made) is not None


@pytest.mark.parametrize(
    ("resource", "letters", "is_valid"),
    [
        ("s", "rcwdl", True),
        ("s", "ldwcr", True),
        ("f", "rcwd", True),
        ("f", "dwcr", True),
        ("f", "rl", False),
        ("s", "ra", False),
        ("s", "rx", False),
        ("s", "R", False),
    ],
)
def test_letters_of_files(resource: str, letters: str, is_valid: bool) -> None:
    canon = "s" if resource == "s" else "s/d/f"
    token = file_token(resource, canon, sp=letters)
    made = request(target=f"/{ACCOUNT}/s/d/f?{token}", service="file")
    assert (judged(made) is None) is is_valid


def test_headers_that_a_file_token_replaces() -> None:
    token = file_token("f", "s/f", rscc="a", rscd="b", rsce="c", rscl="d", rsct="e")
    sas = accepted(request(target=f"/{ACCOUNT}/s/f?{token}", service="file"))
    assert principal(sas, Effective("r", None, 0)).overrides == {
        "cache-control": "a",
        "content-disposition": "b",
        "content-encoding": "c",
        "content-language": "d",
        "content-type": "e",
    }


@pytest.mark.parametrize("resource", ["bs", "bv"])
def test_snapshot_and_version_at_once(resource: str) -> None:
    vector = next(each for each in TOKENS if f"sr={resource}" in each["token"])
    made = built(vector)
    other = "snapshot" if resource == "bv" else "versionid"
    assert judged(request(target=f"{made.path}?{made.query}&{other}=1")) is not None


@pytest.mark.parametrize(
    ("resource", "version"), [("bs", "2018-03-28"), ("bv", "2018-03-28"), ("d", "2019-12-12")]
)
def test_resources_of_later_versions(resource: str, version: str) -> None:
    token = blob_token(resource, "c/b", version, sdd="1")
    made = request(target=f"/{ACCOUNT}/c/b?{token}&snapshot=1")
    assert judged(made) is not None


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
    assert holder.keys == EntityRange("a", "b", "c", "d")
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


# Form


def test_no_token() -> None:
    made = request(target=f"/{ACCOUNT}/c/b?comp=list&sv=2020-12-06")
    assert not carries_sas(made)
    assert not carries_sas(request())
    refusal = parse(made)
    assert isinstance(refusal, Refusal)
    assert refusal.code == "NoAuthenticationInformation"


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


@pytest.mark.parametrize("changed", [{"skt": ""}, {"ske": ""}, {"skt": "x"}, {"si": "policy"}])
def test_malformed_delegation_tokens(changed: dict[str, str]) -> None:
    vector = next(each for each in TOKENS if each["userDelegation"])
    assert isinstance(parse(built(vector, {**parameters_of(vector), **changed})), Refusal)


@pytest.mark.parametrize(("service", "resource"), LETTERS)
def test_permission_letters(service: str, resource: str) -> None:
    known = LETTERS[service, resource]
    given = {"se": "2030-01-01", "sv": "2026-10-06", "sig": "x", "sr": resource, "tn": "c"}
    given |= {"sdd": "1", "snapshot" if resource == "bs" else "versionid": "1"}
    for letter in "abcdefghijklmnopqrstuvwxyzR, -é":
        below = "" if service == "table" else "/b"
        target = f"/{ACCOUNT}/c{below}?{query({**given, 'sp': letter})}"
        sas = parse(request(target=target, service=service))
        assert isinstance(sas, Sas) is (letter in known), letter


def test_permission_letters_of_account_tokens() -> None:
    given = {"ss": "b", "srt": "o", "se": "2030-01-01", "sv": "2020-12-06", "sig": "x"}
    for letter in "abcdefghijklmnopqrstuvwxyz":
        sas = parse(request(target=f"/{ACCOUNT}/c/b?{query({**given, 'sp': letter})}"))
        assert isinstance(sas, Sas) is (letter in ACCOUNT_LETTERS), letter


# Arbitrary input

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
def test_arbitrary_input_is_refused(
    service: str,
    path: str,
    given: dict[str, str],
    vector: dict[str, Any] | None,
    header: str,
    client: str,
) -> None:
    base = {} if vector is None else {**parameters_of(vector), "sig": "x"}
    joined = "&".join(f"{name}={value}" for name, value in {**base, **given}.items())
    made = RestRequest(
        service, "GET", address("h", path), path, joined, {"x-ms-a": header}, client=client
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
