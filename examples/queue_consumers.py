"""Several consumers of one queue: every message is processed, some of them twice, none in vain.

A queue delivers at least once. A message that is taken is not gone: it is hidden for a while, and
comes back unless it is deleted. So nothing is lost when a consumer dies; but what it did before it
died may be done again by another. A consumer that can bear that has three habits:

- processing is idempotent: to do it twice is the same as to do it once;
- whoever needs more time says so before the message comes back, and deletes it at the end;
- a message that fails again and again is set aside, so that it does not keep everybody busy.
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

HIDDEN_SECONDS = 1
"""As short as can be, so that the example is. Choose it longer than the work usually takes: a
message comes back only that long after its consumer died."""
ATTEMPTS_MAX = 3

ORDERS = (
    {"order": "tea"},
    {"order": "coffee", "first_consumer_dies": True},
    {"order": "a wardrobe", "seconds": 1.5},
    {"order": "bread"},
    {"order": "a unicorn", "impossible": True},
)


class Warehouse:
    """What the work leaves behind, under a key that is the same in every attempt.

    Here it is a set. It may as well be a table with a unique key, or a blob that is created
    with If-None-Match: *. The key comes from the order, and not from the message: a producer whose
    answer was lost puts the same order again, as another message.
    """

    def __init__(self) -> None:
        self._sent: set[str] = set()
        self._lock = threading.Lock()

    def send(self, order: str) -> bool:
        """Whether it had not been sent before."""
        with self._lock:
            is_new = order not in self._sent
            self._sent.add(order)
            return is_new

    def sent(self) -> list[str]:
        return sorted(self._sent)


class Died(Exception):
    """Stands for a process that is killed: whatever it was about to do next is not done."""


class Consumer:
    def __init__(self, name: str, orders: QueueClient, aside: QueueClient, to: Warehouse) -> None:
        self._name = name
        self._orders = orders
        self._aside = aside
        self._warehouse = to

    def run(self) -> None:
        # A real consumer goes on for ever. This one ends with the orders; those that are hidden
        # are counted, so it stays for what others may leave undone.
        while self._orders.get_queue_properties().approximate_message_count:
            message = self._orders.receive_message(visibility_timeout=HIDDEN_SECONDS)
            if message is None:
                time.sleep(0.05)
                continue
            try:
                self._take_care_of(message)
            except ResourceNotFoundError:
                # An update or a deletion with a receipt that is not the last: it took too long,
                # and somebody else has the message by now. They will see to it.
                print(f"{self._name} was too slow")
            except Died:
                print(f"{self._name} dies before the message is deleted")
                return

    def _take_care_of(self, message: QueueMessage) -> None:
        # Nobody else counts the attempts: the queue does, and it does not forget.
        if (message.dequeue_count or 0) > ATTEMPTS_MAX:
            self._set_aside(message)
            return
        try:
            message = self._process(message)
        except ValueError as error:
            print(f"attempt {message.dequeue_count} failed: {error}")
            # Show it again at once. A pause that grows with the count would be kinder to
            # whatever it is that fails.
            self._orders.update_message(message, visibility_timeout=0)
        else:
            self._orders.delete_message(message)

    def _process(self, message: QueueMessage) -> QueueMessage:
        """Returns the message with its last receipt."""
        order = json.loads(message.content)
        if order.get("impossible"):
            raise ValueError(f"there is no such thing as {order['order']}")
        message = self._work(message, order.get("seconds", 0.0))
        if not self._warehouse.send(order["order"]):
            print(f"{order['order']} had been sent already: nothing is done twice")
        if order.get("first_consumer_dies") and message.dequeue_count == 1:
            raise Died
        return message

    def _work(self, message: QueueMessage, seconds: float) -> QueueMessage:
        """Renews the time in which nobody else sees the message, well before it is over."""
        while seconds > 0:
            step = min(seconds, HIDDEN_SECONDS / 3)
            time.sleep(step)
            seconds -= step
            # Each update gives a new receipt, and makes the old one worthless.
            renewed = self._orders.update_message(message, visibility_timeout=HIDDEN_SECONDS)
            message.pop_receipt = renewed.pop_receipt
        return message

    def _set_aside(self, message: QueueMessage) -> None:
        # First the copy, then the deletion: to die in between makes two of it, and not none.
        self._aside.send_message(message.content)
        self._orders.delete_message(message)
        print(f"set aside after {ATTEMPTS_MAX} attempts: {message.content}")


def main() -> None:
    with QueueServiceClient.from_connection_string(CONNECTION) as service:
        name = f"example-{uuid.uuid4()}"
        orders, aside = service.create_queue(name), service.create_queue(f"{name}-aside")
        try:
            for order in ORDERS:
                orders.send_message(json.dumps(order))
            warehouse = Warehouse()
            consumers = [
                threading.Thread(target=Consumer(name, orders, aside, warehouse).run)
                for name in ("Anna", "Ben", "Cleo")
            ]
            for consumer in consumers:
                consumer.start()
            for consumer in consumers:
                consumer.join()
            print(f"sent: {', '.join(warehouse.sent())}")
            print(f"left to look at: {len(list(aside.peek_messages(max_messages=32)))}")
        finally:
            orders.delete_queue()
            aside.delete_queue()


if __name__ == "__main__":
    main()
