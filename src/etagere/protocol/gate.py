"""Who sent a request, and whether they may: the schemes in turn, then the table of permissions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import lru_cache

from etagere.auth import sas, sas_parsing, sas_signature, shared_key
from etagere.auth.known_tokens import KnownToken, KnownTokens
from etagere.auth.principal import Anonymous, KeyOwner, Principal
from etagere.auth.request import SignedRequest
from etagere.auth.shared_key import AccountKey, failed
from etagere.engine.interface import Engine, ReadTxn, Refused, abort_if
from etagere.errors import Refusal
from etagere.model.accounts import BUILT_IN
from etagere.model.service import SignedIdentifier
from etagere.operations.accounts import get_account
from etagere.protocol.exchange import Exchange
from etagere.rules.accounts import check_account_name, check_source
from etagere.settings import Settings

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

    async def admit(self, exchange: Exchange) -> Principal:
        """The one who sent a request; raises `Refused`."""
        request = exchange.signed
        abort_if(check_source(request.account, request.client, self._settings))
        keys = self._configured.get(request.account) or await self._stored(request.account)
        now = time.time_ns() // _NANOSECONDS_PER_TICK
        if "authorization" in request.fields:
            abort_if(shared_key.verify(request, keys, now))
            return KeyOwner(request.account)
        if sas_parsing.carries_sas(request):
            return await self._token_holder(exchange, keys, now)
        return Anonymous(request.account)

    async def _stored(self, account: str) -> Keys:
        stored = None
        if check_account_name(account) is None:
            stored = await self._engine.read(get_account, account)
        if stored is None:
            raise Refused(failed("There is no such account."))
        return _all(stored.keys)

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
