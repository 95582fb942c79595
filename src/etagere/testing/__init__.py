"""A server for tests: real storage for the tests of an application.

    from etagere.testing import Server

    with Server() as server:
        account = server.new_account()
        client = BlobServiceClient.from_connection_string(account.connection_string)

`etagere.testing.plugin` offers it as fixtures of pytest. docs/testing.md describes both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from etagere.testing.accounts import Account
    from etagere.testing.server import Server, ServerError

__all__ = ["Account", "Server", "ServerError"]


def __getattr__(name: str) -> Any:
    # Not imported before: pytest imports the plugin, and so this package, in every project.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from etagere.testing import accounts, server  # noqa: PLC0415

    return getattr(accounts if name == "Account" else server, name)
