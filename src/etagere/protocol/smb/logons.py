"""Logons: the passwords and settings of accounts, and the delay after failures."""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING, Final

from etagere.engine.interface import Engine
from etagere.model.accounts import BUILT_IN, Account
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
    FAILED_LOGONS_MAX,
    LOGON_ADDRESSES_MAX,
    LOGON_DELAY_SECONDS,
    LOGON_DELAY_SECONDS_MAX,
    LOGON_MEMORY_SECONDS,
    LOGON_WAIT_SECONDS_MAX,
)
from etagere.protocol.smb.state import Negotiated
from etagere.protocol.smb.status import SmbError, status_of
from etagere.rules.accounts import KEY_NUMBERS, check_built_in_access
from etagere.settings import Settings
from etagere.settings.values import KEY_BYTES_MAX

if TYPE_CHECKING:
    from etagere.protocol.rest.cells import Cells

_DOUBLINGS_MAX: Final = 32


class Passwords:
    """The accounts as users: the passwords of one are its keys, as base64 text."""

    def __init__(self, engine: Engine, settings: Settings, cells: Cells | None = None) -> None:
        """`cells`: None if there is one cell only."""
        self._engine = engine
        self._settings = settings
        self._cells = cells
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
        keys = self._configured.get(user)
        if keys is None:
            stored = await self._find(user)
            keys = self._unknown_user_keys if stored is None else stored.keys
        return _texts(keys)

    async def current(self, user: str) -> tuple[str, ...]:
        """Returns the passwords of a user; none if the account was removed."""
        keys = self._configured.get(user)
        if keys is None:
            stored = await self._engine.read(get_account, user)
            keys = () if stored is None else stored.keys
        return _texts(keys)

    async def _find(self, user: str) -> Account | None:
        if self._cells is not None:
            return await self._cells.find_for_smb(user)
        return await self._engine.read(get_account, user)


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


class _FailedLogons:
    """The failed logons of a user from an address."""

    __slots__ = ("count", "last", "next_turn")

    def __init__(self) -> None:
        self.count = 0
        self.last = 0.0
        self.next_turn = 0.0


class LogonDelays:
    """Slows down clients that try passwords, with any number of connections: failed logons are
    answered late, and after many the logons of the same user from the same address take turns."""

    def __init__(self) -> None:
        self._failures: dict[str, tuple[int, float]] = {}
        """By address: the number of failures, and when the last one was. The oldest first."""
        self._of_users: dict[tuple[str, str], _FailedLogons] = {}
        """By address and user. The oldest first."""

    def wait_seconds(self, address: str, user: str, now: float) -> float | None:
        """Returns how long a logon has to wait for its turn; None: too long, it is refused."""
        failed = self._of_users.get((address, user))
        if failed is None or now - failed.last > LOGON_MEMORY_SECONDS:
            return 0.0
        if failed.count < FAILED_LOGONS_MAX:
            return 0.0
        turn = max(now, failed.next_turn)
        if turn - now > LOGON_WAIT_SECONDS_MAX:
            return None
        failed.next_turn = turn + LOGON_DELAY_SECONDS_MAX
        return turn - now

    def count_failure(self, address: str, now: float, user: str = "") -> float:
        """Returns for how many seconds the response has to be delayed."""
        self._count_of_user(address, user, now)
        count, last = self._failures.pop(address, (0, now))
        if now - last > LOGON_MEMORY_SECONDS:
            count = 0
        self._failures[address] = count + 1, now
        if len(self._failures) > LOGON_ADDRESSES_MAX:
            del self._failures[next(iter(self._failures))]
        delay = LOGON_DELAY_SECONDS * (1 << min(count, _DOUBLINGS_MAX))
        return min(delay, LOGON_DELAY_SECONDS_MAX)

    def _count_of_user(self, address: str, user: str, now: float) -> None:
        failed = self._of_users.pop((address, user), None)
        if failed is None or now - failed.last > LOGON_MEMORY_SECONDS:
            failed = _FailedLogons()
        failed.count += 1
        failed.last = now
        self._of_users[address, user] = failed
        if len(self._of_users) > LOGON_ADDRESSES_MAX:
            del self._of_users[next(iter(self._of_users))]

    def forget_failures(self, address: str, user: str) -> None:
        """Called when a user has logged on."""
        self._of_users.pop((address, user), None)
