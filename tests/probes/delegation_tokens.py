"""User delegation keys, and tokens that are signed with them by our own implementation."""

from __future__ import annotations

from typing import Final, NamedTuple
from xml.etree import ElementTree

from tests.probes.client import Client, Request, hmac_sha256
from tests.probes.tokens import Token, moment
from tests.server import ACCOUNT

VERSION: Final = "2025-07-05"
"""The first version in which queues and files have such tokens."""
SERVICES: Final = ("blob", "queue", "file")
"""The services that have such tokens."""
_KEY_FIELDS: Final = {
    "skoid": "SignedOid",
    "sktid": "SignedTid",
    "skt": "SignedStart",
    "ske": "SignedExpiry",
    "sks": "SignedService",
    "skv": "SignedVersion",
}
_OF_USERS: Final = ("saoid", "suoid", "scid")
_OF_OTHER_TENANT: Final = ("skdutid", "sduoid")
_OF_REQUEST: Final = ("sip", "spr", "sv")
_OVERRIDES: Final = ("rscc", "rscd", "rsce", "rscl", "rsct")


class UserDelegationKey(NamedTuple):
    """A key, and the fields that tokens repeat."""

    value: str
    fields: dict[str, str]


def key_request(bearer_token: str) -> Request:
    """Returns the request for a key that is valid for an hour."""
    times = f"<Start>{moment(minutes=-5)}</Start><Expiry>{moment(hours=1)}</Expiry>"
    return Request(
        "POST",
        f"/{ACCOUNT}/",
        (("restype", "service"), ("comp", "userdelegationkey")),
        (("x-ms-version", VERSION), ("Authorization", f"Bearer {bearer_token}")),
        f"<KeyInfo>{times}</KeyInfo>".encode(),
    ).framed()


def get_key(client: Client, bearer_token: str) -> UserDelegationKey:
    answer = client.ask(key_request(bearer_token))
    assert answer.status == 200, answer
    key = ElementTree.fromstring(answer.body)
    fields = {name: key.findtext(tag) or "" for name, tag in _KEY_FIELDS.items()}
    return UserDelegationKey(key.findtext("Value") or "", fields)


def delegation_token(
    key: UserDelegationKey, service: str, path: str, *, snapshot: str = "", **options: str
) -> Token:
    """Returns a token for a resource, whose path does not contain the account. `options` are its
    parameters: `sp`, and `sr` if the service has resources."""
    times = {"st": moment(hours=-1), "se": moment(hours=1)}
    fields = {"sv": VERSION, **times, **key.fields, **options}
    names = ("sp", "st", "se", "path", *_KEY_FIELDS)
    names += (*_OF_USERS, *_OF_OTHER_TENANT) if service == "blob" else _OF_OTHER_TENANT
    names += _OF_REQUEST
    if service == "blob":
        names += ("sr", "snapshot", "ses", *_OVERRIDES)
    elif service == "file":
        names += _OVERRIDES
    signed = {**fields, "path": f"/{service}/{ACCOUNT}/{path}", "snapshot": snapshot}
    text = "\n".join(signed.get(name, "") for name in names)
    return Token({**fields, "sig": hmac_sha256(key.value, text)})
