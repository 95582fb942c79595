"""Requests with bearer tokens: who is accepted from where, and how often tokens are verified."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from etagere.auth import bearer
from etagere.auth.challenges import BearerChallenge, TokenFault
from etagere.auth.key_set import KeySet, parse_key_set
from etagere.auth.principal import User
from etagere.auth.roles import ALL_RIGHTS_EVERYWHERE
from etagere.engine.interface import Fault, FaultReason, Refused
from etagere.engine.memory import MemoryEngine
from etagere.errors import Refusal
from etagere.protocol.http.messages import Request, RequestBody
from etagere.protocol.rest.authentication import Authenticator
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.user_authentication import UserAuthenticator
from etagere.settings import Settings
from etagere.settings.oauth import parse_role_assignments
from etagere.settings.values import ConfiguredAccount
from tests.tokens import ISSUER, OBJECT_ID, TENANT, ec_key, key_set, signed, unsigned

ACCOUNT = "mine"
KEY = ec_key("first")
VERSION = "2023-11-03"


class FakeKeys:
    """Keys that the test replaces."""

    def __init__(self) -> None:
        self.keys = parse_key_set(key_set(KEY))
        self.renewals = 0

    def current(self) -> KeySet:
        return self.keys

    async def renewed(self) -> KeySet:
        self.renewals += 1
        return self.keys


def settings(**changes: Any) -> Settings:
    roles = parse_role_assignments(f"oid:{OBJECT_ID}=owner")
    account = ConfiguredAccount(ACCOUNT, (b"key",))
    usual = {"accounts": (account,), "oauth_issuers": (ISSUER,), "oauth_roles": roles}
    return Settings(**{**usual, **changes})


class Fixture:
    def __init__(self, keys: FakeKeys | None, **changes: Any) -> None:
        chosen = settings(**changes)
        users = UserAuthenticator(chosen, keys)
        self._authenticator = Authenticator(MemoryEngine(), chosen, {}, users)

    def outcome(self, token: str, **options: Any) -> User | Refusal:
        return asyncio.run(self.authenticate(token, **options))

    async def authenticate(
        self,
        token: str,
        *,
        service: str = "blob",
        account: str = ACCOUNT,
        secure: bool = True,
        client: str = "127.0.0.1",
        host: str = "localhost",
        version: str = VERSION,
        **headers: str,
    ) -> User | Refusal:
        fields = {
            b"host": host.encode(),
            b"authorization": f"Bearer {token}".encode(),
            b"x-ms-version": version.encode(),
            **{name.replace("_", "-").encode(): text.encode() for name, text in headers.items()},
        }
        if not version:
            del fields[b"x-ms-version"]
        body = RequestBody(None, 0)  # type: ignore[arg-type]  # never read
        request = Request("GET", f"/{account}/c/b".encode(), [], fields, body)
        request.client, request.secure = client, secure
        try:
            found = await self._authenticator.authenticate(Exchange(service, request))
        except Refused as refused:
            return refused.refusal
        assert isinstance(found, User)
        return found

    def code(self, token: str, **options: Any) -> str:
        found = self.outcome(token, **options)
        return found.code if isinstance(found, Refusal) else ""


@pytest.fixture
def keys() -> FakeKeys:
    return FakeKeys()


@pytest.fixture
def configured(keys: FakeKeys) -> Fixture:
    return Fixture(keys)


@pytest.fixture
def development() -> Fixture:
    return Fixture(None, oauth_roles=())


def test_the_user_of_a_token(configured: Fixture) -> None:
    assert configured.outcome(signed(KEY, iat=1)) == User(
        account=ACCOUNT,
        object_id=OBJECT_ID,
        tenant_id=TENANT,
        rights=ALL_RIGHTS_EVERYWHERE,
        token_issued=1,
    )


# Where requests come from


def test_configured_tokens_need_https(configured: Fixture) -> None:
    assert configured.code(signed(KEY), secure=False) == "AuthenticationFailed"
    for options in ({"client": "10.0.0.1"}, {"host": "storage.example.com"}):
        assert configured.code(signed(KEY), **options) == ""


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize(
    ("client", "host", "code"),
    [
        ("127.0.0.1", "localhost", ""),
        ("127.0.0.9", "mine.blob.localhost:10000", ""),
        ("::1", "[::1]:10000", ""),
        ("::ffff:127.0.0.1", "127.0.0.1", ""),
        ("10.0.0.1", "localhost", "AuthorizationSourceIPMismatch"),
        ("::ffff:10.0.0.1", "localhost", "AuthorizationSourceIPMismatch"),
        ("", "localhost", "AuthorizationSourceIPMismatch"),
        ("127.0.0.1", "mallory.example.com", "AuthorizationFailure"),
        ("127.0.0.1", "localhost.mallory.example.com", "AuthorizationFailure"),
    ],
)
def test_development_tokens_need_this_machine(
    development: Fixture, secure: bool, client: str, host: str, code: str
) -> None:
    anywhere = Fixture(None, development_account_anywhere=True)
    for fixture in (development, anywhere):
        for token in (unsigned(), signed(KEY)):
            assert fixture.code(token, secure=secure, client=client, host=host) == code


# Versions


@pytest.mark.parametrize("service", ["blob", "queue", "table", "file"])
def test_versions(configured: Fixture, development: Fixture, service: str) -> None:
    first = "2022-11-02" if service == "file" else "2017-11-09"
    for fixture, token in ((configured, signed(KEY)), (development, unsigned())):
        assert fixture.code(token, service=service, version=first) == ""
        for version in ("", "2017-07-29"):
            code = fixture.code(token, service=service, version=version)
            assert code == "AuthenticationFailed"


def test_unusable_tokens_are_challenged(configured: Fixture) -> None:
    for token in ("", "x", unsigned(), signed(ec_key("other"), {"kid": "first"})):
        refusal = configured.outcome(token)
        assert isinstance(refusal, BearerChallenge)
        assert token not in str(refusal) or not token


# Rights


def test_users_without_roles(configured: Fixture, development: Fixture) -> None:
    outcome = configured.outcome(signed(KEY, oid="somebody"))
    assert isinstance(outcome, User)
    assert outcome.rights == {}
    outcome = development.outcome(unsigned(oid="somebody"))
    assert isinstance(outcome, User)
    assert outcome.rights == ALL_RIGHTS_EVERYWHERE


def test_users_have_no_rights_in_an_account_that_does_not_exist(
    configured: Fixture, development: Fixture
) -> None:
    for fixture, token in ((configured, signed(KEY)), (development, unsigned())):
        for account in ("nobody", "n", "no_name!"):
            outcome = fixture.outcome(token, account=account)
            assert isinstance(outcome, User)
            assert outcome.rights == {}


def test_the_intent_of_a_backup(configured: Fixture) -> None:
    token = signed(KEY)
    for intent, intends in (("backup", True), ("Backup", True), (None, False)):
        headers: dict[str, Any] = {} if intent is None else {"x_ms_file_request_intent": intent}
        for _ in range(2):
            outcome = configured.outcome(token, service="file", **headers)
            assert isinstance(outcome, User)
            assert outcome.intends_backup is intends
    for intent in ("read", ""):
        code = configured.code(token, service="file", x_ms_file_request_intent=intent)
        assert code == "InvalidHeaderValue"
        assert configured.code(token, x_ms_file_request_intent=intent) == ""


# Known tokens


@pytest.fixture
def verifications(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tokens that were verified."""
    verified: list[str] = []
    verify = bearer.verify

    def counting(token: str, *rest: Any) -> Any:
        verified.append(token)
        return verify(token, *rest)

    monkeypatch.setattr(bearer, "verify", counting)
    return verified


def test_a_token_is_verified_once(configured: Fixture, verifications: list[str]) -> None:
    token = signed(KEY)
    first = configured.outcome(token)
    for _ in range(3):
        assert configured.outcome(token) is first
    assert len(verifications) == 1
    configured.outcome(token, service="queue")
    assert len(verifications) == 2


def test_the_audience_of_a_known_token_is_checked(configured: Fixture) -> None:
    token = signed(KEY, aud=f"https://{ACCOUNT}.blob.core.windows.net")
    assert configured.code(token) == ""
    assert configured.code(token, service="queue") == "InvalidAuthenticationInfo"
    assert configured.code(token, account="other") == "InvalidAuthenticationInfo"


@pytest.mark.parametrize("mode", ["configured", "development"])
def test_a_known_token_expires(
    mode: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixture: Fixture = request.getfixturevalue(mode)
    now, skew = 2_000_000_000, bearer.CLOCK_SKEW_SECONDS if mode == "configured" else 0
    token = signed(KEY, nbf=now - 10, exp=now + 10)
    for seconds, accepted in (
        (-10 - skew - 1, False),
        (-10 - skew, True),
        (0, True),
        (9 + skew, True),
        (10 + skew, False),
    ):
        monkeypatch.setattr("time.time", lambda at=now + seconds: float(at))
        assert (fixture.code(token) == "") is accepted, seconds


def test_a_known_token_of_a_withdrawn_key_is_refused(configured: Fixture, keys: FakeKeys) -> None:
    token = signed(KEY)
    assert configured.code(token) == ""
    keys.keys = parse_key_set(key_set(ec_key("second"), ec_key("third")))
    assert configured.code(token) == "InvalidAuthenticationInfo"
    keys.keys = parse_key_set(key_set(KEY, ec_key("second")))
    assert configured.code(token) == ""


def test_expired_tokens_are_not_kept(configured: Fixture, verifications: list[str]) -> None:
    token = signed(KEY, nbf=0, exp=1)
    for _ in range(2):
        assert configured.code(token) == "InvalidAuthenticationInfo"
    assert len(verifications) == 2


def test_expired_tokens_do_not_restore_the_rights_of_a_user(
    keys: FakeKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """User delegation keys grant the rights of the last token of their user."""
    recorded: list[str] = []

    async def record(_: Authenticator, user: User) -> None:
        recorded.append(user.object_id)

    monkeypatch.setattr(Authenticator, "_record_rights", record)
    fixture = Fixture(keys)
    for token in (signed(KEY, nbf=0, exp=1), signed(KEY, aud="x"), signed(KEY, iss="x")):
        assert fixture.code(token) == "InvalidAuthenticationInfo"
    assert recorded == []
    assert fixture.code(signed(KEY, oid="current")) == ""
    assert recorded == ["current"]


def test_a_token_is_not_known_until_its_rights_are_recorded(
    keys: FakeKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = 0

    async def record(_: Authenticator, user: User) -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise Fault(FaultReason.UNAVAILABLE, user.object_id)

    monkeypatch.setattr(Authenticator, "_record_rights", record)
    fixture, token = Fixture(keys), signed(KEY)
    with pytest.raises(Fault):
        fixture.outcome(token)
    for _ in range(2):
        assert fixture.code(token) == ""
    assert attempts == 2


def test_only_unknown_keys_are_looked_for(configured: Fixture, keys: FakeKeys) -> None:
    configured.code(signed(KEY))
    for token in ("x", signed(KEY, iss="x"), signed(ec_key("other"), {"kid": "first"})):
        configured.code(token)
    assert keys.renewals == 0
    configured.code(signed(ec_key("other")))
    assert keys.renewals == 1


def test_tokens_in_development_mode_are_parsed_once(
    development: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = unsigned()
    first = development.outcome(token)
    monkeypatch.setattr(bearer, "parse", None)
    assert development.outcome(token) is first


def test_others_are_served_between_two_verifications(
    configured: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody can send tokens on many connections."""
    passes = [0]
    verified_in: list[int] = []
    verify = bearer.verify

    def note(*arguments: Any) -> bearer.Claims | TokenFault:
        verified_in.append(passes[0])
        return verify(*arguments)

    async def serve_others() -> None:
        while True:
            passes[0] += 1
            await asyncio.sleep(0)

    async def attack() -> None:
        others = asyncio.create_task(serve_others())
        tokens = [signed(ec_key("mallory"), {"kid": "first"}, jti=str(one)) for one in range(5)]
        await asyncio.gather(*map(configured.authenticate, tokens))
        others.cancel()

    monkeypatch.setattr(bearer, "verify", note)
    asyncio.run(attack())
    assert len(set(verified_in)) == len(verified_in) == 5
