"""Callers of operations, and what the table of permissions says about them."""

from __future__ import annotations

from etagere.auth import permissions
from etagere.auth.permissions import Permit
from etagere.auth.principal import Principal, TokenHolder, TokenKind
from etagere.auth.sas import ACCOUNT_LETTERS
from etagere.errors import Refusal
from tests.permissions import PERMISSIONS


def account_token(
    permissions: str = ACCOUNT_LETTERS, services: str = "bqtf", types: str = "sco"
) -> TokenHolder:
    return TokenHolder(
        account="a",
        kind=TokenKind.ACCOUNT,
        version="2020-12-06",
        permissions=permissions,
        services=services,
        resource_types=types,
    )


def token(
    permissions: str,
    resource: str = "c",
    scope: str = "c",
    *,
    service: str = "blob",
    kind: TokenKind = TokenKind.SERVICE,
) -> TokenHolder:
    return TokenHolder(
        account="a",
        kind=kind,
        version="2020-12-06",
        permissions=permissions,
        service=service,
        resource=resource,
        scope=scope,
    )


def authorize(
    principal: Principal, operation: str, target: str, *, also: str = "", version: str = ""
) -> Permit | Refusal:
    service = operation.partition(".")[0]
    return permissions.authorize(
        principal, service, PERMISSIONS[operation], target, extra_letters=also, version=version
    )


def code(outcome: Permit | Refusal | None) -> str:
    return outcome.code if isinstance(outcome, Refusal) else ""
