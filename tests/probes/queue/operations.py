"""Every operation of the queue service, as a request that succeeds if its sender is authorized."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Final, NamedTuple
from urllib.parse import quote

from tests.probes.client import VERSION, Pairs, Request
from tests.probes.service import POLICIES, PROPERTIES, Operation
from tests.probes.token_kinds import ACCOUNT_KIND, TokenKind
from tests.probes.tokens import QUEUE_LETTERS, Token, queue_token
from tests.server import ACCOUNT, KEY

MESSAGE: Final = b"<QueueMessage><MessageText>another</MessageText></QueueMessage>"


class QueueTarget(NamedTuple):
    """An existing queue, a message in it with its pop receipt, and a name that is free."""

    queue: str
    message: str = "5f6a9c52-8b0e-4f4e-9e76-3a7e3f1e2d10"
    receipt: str = "AAAAAAAAAAE="
    account: str = ACCOUNT

    @property
    def free(self) -> str:
        return f"{self.queue}-new"


@dataclass(frozen=True)
class QueueOperation(Operation[QueueTarget]):
    """An operation of the queue service."""

    service: ClassVar[str] = "queue"

    path: str
    """The path below the account, with names of the target in braces."""
    query: Pairs = ()
    headers: Pairs = ()
    body: bytes = b""
    secondary: bool = False
    """Whether it is sent to the secondary endpoint."""

    @property
    def changes_state(self) -> bool:
        return self.method not in {"GET", "HEAD"} or self.row == "get_messages"

    def request(self, target: QueueTarget) -> Request:
        names = {"queue": target.queue, "free": target.free, "message": target.message}
        account = f"{target.account}{'-secondary' if self.secondary else ''}"
        path = f"/{account}/{self.path.format(**names)}"
        receipt = quote(target.receipt, safe="")
        query = tuple((name, value.format(receipt=receipt)) for name, value in self.query)
        return Request(
            self.method, path, query, (("x-ms-version", VERSION), *self.headers), self.body
        )


def _operation(
    row: str, method: str, path: str, *query: tuple[str, str], body: bytes = b"", meta: str = ""
) -> QueueOperation:
    headers = (("x-ms-meta-author", meta),) if meta else ()
    return QueueOperation(row, row, method, path, query, headers, body)


_SERVICE: Final = ("restype", "service")
_RECEIPT: Final = ("popreceipt", "{receipt}")
_ONE: Final = "{queue}/messages/{message}"

_BASIC_OPERATIONS: Final = (
    _operation("list_queues", "GET", "", ("comp", "list")),
    _operation("get_queue_service_properties", "GET", "", _SERVICE, ("comp", "properties")),
    _operation(
        "set_queue_service_properties", "PUT", "", _SERVICE, ("comp", "properties"), body=PROPERTIES
    ),
    replace(
        _operation("get_queue_service_stats", "GET", "", _SERVICE, ("comp", "stats")),
        secondary=True,
    ),
    _operation("create_queue", "PUT", "{free}", meta="nobody"),
    _operation("delete_queue", "DELETE", "{queue}"),
    _operation("get_queue_metadata", "GET", "{queue}", ("comp", "metadata")),
    _operation("set_queue_metadata", "PUT", "{queue}", ("comp", "metadata"), meta="nobody"),
    _operation("get_queue_acl", "GET", "{queue}", ("comp", "acl")),
    _operation("set_queue_acl", "PUT", "{queue}", ("comp", "acl"), body=POLICIES),
    _operation("put_message", "POST", "{queue}/messages", ("messagettl", "-1"), body=MESSAGE),
    _operation("get_messages", "GET", "{queue}/messages", ("numofmessages", "32")),
    _operation("peek_messages", "GET", "{queue}/messages", ("peekonly", "true")),
    _operation("update_message", "PUT", _ONE, _RECEIPT, ("visibilitytimeout", "0"), body=MESSAGE),
    _operation("delete_message", "DELETE", _ONE, _RECEIPT),
    _operation("clear_messages", "DELETE", "{queue}/messages"),
)
_HEADS: Final = tuple(
    replace(operation, name=f"head_of_{operation.name}", method="HEAD")
    for operation in _BASIC_OPERATIONS
    if operation.method == "GET" and not operation.path.endswith("messages")
)

OPERATIONS: Final = (*_BASIC_OPERATIONS, *_HEADS)


def _queue_token(
    operation: QueueOperation,
    target: QueueTarget,
    *,
    account: str = ACCOUNT,
    key: str = KEY,
    **options: str,
) -> Token:
    queue = target.free if "{free}" in operation.path else target.queue
    return queue_token(account, key, queue, **options)


QUEUE_KIND: Final = TokenKind("queue", QUEUE_LETTERS, _queue_token, "queue", has_policies=True)
TOKEN_KINDS: Final = (ACCOUNT_KIND, QUEUE_KIND)
