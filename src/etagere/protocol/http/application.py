"""The interface between the HTTP server and the services."""

from __future__ import annotations

from typing import Protocol

from etagere.protocol.http.messages import Request, Response


class Application(Protocol):
    """Answers requests."""

    async def handle(self, request: Request) -> Response: ...

    def malformed(self, status: int, detail: str, method: str) -> Response:
        """Returns the response to input that is not a valid request. `method` is that of the
        request, or empty if it is not known. The body is bytes."""
        ...

    def failed(self, request: Request, error: Exception) -> Response:
        """Returns the response to a request whose handler raised an unexpected exception."""
        ...

    def busy(self, request: Request) -> Response:
        """Returns the response to a request that was carried out, but whose own response does not
        fit into the memory that is left, or cannot be read. Its body is short."""
        ...

    def cut_off(self, request: Request, error: Exception) -> None:
        """Logs that a response could not be sent completely. The connection is closed."""
        ...

    def sent(self, request: Request, response: Response, seconds: float) -> None:
        """Records in the access log that a response has been sent."""
        ...
