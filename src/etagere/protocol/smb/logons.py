"""Logons: the passwords and settings of accounts, and the delay after failures."""

from __future__ import annotations

import base64
import os
from typing import Final

from etagere.engine.interface import Engine
from etagere.model.accounts import BUILT_IN
from etagere.model.service import SmbSettings
from etagere.operations.accounts import get_account
from etagere.protocol.smb.dialects import (
    DIALECT_2_1,
    DIALECT_3_0,
    DIALECT_3_0_2,
    DIALECT_3_1_1,
)
from etagere.protocol.smb.encryption import Cipher
from etagere.protocol.smb.limits import (
    LOGON_ADDRESSES_MAX,
    LOGON_DELAY_SECONDS,
    LOGON_DELAY_SECONDS_MAX,
    LOGON_MEMORY_SECONDS,
)
from etagere.protocol.smb.state import Negotiated
from etagere.protocol.smb.status import SmbError, status_of
from etagere.rules.accounts import KEY_NUMBERS, check_built_in_access
from etagere.settings import Settings
from etagere.settings.values import KEY_BYTES_MAX

_DOUBLINGS_MAX: Final = 32


class Passwords:
    """The accounts as users: the passwords of one are its keys, as base64 text."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self._engine = engine
        self._settings = settings
        # Accounts that are not in the ledger.
        self._configured: dict[str, tuple[bytes, ...]] = {
            **{name: account.keys for name, account in BUILT_IN.items()},
            **{account.name: account.keys for account in settings.accounts},
        }
        # Nobody knows them. It takes as long to refuse a user that does not exist as one that does.
        self._unknown_user_keys = tuple(os.urandom(KEY_BYTES_MAX) for _ in KEY_NUMBERS)

    async def of(self, user: str, client_address: str) -> tuple[str, ...]:
        """Returns the passwords of a user; random ones if there is no such user."""
        refusal = check_built_in_access(user, client_address, None, self._settings)
        if refusal is not None:
            raise SmbError(status_of(refusal))
        return _texts(await self._keys(user) or self._unknown_user_keys)

    async def current(self, user: str) -> tuple[str, ...]:
        """Returns the passwords of a user; none if the account was removed."""
        return _texts(await self._keys(user))

    async def _keys(self, user: str) -> tuple[bytes, ...]:
        keys = self._configured.get(user)
        if keys is None:
            stored = await self._engine.read(get_account, user)
            keys = () if stored is None else stored.keys
        return keys


def _texts(keys: tuple[bytes, ...]) -> tuple[str, ...]:
    return tuple(base64.b64encode(key).decode("ascii") for key in dict.fromkeys(keys))


_AUTHENTICATION: Final = "NTLMv2"
_VERSIONS: Final = {
    DIALECT_2_1: "SMB2.1",
    DIALECT_3_0: "SMB3.0",
    DIALECT_3_0_2: "SMB3.0",
    DIALECT_3_1_1: "SMB3.1.1",
}
_CIPHERS: Final = {
    Cipher.AES_128_CCM: "AES-128-CCM",
    Cipher.AES_128_GCM: "AES-128-GCM",
    Cipher.AES_256_GCM: "AES-256-GCM",
}


def is_permitted(negotiated: Negotiated, settings: SmbSettings) -> bool:
    """Returns whether the settings of an account permit what a client has negotiated. A list that
    is not set permits everything."""
    methods, versions, ciphers = (
        settings.authentication_methods,
        settings.versions,
        settings.channel_encryption,
    )
    if methods is not None and _AUTHENTICATION not in methods:
        return False
    if versions is not None and _VERSIONS[negotiated.dialect] not in versions:
        return False
    if ciphers is None or negotiated.cipher is None:
        return True
    return _CIPHERS[Cipher(negotiated.cipher)] in ciphers


class LogonDelays:
    """Slows down clients that try passwords: failed logons are answered late."""

    def __init__(self) -> None:
        self._failures: dict[str, tuple[int, float]] = {}
        """By address: the number of failures, and when the last one was. The oldest first."""

    def count_failure(self, address: str, now: float) -> float:
        """Returns for how many seconds the response has to be delayed."""
        count, last = self._failures.pop(address, (0, now))
        if now - last > LOGON_MEMORY_SECONDS:
            count = 0
        self._failures[address] = count + 1, now
        if len(self._failures) > LOGON_ADDRESSES_MAX:
            del self._failures[next(iter(self._failures))]
        delay = LOGON_DELAY_SECONDS * (1 << min(count, _DOUBLINGS_MAX))
        return min(delay, LOGON_DELAY_SECONDS_MAX)
