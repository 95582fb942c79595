"""Authentication of users: requests with a bearer token.

This module is imported only in servers that accept bearer tokens, because the libraries that verify
them take a while to load.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from msgspec.structs import replace

from etagere.auth import bearer
from etagere.auth.challenges import TokenFault, bearer_token, refuse_bearer
from etagere.auth.key_set import KeySet
from etagere.auth.known_users import KnownUser, KnownUsers, UserKey, digest
from etagere.auth.permissions import FILE_REQUEST_INTENT
from etagere.auth.principal import User
from etagere.auth.request import RestRequest
from etagere.auth.roles import ALL_RIGHTS_EVERYWHERE, Rights
from etagere.auth.shared_key import failed
from etagere.auth.users import NO_ID, RoleMap, user
from etagere.engine.interface import Refused, abort_if
from etagere.errors import Refusal
from etagere.jobs.supervision import Job
from etagere.protocol.rest.exchange import Exchange
from etagere.protocol.rest.key_sources import (
    REFRESH_SECONDS,
    FetchedKeys,
    FileKeys,
    KeySource,
)
from etagere.rules.accounts import check_loopback
from etagere.settings import Settings

BACKUP: Final = "backup"
_NO_RIGHTS: Final[Rights] = {}
_NOT_LOOPBACK: Final = (
    "With --oauth development, tokens are accepted under names of this machine alone, such as "
    "localhost or 127.0.0.1."
)


def user_authenticator(settings: Settings) -> UserAuthenticator:
    """Returns the authentication of users for a server that accepts bearer tokens. Raises
    `KeysUnavailable` if the keys are in a file that cannot be read."""
    return UserAuthenticator(settings, _key_source(settings))


def _key_source(settings: Settings) -> KeySource | None:
    source = settings.oauth_keys
    if settings.oauth != "on" or source is None:
        return None
    if source.path is not None:
        return FileKeys(source.path)
    from etagere.protocol.rest.key_fetching import fetcher  # noqa: PLC0415

    return FetchedKeys(fetcher(source.url))


class UserAuthenticator:
    """Verifies bearer tokens, by the wall clock."""

    def __init__(self, settings: Settings, keys: KeySource | None) -> None:
        """`keys` is None in development mode, in which signatures are not verified."""
        self._settings = settings
        self._keys = keys
        # Tokens of development mode come from this machine, and so does the time.
        self._skew_seconds = 0 if keys is None else bearer.CLOCK_SKEW_SECONDS
        self._roles = RoleMap(settings.oauth_roles)
        self._known = KnownUsers()
        self._verifying = asyncio.Lock()

    def jobs(self) -> list[Job]:
        """Returns the jobs of each front end: to fetch the keys, if they have a URL."""
        if not isinstance(self._keys, FetchedKeys):
            return []
        return [Job("fetching token keys", self._keys.refresh, REFRESH_SECONDS)]

    async def authenticate(
        self,
        exchange: Exchange,
        host: str | None,
        *,
        account_exists: bool,
        on_verified: Callable[[User], Awaitable[None]],
    ) -> User:
        """Returns the user whose token a request carries; raises `Refused`. Users have no rights in
        an account that does not exist, as in one to which they have no access. `on_verified` is
        called with the user of a token that was not known yet; if it fails, the token stays
        unknown."""
        request = exchange.request
        abort_if(self._check_origin(request, host))
        token = bearer_token(request.fields["authorization"])
        intends_backup = _intends_backup(request)
        key = digest(token), request.service, request.account, intends_backup
        known = self._known.find(key, self._keys.current() if self._keys is not None else None)
        if known is None:
            known, keys = await self._verified(exchange, token, key)
            await on_verified(known.user)
            self._known.add(key, keys, known)
        fault = self._check_time(known.times)
        if fault is not None:
            raise self._unusable(exchange, fault)
        if not account_exists:
            return replace(known.user, rights=_NO_RIGHTS)
        return known.user

    def _check_origin(self, request: RestRequest, host: str | None) -> Refusal | None:
        if self._keys is None:
            return check_loopback(request.client, host, _NOT_LOOPBACK)
        if request.scheme != "https":
            return failed("Authentication scheme Bearer is not allowed with HTTP.")
        return None

    async def _verified(
        self, exchange: Exchange, token: str, key: UserKey
    ) -> tuple[KnownUser, KeySet | None]:
        """Returns the user of a new token, and the keys that verified it."""
        request = exchange.request
        keys = None
        async with self._verifying:
            # A verification takes up to a millisecond, and anybody can send tokens on many
            # connections. Other requests are served between two of them.
            await asyncio.sleep(0)
            if self._keys is None:
                claims = bearer.parse(token)
            else:
                keys = self._keys.current()
                claims = bearer.verify(token, keys, self._settings.oauth_issuers)
        if claims is TokenFault.UNKNOWN_KEY and self._keys is not None:
            current, keys = keys, await self._keys.renewed()
            if keys is not current:
                claims = bearer.verify(token, keys, self._settings.oauth_issuers)
        if isinstance(claims, TokenFault):
            raise self._unusable(exchange, claims)
        fault = self._check_audience(request, claims) or self._check_time(claims)
        if fault is not None:
            raise self._unusable(exchange, fault)
        times = bearer.Claims(exp=claims.exp, nbf=claims.nbf)
        return KnownUser(times, self._user(claims, request.account, intends_backup=key[-1])), keys

    def _check_time(self, claims: bearer.Claims) -> TokenFault | None:
        return bearer.check_time(claims, time.time(), self._skew_seconds)

    def _check_audience(self, request: RestRequest, claims: bearer.Claims) -> TokenFault | None:
        configured = self._settings.oauth_audiences
        if self._keys is None:
            return bearer.check_plausible_audience(claims, configured)
        return bearer.check_audience(claims, request.service, request.account, configured)

    def _user(self, claims: bearer.Claims, account: str, *, intends_backup: bool) -> User:
        rights = self._roles.rights(claims, account)
        if rights is None:
            rights = ALL_RIGHTS_EVERYWHERE if self._keys is None else _NO_RIGHTS
        default_id = NO_ID if self._keys is None else ""
        return user(claims, account, rights, intends_backup=intends_backup, default_id=default_id)

    def _unusable(self, exchange: Exchange, fault: TokenFault) -> Refused:
        return Refused(refuse_bearer(exchange.request.service, exchange.version, fault))


def _intends_backup(request: RestRequest) -> bool:
    """Returns whether a request is for backup, the only intent that the file service knows."""
    if request.service != "file":
        return False
    intent = request.fields.get(FILE_REQUEST_INTENT)
    if intent is None:
        return False
    if intent.lower() != BACKUP:
        facts: dict[str, str | int] = {"HeaderName": FILE_REQUEST_INTENT, "HeaderValue": intent}
        raise Refused(Refusal("InvalidHeaderValue", facts))
    return True
