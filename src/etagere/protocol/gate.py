"""Who sent a request, and whether they may: the schemes in turn, then the table of permissions."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from functools import lru_cache

from etagere.auth import sas, sas_parsing, sas_signature, shared_key
from etagere.auth.bearer import is_bearer, refuse_bearer
from etagere.auth.known_tokens import KnownToken, KnownTokens
from etagere.auth.permissions import refuse_anonymous
from etagere.auth.principal import Anonymous, KeyOwner, Principal
from etagere.auth.request import SignedRequest
from etagere.auth.shared_key import AccountKey
from etagere.engine.interface import Engine, ReadTxn, Refused, abort_if
from etagere.errors import Refusal
from etagere.model.accounts import BUILT_IN
from etagere.model.service import SignedIdentifier
from etagere.operations.accounts import get_account
from etagere.protocol.exchange import Exchange
from etagere.rules.accounts import check_account_name, check_reach
from etagere.settings import KEY_BYTES_MAX, Settings

_NANOSECONDS_PER_TICK = 100


@lru_cache(maxsize=256)
def _prepared(key: bytes) -> AccountKey:
    """Keys are few and always in use: what HMAC makes of one is kept."""
    return AccountKey(key)


Keys = tuple[AccountKey, ...]


def _all(keys: tuple[bytes, ...]) -> Keys:
    return tuple([_prepared(key) for key in keys])


PoliciesOf = Callable[[ReadTxn, tuple[str, str]], tuple[SignedIdentifier, ...]]
"""The stored policies of what a name in an account stands for; none if it stands for nothing."""


class Gate:
    """Lets requests in, or says why not. Signatures and tokens are judged by the wall clock."""

    def __init__(
        self, engine: Engine, settings: Settings, policies: Mapping[str, PoliciesOf]
    ) -> None:
        """`policies` says, for each service, where the policies that its tokens name are kept."""
        self._engine = engine
        self._policies = policies
        self._settings = settings
        self._tokens = KnownTokens()
        # What needs no look into the ledger.
        self._configured = {name: _all(account.keys) for name, account in BUILT_IN.items()}
        self._configured |= {account.name: _all(account.keys) for account in settings.accounts}
        # Nobody can sign with it. What is sent to an account that does not exist is verified like
        # anything else, so that the answer does not tell which accounts exist.
        self._nobodys: Keys = (AccountKey(os.urandom(KEY_BYTES_MAX)),)

    async def admit(self, exchange: Exchange) -> Principal:
        """Returns who sent a request; raises `Refused`."""
        return await self._admit(exchange, exchange.signed.fields.get("host"))

    async def admit_source(self, exchange: Exchange, source: Exchange) -> Principal:
        """Returns who reads the source that a request names; raises `Refused`. The server is
        reached under the name in the request, whatever name the address of the source has."""
        return await self._admit(source, exchange.signed.fields.get("host"))

    async def _admit(self, exchange: Exchange, host: str | None) -> Principal:
        request = exchange.signed
        abort_if(check_reach(request.account, request.client, host, self._settings))
        keys = self._configured.get(request.account) or await self._stored(request.account)
        now = time.time_ns() // _NANOSECONDS_PER_TICK
        authorization = request.fields.get("authorization")
        if authorization is not None:
            refusal = shared_key.verify(request, keys, now)
            if refusal is not None and is_bearer(authorization):
                refusal = refuse_bearer(request.service, exchange.version)
            abort_if(refusal)
            return KeyOwner(request.account)
        if sas_parsing.carries_sas(request):
            return await self._token_holder(exchange, keys, now)
        account_exists = keys is not self._nobodys
        if not account_exists and check_account_name(request.account) is not None:
            # No account can have this name, and nothing can be looked up by it.
            raise Refused(refuse_anonymous(exchange.challenge_version))
        return Anonymous(request.account, account_exists)

    async def _stored(self, account: str) -> Keys:
        """The keys of an account in the store; if it does not exist, one that nobody has."""
        stored = None
        if check_account_name(account) is None:
            stored = await self._engine.read(get_account, account)
        return self._nobodys if stored is None else _all(stored.keys)

    async def _token_holder(self, exchange: Exchange, keys: Keys, now: int) -> Principal:
        signed = exchange.signed
        token = self._tokens.find(signed, keys)
        if token is None:
            token = await self._verified(signed, keys)
            self._tokens.keep(signed, keys, token)
        abort_if(sas.check_origin(token.sas, signed))
        abort_if(sas.check_time(token.granted, now))
        return token.holder

    async def _verified(self, signed: SignedRequest, keys: Keys) -> KnownToken:
        token = sas_parsing.parse(signed)
        if isinstance(token, Refusal):
            raise Refused(token)
        abort_if(sas_signature.verify(token, keys))
        policy = await self._policy(token) if token.policy_id else None
        granted = sas.effective(token, policy)
        if isinstance(granted, Refusal):
            raise Refused(granted)
        return KnownToken(token, granted, sas.principal(token, granted))

    async def _policy(self, token: sas.Sas) -> sas.Policy | None:
        """The stored policy that a token names, as it is now."""
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
