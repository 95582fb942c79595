"""Cached tokens are accepted only while everything they were verified with still holds."""

from __future__ import annotations

import asyncio
import base64
import re
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
from azure.storage.blob import generate_account_sas, generate_blob_sas, generate_container_sas

from etagere.auth import sas_signature
from etagere.auth.delegation import derive
from etagere.auth.principal import TokenHolder
from etagere.auth.roles import NO_RIGHT, Right
from etagere.auth.sas import DelegationKey
from etagere.clock import TICKS_PER_SECOND
from etagere.engine.interface import Refused
from etagere.engine.memory import MemoryEngine
from etagere.model.accounts import AddAccount, RemoveAccount, RotateKey
from etagere.model.delegation import (
    IssueDelegationKey,
    RevokeDelegationKeys,
    ServiceRights,
    SetUserRights,
    UserName,
)
from etagere.operations.accounts import add_account, remove_account, rotate_key
from etagere.operations.blob.containers import policies_of
from etagere.operations.delegation import (
    issue_delegation_key,
    revoke_delegation_keys,
    set_user_rights,
)
from etagere.protocol.http.messages import Request, RequestBody
from etagere.protocol.rest.authentication import Authenticator
from etagere.protocol.rest.exchange import Exchange
from etagere.settings import Settings

ACCOUNT = "kept"
KEYS = [bytes([number]) * 64 for number in (1, 2)]
NOW = time.time()


class AuthenticatorFixture:
    """An authenticator that counts its signature checks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.engine = MemoryEngine()
        self.authenticator = self.authenticator_with("development")
        self.verified = 0
        self.now = NOW
        verify = sas_signature.verify

        def counting(*arguments: Any) -> Any:
            self.verified += 1
            return verify(*arguments)

        monkeypatch.setattr(sas_signature, "verify", counting)
        monkeypatch.setattr(time, "time_ns", lambda: int(self.now * 1e9))

    def authenticator_with(self, oauth: str) -> Authenticator:
        return Authenticator(self.engine, Settings(oauth=oauth), {"blob": policies_of})

    async def open(self) -> None:
        await self.engine.write(add_account, AddAccount(ACCOUNT, *KEYS))

    async def admits(self, target: str, *, client: str = "127.0.0.1") -> TokenHolder:
        body = RequestBody(None, 0)  # type: ignore[arg-type]  # never read
        request = Request("GET", target.encode(), [], {b"host": b"localhost"}, body)
        request.client = client
        principal = await self.authenticator.authenticate(Exchange("blob", request))
        assert isinstance(principal, TokenHolder)
        return principal

    async def refuses(self, target: str, *, client: str = "127.0.0.1") -> str:
        with pytest.raises(Refused) as caught:
            await self.admits(target, client=client)
        return caught.value.refusal.code


@pytest.fixture
def fixture(monkeypatch: pytest.MonkeyPatch) -> AuthenticatorFixture:
    return AuthenticatorFixture(monkeypatch)


def instant(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def key_text(number: int = 0) -> str:
    return base64.b64encode(KEYS[number]).decode()


def container_token(container: str = "one", **options: Any) -> str:
    terms = {"permission": "rl", "expiry": instant(NOW + 3600)} | options
    return generate_container_sas(ACCOUNT, container, key_text(), **terms)


def account_token(**options: Any) -> str:
    terms = {"resource_types": "sco", "permission": "rl", "expiry": instant(NOW + 3600)} | options
    return generate_account_sas(ACCOUNT, key_text(), **terms)


def run(scenario: Callable[[], Any]) -> None:
    asyncio.run(scenario())


def test_a_signature_is_verified_once(fixture: AuthenticatorFixture) -> None:
    async def scenario() -> None:
        await fixture.open()
        for token in (container_token(), account_token()):
            first = await fixture.admits(f"/{ACCOUNT}/one/a?{token}")
            assert await fixture.admits(f"/{ACCOUNT}/one/b?{token}") == first
        assert fixture.verified == 2

    run(scenario)


def test_expiry(fixture: AuthenticatorFixture) -> None:
    async def scenario() -> None:
        await fixture.open()
        target = f"/{ACCOUNT}/one/a?{container_token()}"
        await fixture.admits(target)
        fixture.now = NOW + 3601
        assert await fixture.refuses(target) == "AuthenticationFailed"
        fixture.now = NOW
        later = f"/{ACCOUNT}/one/a?{container_token(start=instant(NOW + 60))}"
        assert await fixture.refuses(later) == "AuthenticationFailed"
        fixture.now = NOW + 61
        await fixture.admits(later)

    run(scenario)


def test_another_address(fixture: AuthenticatorFixture) -> None:
    async def scenario() -> None:
        await fixture.open()
        target = f"/{ACCOUNT}/one/a?{container_token(ip='127.0.0.1')}"
        await fixture.admits(target)
        assert await fixture.refuses(target, client="127.0.0.2") == "AuthorizationSourceIPMismatch"

    run(scenario)


def test_another_container(fixture: AuthenticatorFixture) -> None:
    async def scenario() -> None:
        await fixture.open()
        token = container_token("one")
        await fixture.admits(f"/{ACCOUNT}/one/a?{token}")
        for path in ("two/a", "%6fne2/a", "$root/one/a", "one%2Fa/b", "One/a"):
            assert await fixture.refuses(f"/{ACCOUNT}/{path}?{token}") == "AuthenticationFailed"
        # The same one in another notation.
        await fixture.admits(f"/{ACCOUNT}/%6fne/a?{token}")

    run(scenario)


def test_another_account(fixture: AuthenticatorFixture) -> None:
    async def scenario() -> None:
        await fixture.open()
        others = AddAccount("other", *[bytes([number]) * 64 for number in (3, 4)])
        await fixture.engine.write(add_account, others)
        token = account_token()
        await fixture.admits(f"/{ACCOUNT}/one/a?{token}")
        assert await fixture.refuses(f"/other/one/a?{token}") == "AuthenticationFailed"

    run(scenario)


@pytest.mark.parametrize("change", ["&sp=rwdl", "&se=2999-01-01", "&sr=b", "&sig=x", "&si=policy"])
def test_another_query(fixture: AuthenticatorFixture, change: str) -> None:
    async def scenario() -> None:
        await fixture.open()
        target = f"/{ACCOUNT}/one/a?{container_token()}"
        await fixture.admits(target)
        await fixture.refuses(target + change)

    run(scenario)


def test_a_replaced_key(fixture: AuthenticatorFixture) -> None:
    async def scenario() -> None:
        await fixture.open()
        target = f"/{ACCOUNT}/one/a?{account_token()}"
        await fixture.admits(target)
        await fixture.engine.write(rotate_key, RotateKey(ACCOUNT, 1, bytes(64)))
        assert await fixture.refuses(target) == "AuthenticationFailed"

    run(scenario)


def test_blob_tokens_and_long_queries_are_verified_each_time(
    fixture: AuthenticatorFixture,
) -> None:
    async def scenario() -> None:
        await fixture.open()
        terms: dict[str, Any] = {"permission": "r", "expiry": instant(NOW + 3600)}
        token = generate_blob_sas(ACCOUNT, "one", "a", account_key=key_text(), **terms)
        for _ in range(3):
            await fixture.admits(f"/{ACCOUNT}/one/a?{token}")
        assert fixture.verified == 3
        assert await fixture.refuses(f"/{ACCOUNT}/one/b?{token}") == "AuthenticationFailed"
        long = f"/{ACCOUNT}/one/a?{account_token()}&prefix={quote('x' * 2_048)}"
        for _ in range(2):
            await fixture.admits(long)
        assert fixture.verified == 6

    run(scenario)


def test_the_oldest_tokens_are_evicted(fixture: AuthenticatorFixture) -> None:
    async def scenario() -> None:
        await fixture.open()
        target = f"/{ACCOUNT}/one/a?{account_token()}"
        for number in range(1_024 + 1):
            await fixture.admits(f"{target}&n={number}")
        verified = fixture.verified
        await fixture.admits(f"{target}&n={1_024}")
        assert fixture.verified == verified
        await fixture.admits(f"{target}&n=0")
        assert fixture.verified == verified + 1

    run(scenario)


# User delegation

USER = UserName(ACCOUNT, "tenant", "user")
READS = (ServiceRights("blob", ("READ",)),)
WRITES = (ServiceRights("blob", ("READ", "WRITE")),)


class DelegationFixture:
    """A user delegation key of an account, and tokens that are signed with it."""

    def __init__(self, fixture: AuthenticatorFixture) -> None:
        self.fixture = fixture
        self.key: Any = SimpleNamespace(signed_delegated_user_tid=None)

    async def issue(self, rights: tuple[ServiceRights, ...] = WRITES) -> None:
        ticks = int(NOW) * TICKS_PER_SECOND
        command = IssueDelegationKey(
            USER, rights, ticks - 60 * TICKS_PER_SECOND, ticks + 3_600 * TICKS_PER_SECOND, SECRET
        )
        issued = await self.fixture.engine.write(issue_delegation_key, command)
        fields = DelegationKey(
            USER.object_id,
            USER.tenant_id,
            instant(NOW - 60),
            instant(NOW + 3_600),
            "b",
            "2026-10-06",
            "",
        )
        self.key.signed_oid, self.key.signed_tid = fields.object_id, fields.tenant_id
        self.key.signed_start, self.key.signed_expiry = fields.start, fields.expiry
        self.key.signed_service, self.key.signed_version = fields.service, fields.version
        self.key.value = base64.b64encode(derive(issued.secret, fields)).decode()

    def token(self, container: str = "one", **options: Any) -> str:
        terms = {"permission": "rw", "expiry": instant(NOW + 7_200)} | options
        return generate_container_sas(ACCOUNT, container, user_delegation_key=self.key, **terms)


SECRET = bytes(32)


def test_delegated_tokens_are_verified_once(fixture: AuthenticatorFixture) -> None:
    async def scenario() -> None:
        await fixture.open()
        delegation = DelegationFixture(fixture)
        await delegation.issue()
        target = f"/{ACCOUNT}/one/a?{delegation.token()}"
        first = await fixture.admits(target)
        assert first.rights == Right.READ | Right.WRITE
        assert await fixture.admits(target) == first
        assert fixture.verified == 1
        # A key expires before the tokens that it signed.
        fixture.now = NOW + 3_601
        assert await fixture.refuses(target) == "AuthenticationFailed"

    run(scenario)


def test_delegated_tokens_need_a_server_with_users(fixture: AuthenticatorFixture) -> None:
    async def scenario() -> None:
        await fixture.open()
        delegation = DelegationFixture(fixture)
        await delegation.issue()
        target = f"/{ACCOUNT}/one/a?{delegation.token()}"
        await fixture.admits(target)
        fixture.authenticator = fixture.authenticator_with("off")
        assert await fixture.refuses(target) == "AuthenticationFailed"

    run(scenario)


def test_cached_delegated_tokens_and_changes(fixture: AuthenticatorFixture) -> None:
    """Of the rights of the user, of the secret of the account, and of the account itself."""

    async def scenario() -> None:
        await fixture.open()
        delegation = DelegationFixture(fixture)
        await delegation.issue()
        target = f"/{ACCOUNT}/one/a?{delegation.token()}"
        for rights, expected in (
            (READS, Right.READ),
            ((), NO_RIGHT),
            (WRITES, Right.READ | Right.WRITE),
        ):
            await fixture.engine.write(set_user_rights, SetUserRights(USER, rights))
            assert (await fixture.admits(target)).rights == expected
        assert fixture.verified == 1
        await fixture.engine.write(revoke_delegation_keys, RevokeDelegationKeys(ACCOUNT))
        assert await fixture.refuses(target) == "AuthenticationFailed"
        await delegation.issue()  # with the same secret as before
        await fixture.admits(target)
        await fixture.engine.write(remove_account, RemoveAccount(ACCOUNT))
        assert await fixture.refuses(target) == "AuthenticationFailed"

    run(scenario)


def test_an_account_that_was_removed_from_the_settings(fixture: AuthenticatorFixture) -> None:
    """Its secret and its users are still in the ledger."""

    async def scenario() -> None:
        delegation = DelegationFixture(fixture)
        await delegation.issue()
        target = f"/{ACCOUNT}/one/a?{delegation.token()}"
        assert await fixture.refuses(target) == "AuthenticationFailed"

    run(scenario)


def test_tokens_with_required_headers_are_verified_each_time(
    fixture: AuthenticatorFixture,
) -> None:
    async def scenario() -> None:
        await fixture.open()
        delegation = DelegationFixture(fixture)
        await delegation.issue()
        token = delegation.token(request_headers={"host": "localhost"})
        for _ in range(2):
            await fixture.admits(f"/{ACCOUNT}/one/a?{token}")
        assert fixture.verified == 2
        token = delegation.token(request_query_params={"prefix": "a"})
        await fixture.admits(f"/{ACCOUNT}/one/a?{token}&prefix=a")
        assert await fixture.refuses(f"/{ACCOUNT}/one/a?{token}&prefix=b") == "AuthenticationFailed"

    run(scenario)


@pytest.mark.parametrize(
    "change",
    [
        "&suoid=someone",
        "&sks=q",
        "&skoid=%FF",
        "&skoid=",
        "&sktid=x",
        "&skv=",
        "&skv=2026-10-07",
        "&skv=newest",
        "&skdutid=" + "t" * 200,
        "&sduoid=someone",
    ],
)
def test_changed_delegated_tokens(fixture: AuthenticatorFixture, change: str) -> None:
    async def scenario() -> None:
        await fixture.open()
        delegation = DelegationFixture(fixture)
        await delegation.issue()
        target = f"/{ACCOUNT}/one/a?{delegation.token()}"
        await fixture.admits(target)
        name = change[1:].partition("=")[0]
        without = re.sub(rf"([?&]){name}=[^&]*&", r"\1", target)
        assert await fixture.refuses(without + change) == "AuthenticationFailed"

    run(scenario)
