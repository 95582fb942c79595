"""Kinds of shared access signatures, and what the REST reference grants their holders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tests.authorization import Need
from tests.probes.service import Operation
from tests.probes.tokens import ACCOUNT_LETTERS, Token, account_token
from tests.server import ACCOUNT, KEY

SERVICE_LETTERS: Final = {"blob": "b", "queue": "q", "table": "t", "file": "f"}


@dataclass(frozen=True)
class TokenKind:
    """A kind of token, and how one is made for an operation on a target."""

    name: str
    letters: str
    """All letters that its `sp` may have."""
    make: Callable[..., Token]
    """Called with operation and target, and perhaps account, key, permissions and fields."""
    resource: str = ""
    """The resource that it is for, as in the rules; an empty string for the account."""
    has_policies: bool = False
    """Whether it may refer to a stored access policy of its resource."""

    def __str__(self) -> str:
        return self.name

    def need(self, operation: Operation[Any]) -> Need | None:
        """Returns what such a token needs for the operation; None if no such token is enough."""
        if not self.resource:
            return operation.rule.account_sas
        need = operation.rule.service_sas
        return need if need is not None and self.resource in need.places else None

    def grants(self, operation: Operation[Any], letters: str) -> bool:
        """Whether a token with these letters is enough for the operation."""
        need = self.need(operation)
        return need is not None and set(letters) <= set(self.letters) and need.suffices(letters)


def _make_account_token(
    operation: Operation[Any],
    _target: object,
    *,
    account: str = ACCOUNT,
    key: str = KEY,
    **options: str,
) -> Token:
    options.setdefault("services", SERVICE_LETTERS[operation.service])
    return account_token(account, key, **options)


ACCOUNT_KIND: Final = TokenKind("account", ACCOUNT_LETTERS, _make_account_token)
