"""Rules for accounts: names, keys, and access to the built-in account."""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import Final

from etagere.errors import Refusal
from etagere.model.accounts import BUILT_IN, Account
from etagere.settings import Settings
from etagere.settings.values import (
    ACCOUNT_NAME,
    ACCOUNT_NAME_LENGTH_MAX,
    ACCOUNT_NAME_LENGTH_MIN,
    KEY_BYTES_MAX,
)

KEY_NUMBERS = (1, 2)
_HOST: Final = re.compile(r"(?:\[(?P<ipv6>[^]]+)\]|(?P<name>[^:]+))(?::[0-9]*)?")
_HOST_CHARACTERS_MAX: Final = 255 + len(":65535")
_NOT_LOOPBACK: Final = (
    "The development account is reached under names of this machine alone, such as localhost or "
    "127.0.0.1, unless the server was started with --development-account-anywhere."
)


def check_account_name(name: str) -> Refusal | None:
    if not ACCOUNT_NAME_LENGTH_MIN <= len(name) <= ACCOUNT_NAME_LENGTH_MAX:
        return _out_of_range("AccountName", ACCOUNT_NAME_LENGTH_MIN, ACCOUNT_NAME_LENGTH_MAX)
    if ACCOUNT_NAME.fullmatch(name) is None:
        return Refusal("InvalidResourceName")
    return None


def check_key(key: bytes) -> Refusal | None:
    """Refuses an empty key, which would admit everybody, and one that is longer than those of the
    service."""
    if not 1 <= len(key) <= KEY_BYTES_MAX:
        return _out_of_range("AccountKeyBytes", 1, KEY_BYTES_MAX)
    return None


def check_key_number(number: int) -> Refusal | None:
    if number not in KEY_NUMBERS:
        return _out_of_range("AccountKeyNumber", *KEY_NUMBERS)
    return None


def check_absent(name: str, stored: Account | None) -> Refusal | None:
    if stored is not None or name in BUILT_IN:
        return Refusal("AccountAlreadyExists", {"Account": name})
    return None


def check_changeable(name: str) -> Refusal | None:
    """Refuses changes of a built-in account, whose keys every client knows."""
    if name in BUILT_IN:
        return Refusal("InsufficientAccountPermissions", {"Account": name})
    return None


def check_built_in_access(
    name: str, client: str, host: str | None, settings: Settings
) -> Refusal | None:
    """Refuses access to a built-in account, whose key is public, from other machines and under host
    names that may belong to another machine.

    `client` is the address of the connection, not of a header. `host` is the Host header: with DNS
    rebinding, a web page of an attacker sends requests from a loopback address, but with its own
    host name. Browsers always send the header.
    """
    if name not in BUILT_IN or settings.development_account_anywhere:
        return None
    return check_loopback(client, host, _NOT_LOOPBACK)


def check_loopback(client: str, host: str | None, reason: str) -> Refusal | None:
    """Refuses requests from other machines, and under host names that may belong to another
    machine; `reason` is shown for the latter."""
    if not is_loopback(client):
        return Refusal("AuthorizationSourceIPMismatch", {"SourceIP": client})
    if host is None or is_loopback_host(host):
        return None
    return Refusal("AuthorizationFailure", {"Host": host, "Reason": reason})


@lru_cache(maxsize=1_024)
def is_loopback(client: str) -> bool:
    """Returns whether this is a loopback address. False for text that is not an address."""
    try:
        address = ipaddress.ip_address(client)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        # The form in which a dual-stack socket reports IPv4 clients.
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


def is_loopback_host(host: str) -> bool:
    """Returns whether a Host header can only refer to this machine."""
    return len(host) <= _HOST_CHARACTERS_MAX and _is_loopback_host(host)


@lru_cache(maxsize=256)
def _is_loopback_host(host: str) -> bool:
    found = _HOST.fullmatch(host)
    if found is None:
        return False
    if found["ipv6"]:
        return is_loopback(found["ipv6"])
    name = found["name"].lower().removesuffix(".")
    # RFC 6761, section 6.3: these names are always resolved to loopback addresses.
    return name == "localhost" or name.endswith(".localhost") or is_loopback(name)


def _out_of_range(what: str, minimum: int, maximum: int) -> Refusal:
    return Refusal("OutOfRangeInput", {"Input": what, "Minimum": minimum, "Maximum": maximum})
