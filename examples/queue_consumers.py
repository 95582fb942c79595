"""Several consumers of one queue: every message is processed at least once.

A queue delivers at least once. Receiving a message hides it for a while; it becomes visible again
unless it is deleted. If a consumer crashes, no message is lost, but another consumer may repeat
its work. A robust consumer therefore follows three rules:

- Processing is idempotent: doing it twice has the same effect as doing it once.
- A consumer that needs more time extends the visibility timeout. It deletes the message at the end.
- A message that fails repeatedly is moved to another queue, where it does not block consumers.
"""

from __future__ import annotations

import json
import os
import threading
import time
import uuid

from azure.core.exceptions import ResourceNotFoundError
from azure.storage.queue import QueueClient, QueueMessage, QueueServiceClient

CONNECTION = os.environ.get("AZURE_STORAGE_CONNECTION_STRING", "UseDevelopmentStorage=true")

HIDDEN_SECONDS = 3
"""The visibility timeout, short to keep the example short. In an application, choose it longer than
the usual processing time. After a crash, the message is redelivered that much later."""
ATTEMPTS_MAX = 3

ORDERS = (
    {"order": "tea"},
    {"order": "coffee", "first_consumer_dies": True},
    {"order": "a wardrobe", "seconds": 4.0},
    {"order": "bread"},
    {"order": "a unicorn", "impossible": True},
)


class Warehouse:
    """The results of the work, under a key that is the same for every attempt.

    Here it is a set. It could be a table with a unique key, or a blob that is created with
    If-None-Match: *. The key comes from the order, not from the message: a producer that did not
    get a response sends the same order again, as another message.
    """

    def __init__(self) -> None:
        self._sent: set[str] = set()
        self._lock = threading.Lock()

    def send(self, order: str) -> bool:
        """Sends an order unless it was sent before; returns whether it is new."""
        with self._lock:
            is_new = order not in self._sent
            self._sent.add(order)
            return is_new

    def sent(self) -> list[str]:
        return sorted(self._sent)


class Died(Exception):
    """Simulates a process that is killed."""


class Consumer:
    def __init__(self, name: str, orders: QueueClient, poison: QueueClient, to: Warehouse) -> None:
        self._name = name
        self._orders = orders
        self._poison = poison
        self._warehouse = to

    def run(self) -> None:
        # A real consumer runs forever. This one ends when the queue is empty. The count includes
        # hidden messages, so it also waits for messages that other consumers may not finish.
        while self._orders.get_queue_properties().approximate_message_count:
            message = self._orders.receive_message(visibility_timeout=HIDDEN_SECONDS)
            if message is None:
                time.sleep(0.05)
                continue
            try:
                self._handle(message)
            except ResourceNotFoundError:
                # The pop receipt of an update or a delete is outdated: processing took too long,
                # and another consumer has received the message and will process it.
                print(f"{self._name} was too slow")
            except Died:
                print(f"{self._name} dies before the message is deleted")
                return

    def _handle(self, message: QueueMessage) -> None:
        # The queue counts the attempts.
        if (message.dequeue_count or 0) > ATTEMPTS_MAX:
            self._move_to_poison_queue(message)
            return
        try:
            message = self._process(message)
        except ValueError as error:
            print(f"attempt {message.dequeue_count} failed: {error}")
            # Make it visible again at once. In an application, use a delay that grows with the
            # count.
            self._orders.update_message(message, visibility_timeout=0)
        else:
            self._orders.delete_message(message)

    def _process(self, message: QueueMessage) -> QueueMessage:
        """Processes a message; returns it with its latest pop receipt."""
        order = json.loads(message.content)
        if order.get("impossible"):
            raise ValueError(f"there is no such thing as {order['order']}")
        message = self._work(message, order.get("seconds", 0.0))
        if not self._warehouse.send(order["order"]):
            print(f"{order['order']} had already been sent: not sent again")
        if order.get("first_consumer_dies") and message.dequeue_count == 1:
            raise Died
        return message

    def _work(self, message: QueueMessage, seconds: float) -> QueueMessage:
        """Works for some seconds, and extends the visibility timeout well before it ends."""
        while seconds > 0:
            step = min(seconds, HIDDEN_SECONDS / 3)
            time.sleep(step)
            seconds -= step
            # Each update returns a new pop receipt and invalidates the old one.
            renewed = self._orders.update_message(message, visibility_timeout=HIDDEN_SECONDS)
            message.pop_receipt = renewed.pop_receipt
        return message

    def _move_to_poison_queue(self, message: QueueMessage) -> None:
        # Copy first, then delete: a crash in between leaves two messages rather than none.
        self._poison.send_message(message.content)
        self._orders.delete_message(message)
        print(f"moved to the poison queue after {ATTEMPTS_MAX} attempts: {message.content}")


def main() -> None:
    with QueueServiceClient.from_connection_string(CONNECTION) as service:
        name = f"example-{uuid.uuid4()}"
        orders, poison = service.create_queue(name), service.create_queue(f"{name}-poison")
        try:
            for order in ORDERS:
                orders.send_message(json.dumps(order))
            warehouse = Warehouse()
            consumers = [
                threading.Thread(target=Consumer(name, orders, poison, warehouse).run)
                for name in ("Anna", "Ben", "Cleo")
            ]
            for consumer in consumers:
                consumer.start()
            for consumer in consumers:
                consumer.join()
            print(f"sent: {', '.join(warehouse.sent())}")
            print(
                f"messages in the poison queue: {len(list(poison.peek_messages(max_messages=32)))}"
            )
        finally:
            orders.delete_queue()
            poison.delete_queue()


if __name__ == "__main__":
    main()
