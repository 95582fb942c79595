"""Kinds of shared access signatures, and what the permission table grants their holders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

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
    reaches: Callable[[Any], bool]
    """Whether the resource that it is for contains that of the operation."""
    has_policies: bool = False
    """Whether it may refer to a stored access policy of its resource."""

    def __str__(self) -> str:
        return self.name

    def grants(self, operation: Operation[Any], letters: str) -> bool:
        """Whether the permission table lets a token with these letters carry it out."""
        if not letters or not set(letters) <= set(self.letters) or not self.reaches(operation):
            return False
        permission = operation.permission
        wanted = (
            permission.account_letters if self.name == "account" else permission.service_letters
        )
        choices = [] if wanted is None else wanted.split("|")
        if permission.letters_if_absent is not None and getattr(operation, "creates_object", False):
            choices += permission.letters_if_absent.split("|")
        return any(set(choice) <= set(letters) for choice in choices)


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


ACCOUNT_KIND: Final = TokenKind("account", ACCOUNT_LETTERS, _make_account_token, lambda _: True)
