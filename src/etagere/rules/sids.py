"""The text form of SIDs: numbers (`S-1-5-18`) and the aliases of SDDL (MS-DTYP 2.4.2, 2.5.1).

Aliases such as `DA` (domain administrators) stand for a RID in a domain. Without a domain they
are refused, as Windows does on a machine that is not a member of one, and SIDs of domains are
printed as numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from etagere.model.security_descriptors import Sid
from etagere.rules.security_descriptors import SUB_AUTHORITIES_MAX, InvalidDescriptorError


def _builtin(rid: int) -> Sid:
    return Sid(5, (32, rid))


def _integrity_level(rid: int) -> Sid:
    return Sid(16, (rid,))


SID_ALIASES: Final[Mapping[str, Sid]] = {
    "AA": _builtin(579),  # access control assistance operators
    "AC": Sid(15, (2, 1)),  # all app packages
    "AN": Sid(5, (7,)),  # anonymous logon
    "AO": _builtin(548),  # account operators
    "AS": Sid(18, (1,)),  # identity asserted by an authentication authority
    "AU": Sid(5, (11,)),  # authenticated users
    "BA": _builtin(544),  # administrators
    "BG": _builtin(546),  # guests
    "BO": _builtin(551),  # backup operators
    "BU": _builtin(545),  # users
    "CD": _builtin(574),  # users who may connect to certification authorities
    "CG": Sid(3, (1,)),  # creator group
    "CO": Sid(3, (0,)),  # creator owner
    "CY": _builtin(569),  # cryptographic operators
    "ED": Sid(5, (9,)),  # enterprise domain controllers
    "ER": _builtin(573),  # event log readers
    "ES": _builtin(576),  # remote desktop endpoint servers
    "HA": _builtin(578),  # Hyper-V administrators
    "HI": _integrity_level(12288),
    "IS": _builtin(568),  # anonymous users of the web server
    "IU": Sid(5, (4,)),  # interactive logon
    "LS": Sid(5, (19,)),  # local service
    "LU": _builtin(559),  # performance log users
    "LW": _integrity_level(4096),
    "ME": _integrity_level(8192),
    "MP": _integrity_level(8448),
    "MS": _builtin(577),  # remote desktop management servers
    "MU": _builtin(558),  # performance monitor users
    "NO": _builtin(556),  # network configuration operators
    "NS": Sid(5, (20,)),  # network service
    "NU": Sid(5, (2,)),  # network logon
    "OW": Sid(3, (4,)),  # owner rights
    "PO": _builtin(550),  # printer operators
    "PS": Sid(5, (10,)),  # principal self
    "PU": _builtin(547),  # power users
    "RA": _builtin(575),  # remote access servers
    "RC": Sid(5, (12,)),  # restricted code
    "RD": _builtin(555),  # remote desktop users
    "RE": _builtin(552),  # replicator
    "RM": _builtin(580),  # remote management users
    "RU": _builtin(554),  # access for programs older than Windows 2000
    "SI": _integrity_level(16384),
    "SO": _builtin(549),  # server operators
    "SS": Sid(18, (2,)),  # identity asserted by a service
    "SU": Sid(5, (6,)),  # service logon
    "SY": Sid(5, (18,)),  # local system
    "UD": Sid(5, (84, 0, 0, 0, 0, 0)),  # user-mode drivers
    "WD": Sid(1, (0,)),  # everyone
    "WR": Sid(5, (33,)),  # write-restricted code
}
"""The aliases of SIDs that are the same everywhere."""

DOMAIN_ALIASES: Final[Mapping[str, int]] = {
    "AP": 525,  # protected users
    "CA": 517,  # certificate publishers
    "CN": 522,  # cloneable domain controllers
    "DA": 512,  # domain administrators
    "DC": 515,  # domain computers
    "DD": 516,  # domain controllers
    "DG": 514,  # domain guests
    "DU": 513,  # domain users
    "EA": 519,  # enterprise administrators
    "EK": 527,  # enterprise key administrators
    "KA": 526,  # key administrators
    "LA": 500,  # administrator
    "LG": 501,  # guest
    "PA": 520,  # group policy administrators
    "RO": 498,  # enterprise read-only domain controllers
    "RS": 553,  # remote access servers
    "SA": 518,  # schema administrators
}
"""The aliases of accounts in a domain, as RIDs."""

_ALIAS_OF_SID = {sid: alias for alias, sid in SID_ALIASES.items()}
_ALIAS_OF_RID = {rid: alias for alias, rid in DOMAIN_ALIASES.items()}

_NUMBER = r"(?:0[xX][0-9A-Fa-f]{1,12}|[0-9]{1,15})"
_SID = re.compile(rf"[Ss]-1-({_NUMBER})((?:-{_NUMBER}){{1,{SUB_AUTHORITIES_MAX}}})")


def ascii_upper(text: str) -> str:
    """Returns the text in upper case; not what only becomes ASCII by that, such as `ſ`."""
    return text.upper() if text.isascii() else text


def parse_sid(text: str, domain: Sid | None = None) -> Sid:
    """Returns the SID of `S-1-5-18` or `SY`, or raises InvalidDescriptorError."""
    if (sid := SID_ALIASES.get(text)) is not None:
        return sid
    if len(text) == 2:
        alias = ascii_upper(text)
        if (sid := SID_ALIASES.get(alias)) is not None:
            return sid
        rid = DOMAIN_ALIASES.get(alias)
        if rid is not None and domain is not None:
            return Sid(domain.authority, (*domain.sub_authorities, rid))
        raise InvalidDescriptorError("an alias is unknown or needs a domain")
    match = _SID.fullmatch(text)
    if match is None:
        raise InvalidDescriptorError("a SID is malformed")
    parse = _parse_sid_number if "x" in text or "X" in text else int
    authority = parse(match[1])
    sub_authorities = tuple(map(parse, match[2][1:].split("-")))
    if authority >= 1 << 48 or max(sub_authorities) >= 1 << 32:
        raise InvalidDescriptorError("a number in a SID is too large")
    return Sid(authority, sub_authorities)


def _parse_sid_number(text: str) -> int:
    return int(text, 16) if text[1:2] in ("x", "X") else int(text)


def format_sid(sid: Sid, domain: Sid | None = None) -> str:
    """Returns the alias of a SID, or its numbers if it has none."""
    alias = _ALIAS_OF_SID.get(sid)
    if alias is None and domain is not None:
        *path, rid = sid.sub_authorities
        if sid.authority == domain.authority and tuple(path) == domain.sub_authorities:
            alias = _ALIAS_OF_RID.get(rid)
    return alias if alias is not None else format_sid_numbers(sid)


def format_sid_numbers(sid: Sid) -> str:
    """Returns a SID as `S-1-5-18`."""
    authority = str(sid.authority) if sid.authority < 1 << 32 else f"0x{sid.authority:X}"
    return "-".join(("S-1", authority, *map(str, sid.sub_authorities)))
