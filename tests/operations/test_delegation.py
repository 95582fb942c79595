"""User delegation with every engine: secrets, the rights of users, and revocation."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from etagere.clock import TICKS_PER_SECOND
from etagere.coordination.local import LocalCoordinator
from etagere.engine.interface import Engine, ReadTxn, Refused
from etagere.engine.memory import MemoryEngine
from etagere.jobs.purging import purge
from etagere.model.accounts import AddAccount, RemoveAccount
from etagere.model.delegation import (
    IssueDelegationKey,
    IssuedKey,
    RevokeDelegationKeys,
    ServiceRights,
    SetUserRights,
    UserName,
    new_secret,
)
from etagere.operations.accounts import add_account, remove_account
from etagere.operations.delegation import (
    DELEGATING_USERS,
    EXPIRING_DELEGATING_USERS,
    PurgeDelegatingUsers,
    get_delegation,
    issue_delegation_key,
    may_purge,
    purge_delegating_users,
    revoke_delegation_keys,
    set_user_rights,
)
from tests.clocks import SharedClock
from tests.engine.conftest import start  # noqa: F401
from tests.engine.harness import Harness, conformance

ANNE = UserName("account", "tenant", "anne")
BERT = UserName("account", "tenant", "bert")
READS = (ServiceRights("blob", ("READ",)),)
WRITES = (ServiceRights("blob", ("READ", "WRITE")), ServiceRights("queue", ("ADD",)))
HOUR = 3_600 * TICKS_PER_SECOND


def now_of(txn: ReadTxn, _: None) -> int:
    return txn.now


async def issue(
    engine: Engine,
    user: UserName = ANNE,
    rights: tuple[ServiceRights, ...] = READS,
    hours: int = 1,
) -> IssuedKey:
    expiry = await engine.read(now_of, None) + hours * HOUR
    command = IssueDelegationKey(user, rights, None, expiry, new_secret())
    return await engine.write(issue_delegation_key, command)


def rows(txn: ReadTxn, _: None) -> tuple[int, int]:
    users = txn.scan(DELEGATING_USERS, DELEGATING_USERS.all(), 1_000)
    expiring = txn.scan(EXPIRING_DELEGATING_USERS, EXPIRING_DELEGATING_USERS.all(), 1_000)
    return len(users), len(expiring)


@conformance
async def test_keys_of_an_account_share_a_secret(harness: Harness) -> None:
    engine = await harness.open()
    keys = await asyncio.gather(*[issue(engine, user) for user in (ANNE, BERT) * 5])
    assert len({key.secret for key in keys}) == 1
    other = await issue(engine, UserName("other", "tenant", "anne"))
    assert other.secret != keys[0].secret
    delegation = await engine.read(get_delegation, ANNE)
    assert delegation is not None
    assert (delegation.secret, delegation.rights) == (keys[0].secret, READS)


@conformance
async def test_the_last_rights_of_a_user_count(harness: Harness) -> None:
    engine = await harness.open()
    await issue(engine, rights=WRITES, hours=2)
    await issue(engine, rights=READS)
    for rights in (READS, WRITES, ()):
        await engine.write(set_user_rights, SetUserRights(ANNE, rights))
        delegation = await engine.read(get_delegation, ANNE)
        assert delegation is not None
        assert delegation.rights == rights
    # Users without keys are not recorded.
    await engine.write(set_user_rights, SetUserRights(BERT, READS))
    assert await engine.read(get_delegation, BERT) is None
    assert await engine.read(rows, None) == (1, 1)


@conformance
async def test_an_older_token_does_not_restore_rights(harness: Harness) -> None:
    engine = await harness.open()
    await issue(engine, rights=WRITES)
    await engine.write(set_user_rights, SetUserRights(ANNE, READS, 200))
    expiry = await engine.read(now_of, None) + HOUR
    older = IssueDelegationKey(ANNE, WRITES, None, expiry, new_secret(), 100)
    await engine.write(issue_delegation_key, older)
    await engine.write(set_user_rights, SetUserRights(ANNE, WRITES, 199))
    delegation = await engine.read(get_delegation, ANNE)
    assert delegation is not None
    assert delegation.rights == READS
    await engine.write(set_user_rights, SetUserRights(ANNE, WRITES, 200))
    delegation = await engine.read(get_delegation, ANNE)
    assert delegation is not None
    assert delegation.rights == WRITES


@conformance
async def test_a_token_from_the_future_does_not_keep_its_rights(harness: Harness) -> None:
    engine = await harness.open()
    now = await engine.read(now_of, None)
    future = 1 << 40
    early = IssueDelegationKey(ANNE, WRITES, None, now + HOUR, new_secret(), future)
    await engine.write(issue_delegation_key, early)
    await engine.write(set_user_rights, SetUserRights(ANNE, WRITES, future))
    later = now // TICKS_PER_SECOND + 3_600
    await engine.write(set_user_rights, SetUserRights(ANNE, READS, later))
    delegation = await engine.read(get_delegation, ANNE)
    assert delegation is not None
    assert delegation.rights == READS


@conformance
async def test_revocation(harness: Harness) -> None:
    engine = await harness.open()
    with pytest.raises(Refused, match="ResourceNotFound"):
        await engine.write(revoke_delegation_keys, RevokeDelegationKeys("account"))
    first = await issue(engine)
    await engine.write(revoke_delegation_keys, RevokeDelegationKeys("account"))
    assert await engine.read(get_delegation, ANNE) is None
    second = await issue(engine)
    assert second.secret != first.secret
    # Accounts without keys of users.
    await engine.write(add_account, AddAccount("stored", b"1", b"2"))
    for account in ("stored", "devstoreaccount1"):
        await engine.write(revoke_delegation_keys, RevokeDelegationKeys(account))


@conformance
async def test_a_removed_account_has_no_keys(harness: Harness) -> None:
    engine = await harness.open()
    await engine.write(add_account, AddAccount("account", b"1", b"2"))
    await issue(engine)
    await engine.write(remove_account, RemoveAccount("account"))
    assert await engine.read(get_delegation, ANNE) is None


@conformance
async def test_users_are_purged_when_their_last_key_has_expired(harness: Harness) -> None:
    engine = await harness.open()
    harness.clock.freeze()
    await issue(engine, ANNE, hours=1)
    await issue(engine, ANNE, hours=3)
    await issue(engine, ANNE, hours=2)
    await issue(engine, BERT, hours=1)
    assert await engine.read(rows, None) == (2, 2)
    assert not await engine.read(may_purge, None)
    harness.clock.advance(2 * HOUR)
    assert await engine.read(may_purge, None)
    assert await engine.write(purge_delegating_users, PurgeDelegatingUsers()) == 1
    assert await engine.read(get_delegation, BERT) is None
    assert await engine.read(get_delegation, ANNE) is not None
    harness.clock.advance(2 * HOUR)
    assert await engine.write(purge_delegating_users, PurgeDelegatingUsers()) == 1
    assert await engine.write(purge_delegating_users, PurgeDelegatingUsers()) == 0
    assert await engine.read(rows, None) == (0, 0)


@conformance
async def test_a_step_of_purging_is_bounded(harness: Harness) -> None:
    engine = await harness.open()
    harness.clock.freeze()
    for number in range(5):
        await issue(engine, UserName("account", "tenant", str(number)))
    harness.clock.advance(2 * HOUR)
    counts = [await engine.write(purge_delegating_users, PurgeDelegatingUsers(2)) for _ in range(4)]
    assert counts == [2, 2, 1, 0]


@conformance
async def test_what_is_refused_changes_nothing(harness: Harness) -> None:
    engine = await harness.open()
    now = await engine.read(now_of, None)
    good = IssueDelegationKey(ANNE, READS, now, now + HOUR, new_secret())
    for user, begins, expiry, code in (
        (ANNE, now, now, "InvalidXmlNodeValue"),
        (ANNE, now, now + 8 * 24 * HOUR, "InvalidXmlNodeValue"),
        (UserName("account", "", "anne"), now, now + HOUR, "AuthorizationFailure"),
        (UserName("account", "tenant", "a\nb"), now, now + HOUR, "AuthorizationFailure"),
        (UserName("account", "tenant", "x" * 129), now, now + HOUR, "AuthorizationFailure"),
        (UserName("No Account", "tenant", "anne"), now, now + HOUR, "InvalidResourceName"),
    ):
        command = IssueDelegationKey(user, good.rights, begins, expiry, good.secret)
        with pytest.raises(Refused, match=code):
            await engine.write(issue_delegation_key, command)
    assert await engine.read(rows, None) == (0, 0)


def test_no_secret_is_shown() -> None:
    secret = b"0123456789abcdef"
    shown = repr(IssueDelegationKey(ANNE, READS, None, 5, secret)) + repr(IssuedKey(secret, 1, 2))
    assert "0123" not in shown


def test_the_purging_job_purges_users(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = SharedClock()
        clock.freeze()
        engine = MemoryEngine(clock)
        coordinator = LocalCoordinator(tmp_path)
        await issue(engine)
        await purge(engine, coordinator)
        assert await engine.read(rows, None) == (1, 1)
        clock.advance(2 * HOUR)
        await purge(engine, coordinator)
        assert await engine.read(rows, None) == (0, 0)
        coordinator.close()

    asyncio.run(scenario())
