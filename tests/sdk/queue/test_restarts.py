"""Killed servers: messages, receipts and visibility survive."""

from __future__ import annotations

import threading
from pathlib import Path

from azure.core.exceptions import AzureError
from azure.storage.queue import AccessPolicy, QueueClient, QueueMessage

from tests.sdk.harness import HOUR, now, refused
from tests.sdk.queue.clients import KIB_64, contents, queue_service
from tests.server import Server, check, eventually, served

LONG = "é" * (KIB_64 // 2)


def take(queue: QueueClient, seconds: int) -> QueueMessage:
    taken = queue.receive_message(visibility_timeout=seconds)
    assert taken is not None
    return taken


def test_state_survives_a_kill(tmp_path: Path) -> None:
    with served(tmp_path / "data") as server:
        with queue_service(server) as service:
            queue = service.create_queue("survivor", metadata={"Kept": "yes"})
            queue.set_queue_access_policy({"it": AccessPolicy("r", now() + HOUR)})
            for text in (LONG, "taken", "updated", "seen"):
                queue.send_message(text, time_to_live=-1)
            hidden = queue.send_message("hidden", visibility_timeout=600)
            long, taken, updated = (take(queue, 600) for _ in range(3))
            updated = queue.update_message(updated, content="changed", visibility_timeout=300)
            queue.delete_message(queue.send_message("deleted"))
            cleared = service.create_queue("cleared")
            for _ in range(200):
                cleared.send_message(LONG)
            cleared.clear_messages()
        server.kill()
        server.start()
        with queue_service(server) as service:
            queue = service.get_queue_client("survivor")
            assert contents(service.get_queue_client("cleared")) == []
            assert contents(queue) == ["seen"]
            shown = queue.get_queue_properties()
            assert (shown.metadata, shown.approximate_message_count) == ({"Kept": "yes"}, 5)
            assert list(queue.get_queue_access_policy()) == ["it"]
            _require_held(queue, long, LONG)
            _require_held(queue, updated, "changed")
            queue.delete_message(taken)
            with refused(404, "MessageNotFound"):
                queue.delete_message(taken)
            queue.delete_message(hidden)
            assert (take(queue, 1).content, take(queue, 1).content) == ("seen", LONG)
        assert server.stop() == 0
    found = check(tmp_path / "data")
    assert found.returncode == 0, found.stdout + found.stderr


def _require_held(queue: QueueClient, held: QueueMessage, text: str) -> None:
    """Checks that the receipt is valid and the message unchanged."""
    queue.update_message(held.id, held.pop_receipt, visibility_timeout=0)
    assert contents(queue)[-1] == text


class Load:
    """A client that puts messages and deletes some, and records what was acknowledged."""

    def __init__(self) -> None:
        self.there: set[str] = set()
        self.gone: set[str] = set()

    def run(self, server: Server) -> None:
        """Runs until the server is gone."""
        with queue_service(server, connection_timeout=5, read_timeout=20) as service:
            queue = service.get_queue_client("load")
            number = 0
            while True:
                number += 1
                text = f"{number} " * (1 if number % 5 else 1_000)
                try:
                    sent = queue.send_message(text)
                    self.there.add(text)
                    if number % 3 == 0:
                        self.there.discard(text)
                        queue.delete_message(sent)
                        self.gone.add(text)
                except AzureError:
                    return


def test_killed_under_load(tmp_path: Path) -> None:
    with served(tmp_path / "data") as server:
        with queue_service(server) as service:
            service.create_queue("load")
        load = Load()
        thread = threading.Thread(target=load.run, args=(server,))
        thread.start()
        try:
            eventually(lambda: bool(load.there and load.gone), "acknowledged requests")
            thread.join(1.0)
        finally:
            server.kill()
            thread.join()
        server.start()
        with queue_service(server) as service:
            queue = service.get_queue_client("load")
            counted = queue.get_queue_properties().approximate_message_count
            found = [message.content for message in queue.receive_messages(messages_per_page=32)]
        assert len(set(found)) == len(found) == counted
        assert load.there <= set(found)
        assert not load.gone & set(found)
        # Requests in flight may or may not have been executed.
        assert len(found) <= len(load.there) + 1
        assert server.stop() == 0
    assert check(tmp_path / "data").returncode == 0
