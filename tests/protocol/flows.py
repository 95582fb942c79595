"""Request bodies without a connection."""

from __future__ import annotations

from etagere.protocol.http.messages import RequestBody


class CompleteBodyFlow:
    """The flow of a body that has arrived completely."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def wanted(self, _body: RequestBody) -> None: ...

    def lend_socket(self, _body: RequestBody) -> None: ...

    def return_socket(self, _taken: int | None) -> None: ...
