"""A pop receipt is valid for its own message only."""

from __future__ import annotations

from tests.probes.queue.fixture import QueueFixture
from tests.probes.queue.operations import OPERATIONS
from tests.server import SECOND_ACCOUNT


def test_receipt_of_another_queue(queues: QueueFixture) -> None:
    own, other, foreign = queues.create(), queues.create(), queues.create(SECOND_ACCOUNT)
    with queues.unchanged():
        for row in ("delete_message", "update_message"):
            operation = next(each for each in OPERATIONS if each.row == row)
            for target in (other, foreign):
                crossed = own._replace(message=target.message, receipt=target.receipt)
                answer = queues.client.ask(queues.sign_as_owner(operation.request(crossed)))
                assert (answer.status, answer.code) == (404, "MessageNotFound")
    for target in (own, other, foreign):
        queues.remove(target)
