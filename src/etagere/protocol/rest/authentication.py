"""Authentication of requests: SharedKey, SAS, bearer token or anonymous."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from etagere.auth import delegation, sas, sas_parsing, sas_signature, shared_key
from etagere.auth.challenges import (
    NO_TENANT,
    challenge,
    check_authorization,
    is_bearer,
    refuse_bearer,
)
from etagere.auth.known_tokens import KnownToken, KnownTokens
from etagere.auth.permissions import refuse_anonymous
from etagere.auth.principal import Anonymous, KeyOwner, Principal, User
from etagere.auth.request import RestRequest
from etagere.auth.roles import Right
from etagere.auth.shared_key import AccountKey
from etagere.engine.interface import Engine, ReadTxn, Refused, abort_if, unwrap
from etagere.model.accounts import BUILT_IN
from etagere.model.delegation import SetUserRights, UserName
from etagere.model.service import SignedIdentifier
from etagere.operations.accounts import get_account
from etagere.operations.delegation import (
    get_delegating_user,
    get_delegation,
    set_user_rights,
)
from etagere.protocol.rest.exchange import Exchange
from etagere.rules.accounts import check_account_name, check_built_in_access
from etagere.settings import Settings
from etagere.settings.oauth import parse_url
from etagere.settings.values import KEY_BYTES_MAX

if TYPE_CHECKING:
    from etagere.protocol.rest.cells import Cells
    from etagere.protocol.rest.user_authentication import UserAuthenticator

_NANOSECONDS_PER_TICK = 100


@lru_cache(maxsize=256)
def _prepared(key: bytes) -> AccountKey:
    """Caches the HMAC state of a key: keys are few and always in use."""
    return AccountKey(key)


Keys = tuple[AccountKey, ...]


def _all(keys: tuple[bytes, ...]) -> Keys:
    return tuple([_prepared(key) for key in keys])


PoliciesOf = Callable[[ReadTxn, tuple[str, str]], tuple[SignedIdentifier, ...]]
"""Returns the stored access policies of the resource with a name in an account, if there is one."""


def _authority(settings: Settings) -> str:
    """Returns the directory of the challenge; "" if this server has to stand in for it."""
    if settings.oauth_authority is not None:
        return settings.oauth_authority.removesuffix("/")
    if settings.oauth == "on":
        with contextlib.suppress(ValueError):
            return parse_url(settings.oauth_issuers[0]).removesuffix("/")
    return ""


class _Delegation(NamedTuple):
    """The user delegation key of a token, and the rights of the user in the service."""

    key: AccountKey | None = None
    rights: Right | None = None


_NO_DELEGATION: Final = _Delegation()


class Authenticator:
    """Verifies signatures and tokens, by the wall clock."""

    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        policies: Mapping[str, PoliciesOf],
        users: UserAuthenticator | None = None,
        cells: Cells | None = None,
    ) -> None:
        """`policies` reads, for each service, the policies that its tokens may refer to. `users`
        verifies bearer tokens; None: they are not accepted. `cells` looks accounts up before;
        None: there is one cell only."""
        self._engine = engine
        self.cells = cells
        self._policies = policies
        self._settings = settings
        self._tokens = KnownTokens()
        # Keys that are not in the ledger.
        self._configured = {name: _all(account.keys) for name, account in BUILT_IN.items()}
        self._configured |= {account.name: _all(account.keys) for account in settings.accounts}
        # A random key, which nobody can sign with. Requests to accounts that do not exist are
        # verified against it, so that responses do not reveal which accounts exist.
        self._unknown_account_keys: Keys = (AccountKey(os.urandom(KEY_BYTES_MAX)),)
        self._users = users
        self._authority = _authority(settings)

    def challenge(self, exchange: Exchange) -> str:
        """Returns the WWW-Authenticate header of a request without a usable token."""
        authority = self._authority
        if not authority:
            host = exchange.header("host") or "localhost"
            authority = f"{exchange.request.scheme}://{host}/{NO_TENANT}"
        return challenge(authority)

    def authenticate(self, exchange: Exchange) -> Awaitable[Principal]:
        """Returns the sender of a request; raises `Refused`."""
        return self._authenticate(exchange, exchange.header("host"))

    def authenticate_source(self, exchange: Exchange, source: Exchange) -> Awaitable[Principal]:
        """Returns the principal that reads the source of a request; raises `Refused`. The request
        for the source has the host of the request, whatever host is in the URL of the source."""
        return self._authenticate(source, exchange.header("host"))

    async def _authenticate(self, exchange: Exchange, host: str | None) -> Principal:
        request = exchange.request
        abort_if(check_built_in_access(request.account, request.client, host, self._settings))
        keys = self._configured.get(request.account) or await self._stored(exchange)
        now = time.time_ns() // _NANOSECONDS_PER_TICK
        account_exists = keys is not self._unknown_account_keys
        authorization = request.fields.get("authorization")
        if authorization is not None and not sas_parsing.requires_user(request):
            if is_bearer(authorization):
                return await self._user(exchange, host, account_exists=account_exists)
            abort_if(shared_key.verify(request, keys, now))
            return KeyOwner(request.account)
        if sas_parsing.carries_sas(request):
            token = self._tokens.find(request, keys)
            if token is None or token.delegation_key is not None:
                token = await self._verify_and_remember(request, keys, token)
            abort_if(sas.check_origin(token.sas, request))
            abort_if(sas.check_time(token.granted, now))
            holder = token.holder
            if holder.required_user:
                user = None
                if authorization is not None and is_bearer(authorization):
                    user = await self._user(exchange, host, account_exists=account_exists)
                abort_if(delegation.check_required_user(holder, user))
            return holder
        if not account_exists and check_account_name(request.account) is not None:
            # No account can have this name, and it cannot be looked up.
            raise Refused(refuse_anonymous(exchange.challenge_version))
        return Anonymous(request.account, account_exists)

    async def _user(self, exchange: Exchange, host: str | None, *, account_exists: bool) -> User:
        service, authorization = exchange.request.service, exchange.request.fields["authorization"]
        abort_if(check_authorization(service, exchange.challenge_version, authorization))
        if self._users is None:
            raise Refused(refuse_bearer(service, exchange.version))
        return await self._users.authenticate(
            exchange, host, account_exists=account_exists, on_verified=self._record_rights
        )

    async def _record_rights(self, user: User) -> None:
        """Records the rights of a user with a new token, if the user has user delegation keys."""
        name = UserName(user.account, user.tenant_id, user.object_id)
        recorded = await self._engine.read(get_delegating_user, name)
        rights = delegation.rights_to_store(user.rights)
        if recorded is None or recorded.token_issued > user.token_issued:
            return
        if (recorded.rights, recorded.token_issued) != (rights, user.token_issued):
            command = SetUserRights(name, rights, user.token_issued)
            await self._engine.write(set_user_rights, command)

    async def _stored(self, exchange: Exchange) -> Keys:
        """Returns the keys of an account in the ledger, or a random one if it does not exist."""
        account, stored = exchange.request.account, exchange.stored_account
        if self.cells is None and check_account_name(account) is None:
            stored = await self._engine.read(get_account, account)
        return self._unknown_account_keys if stored is None else _all(stored.keys)

    async def _verify_and_remember(
        self, request: RestRequest, keys: Keys, known: KnownToken | None
    ) -> KnownToken:
        """Verifies a token, and remembers it."""
        token = await self._verified(request, keys, known)
        if token is not known:
            self._tokens.add(request, keys, token)
        return token

    async def _verified(
        self, request: RestRequest, keys: Keys, known: KnownToken | None
    ) -> KnownToken:
        """Verifies a token. Of a `known` one only what may have changed is verified: its user
        delegation key, and the rights of the user."""
        token = unwrap(sas_parsing.parse(request)) if known is None else known.sas
        delegated = await self._delegation(token, keys)
        if known is None or known.delegation_key is not delegated.key:
            abort_if(sas_signature.verify(token, keys, lambda _: delegated.key))
            policy = await self._policy(token) if token.policy_id else None
            granted = unwrap(sas.effective(token, policy))
            holder = sas.principal(token, granted)
            known = KnownToken(token, granted, holder, delegated.key)
        if known.holder.rights == delegated.rights:
            return known
        return known._replace(holder=replace(known.holder, rights=delegated.rights))

    async def _delegation(self, token: sas.Sas, keys: Keys) -> _Delegation:
        """Returns the user delegation key that a token names, and the current rights of its
        user."""
        key = token.key
        if key is None or self._settings.oauth == "off":
            return _NO_DELEGATION
        abort_if(delegation.check_key(token))
        user = UserName(token.account, key.tenant_id, key.object_id)
        stored = await self._engine.read(get_delegation, user)
        # The secret of an account is still there if the account was removed from the settings.
        if stored is None or keys is self._unknown_account_keys:
            return _NO_DELEGATION
        rights = delegation.stored_rights(stored.rights, token.service)
        return _Delegation(delegation.signing_key(stored.secret, key), rights)

    async def _policy(self, token: sas.Sas) -> sas.Policy | None:
        """Returns the current stored policy that a token names."""
        place = token.account, token.scope.partition("/")[0]
        for stored in await self._engine.read(self._policies[token.service], place):
            if stored.id == token.policy_id:
                policy = stored.policy
                return sas.Policy(
                    sas.iso_time(policy.start) if policy.start else None,
                    sas.iso_time(policy.expiry) if policy.expiry else None,
                    policy.permission or "",
                )
        return None
