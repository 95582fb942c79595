"""Bodies without a connection."""

from __future__ import annotations

from etagere.protocol.http.messages import RequestBody


class Arrived:
    """The flow of a body that is there as a whole."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def wanted(self, _body: RequestBody) -> None: ...

    def lend_socket(self, _body: RequestBody) -> None: ...

    def return_socket(self, _taken: int | None) -> None: ...
