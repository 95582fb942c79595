"""Every operation of the queue service, as a request that succeeds if its sender may send it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple
from urllib.parse import quote

from tests.probes.client import VERSION, Pairs, Request, hmac_sha256
from tests.probes.operations import POLICIES, PROPERTIES
from tests.probes.tokens import Token, moment
from tests.server import ACCOUNT

MESSAGE: Final = b"<QueueMessage><MessageText>another</MessageText></QueueMessage>"
QUEUE_LETTERS: Final = "raup"


class Place(NamedTuple):
    """A queue that is there, a message in it with its last receipt, and a name that is free."""

    queue: str
    message: str = "5f6a9c52-8b0e-4f4e-9e76-3a7e3f1e2d10"
    receipt: str = "AAAAAAAAAAE="
    account: str = ACCOUNT

    @property
    def free(self) -> str:
        return f"{self.queue}-new"


@dataclass(frozen=True)
class Form:
    """One row: a form of request, and the row of the table of permissions that it needs."""

    name: str
    row: str
    method: str
    path: str
    """Below the account, with the parts of a place in braces."""
    query: Pairs = ()
    headers: Pairs = ()
    body: bytes = b""
    secondary: bool = False

    def __str__(self) -> str:
        return self.name

    @property
    def changes(self) -> bool:
        return self.method not in {"GET", "HEAD"} or self.row == "get_messages"

    def request(self, place: Place) -> Request:
        names = {"queue": place.queue, "free": place.free, "message": place.message}
        account = f"{place.account}{'-secondary' if self.secondary else ''}"
        path = f"/{account}/{self.path.format(**names)}"
        receipt = quote(place.receipt, safe="")
        query = tuple((name, value.format(receipt=receipt)) for name, value in self.query)
        return Request(
            self.method, path, query, (("x-ms-version", VERSION), *self.headers), self.body
        )

    def queue_of(self, place: Place) -> str:
        return place.free if "{free}" in self.path else place.queue


def _form(
    row: str, method: str, path: str, *query: tuple[str, str], body: bytes = b"", meta: str = ""
) -> Form:
    headers = (("x-ms-meta-author", meta),) if meta else ()
    return Form(row, row, method, path, query, headers, body)


_SERVICE: Final = ("restype", "service")
_RECEIPT: Final = ("popreceipt", "{receipt}")
_ONE: Final = "{queue}/messages/{message}"

_FORMS: Final = (
    _form("list_queues", "GET", "", ("comp", "list")),
    _form("get_queue_service_properties", "GET", "", _SERVICE, ("comp", "properties")),
    _form(
        "set_queue_service_properties", "PUT", "", _SERVICE, ("comp", "properties"), body=PROPERTIES
    ),
    replace(
        _form("get_queue_service_stats", "GET", "", _SERVICE, ("comp", "stats")), secondary=True
    ),
    _form("create_queue", "PUT", "{free}", meta="nobody"),
    _form("delete_queue", "DELETE", "{queue}"),
    _form("get_queue_metadata", "GET", "{queue}", ("comp", "metadata")),
    _form("set_queue_metadata", "PUT", "{queue}", ("comp", "metadata"), meta="nobody"),
    _form("get_queue_acl", "GET", "{queue}", ("comp", "acl")),
    _form("set_queue_acl", "PUT", "{queue}", ("comp", "acl"), body=POLICIES),
    _form("put_message", "POST", "{queue}/messages", ("messagettl", "-1"), body=MESSAGE),
    _form("get_messages", "GET", "{queue}/messages", ("numofmessages", "32")),
    _form("peek_messages", "GET", "{queue}/messages", ("peekonly", "true")),
    _form("update_message", "PUT", _ONE, _RECEIPT, ("visibilitytimeout", "0"), body=MESSAGE),
    _form("delete_message", "DELETE", _ONE, _RECEIPT),
    _form("clear_messages", "DELETE", "{queue}/messages"),
)
_HEADS: Final = tuple(
    replace(form, name=f"head_of_{form.name}", method="HEAD")
    for form in _FORMS
    if form.method == "GET" and not form.path.endswith("messages")
)

FORMS: Final = (*_FORMS, *_HEADS)


def queue_token(
    account: str, key: str, queue: str, *, permissions: str = QUEUE_LETTERS, **options: str
) -> Token:
    """For a queue. With a stored policy (`si`) it says nothing else."""
    fields = {"sv": VERSION}
    if "si" not in options:
        fields |= {"sp": permissions, "st": moment(hours=-1), "se": moment(hours=1)}
    fields |= options
    lines = [fields.get(name, "") for name in ("sp", "st", "se")]
    lines += [f"/queue/{account}/{queue}"]
    lines += [fields.get(name, "") for name in ("si", "sip", "spr", "sv")]
    return Token({**fields, "sig": hmac_sha256(key, "\n".join(lines))})
