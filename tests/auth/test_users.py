"""Users: identities of tokens, the rights that roles give them, and the cache of tokens."""

from __future__ import annotations

import pytest

from etagere.auth.bearer import Claims
from etagere.auth.key_set import KeySet
from etagere.auth.known_users import KnownUser, KnownUsers, digest
from etagere.auth.roles import Right, rights_of
from etagere.auth.users import NO_ID, RoleMap, user
from etagere.rules.delegation import check_user_ids
from etagere.settings.oauth import Role, parse_role_assignments


def role_map(*texts: str) -> RoleMap:
    return RoleMap([assigned for text in texts for assigned in parse_role_assignments(text)])


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        (Claims(roles=["a", "b"], groups="g"), {("roles", "a"), ("roles", "b"), ("groups", "g")}),
        (Claims(scp="read write"), {("scp", "read"), ("scp", "write")}),
        (Claims(scope="read", azp="app", sub="me"),
         {("scp", "read"), ("appid", "app"), ("oid", "me")}),
        (Claims(scp="a", scope="b", appid="c", azp="d", oid="e", sub="f"),
         {("scp", "a"), ("appid", "c"), ("oid", "e")}),
        (Claims(roles=["", "a b"], groups=""), {("roles", "a b")}),
        (Claims(), set()),
    ],
)  # fmt: skip
def test_identities(claims: Claims, expected: set[tuple[str, str]]) -> None:
    assert set(claims.identities()) == expected


ME = Claims(oid="me", roles=["writers"], groups=["staff"], scp="use", appid="app")


@pytest.mark.parametrize(
    ("assigned", "roles"),
    [
        (["me=blob-reader"], [Role.BLOB_READER]),
        (["writers=blob-contributor", "staff=queue-reader"],
         [Role.BLOB_CONTRIBUTOR, Role.QUEUE_READER]),
        (["app=file-reader", "use=table-reader"], [Role.FILE_READER, Role.TABLE_READER]),
        (["*=blob-reader"], [Role.BLOB_READER]),
        (["groups:*=blob-reader"], [Role.BLOB_READER]),
        (["groups:staff=blob-reader"], [Role.BLOB_READER]),
        (["me=blob-reader@mine,queue-reader@other"], [Role.BLOB_READER]),
        (["me=queue-reader@other"], []),
        (["*=owner@other"], []),
    ],
)  # fmt: skip
def test_roles_of_a_user(assigned: list[str], roles: list[Role]) -> None:
    assert role_map(*assigned).rights(ME, "mine") == rights_of(roles)


@pytest.mark.parametrize(
    "assigned",
    [
        [],
        ["you=owner"],
        ["ME=owner"],
        ["roles:staff=owner"],
        ["oid:writers=owner", "groups:me=owner", "scp:app=owner", "appid:use=owner"],
    ],
)
def test_users_to_whom_nothing_is_assigned(assigned: list[str]) -> None:
    assert role_map(*assigned).rights(ME, "mine") is None


def test_a_star_in_a_token_is_an_ordinary_value() -> None:
    claims = Claims(groups=["*"], oid="x")
    assert role_map("groups:staff=owner", "oid:*=blob-reader").rights(claims, "mine") == rights_of(
        [Role.BLOB_READER]
    )


def test_a_user_is_identified_by_object_and_tenant() -> None:
    rights = {"blob": Right.READ}
    found = user(Claims(oid="o", sub="s", tid="t", upn="n"), "mine", rights, intends_backup=True)
    assert (found.account, found.object_id, found.tenant_id, found.name) == ("mine", "o", "t", "n")
    assert found.intends_backup
    other = user(Claims(sub="s"), "mine", rights, intends_backup=False)
    assert (other.object_id, other.tenant_id, other.name) == ("s", NO_ID, "")
    assert other.may(Right.READ, "blob")
    assert not other.may(Right.READ | Right.WRITE, "blob")
    assert not other.may(Right.READ, "queue")


def test_users_of_different_issuers_are_different() -> None:
    """Subjects are unique only within an issuer."""
    issuers = ("https://a.example.com/", "https://b.example.com/", "")
    users = [user(Claims(iss=iss, sub="s"), "mine", {}, intends_backup=False) for iss in issuers]
    tenants = [one.tenant_id for one in users]
    assert len(set(tenants)) == 3
    assert all(check_user_ids(tenant) is None for tenant in tenants)


def test_users_without_an_id_have_no_user_delegation_keys() -> None:
    nobody = user(Claims(iss="https://a.example.com/"), "mine", {}, intends_backup=False)
    assert check_user_ids(nobody.tenant_id, nobody.object_id) is not None
    named = user(Claims(), "mine", {}, intends_backup=False, default_id=NO_ID)
    assert check_user_ids(named.tenant_id, named.object_id) is None


# The cache


def known(name: str) -> KnownUser:
    return KnownUser(Claims(), user(Claims(oid=name), "mine", {}, intends_backup=False))


def test_a_token_is_known_to_the_keys_that_verified_it() -> None:
    users, keys = KnownUsers(), KeySet({})
    key = digest("token"), "blob", "mine", False
    users.add(key, keys, known("a"))
    assert users.find(key, keys) == known("a")
    assert users.find(key, KeySet({})) is None
    assert users.find(key, None) is None
    for other in (
        (digest("token."), "blob", "mine", False),
        (digest("token"), "queue", "mine", False),
        (digest("token"), "blob", "yours", False),
        (digest("token"), "blob", "mine", True),
    ):
        assert users.find(other, keys) is None


def test_the_cache_is_bounded() -> None:
    users, keys = KnownUsers(count_max=2), KeySet({})
    names = ("a", "b", "c")
    for name in names:
        users.add((digest(name), "blob", "mine", False), keys, known(name))
    kept = [users.find((digest(name), "blob", "mine", False), keys) for name in names]
    assert kept == [None, known("b"), known("c")]
