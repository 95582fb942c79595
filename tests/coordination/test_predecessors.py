"""A process that is started again on its node replaces the one before it."""

from __future__ import annotations

import asyncio
import threading

from tests.coordination.postgres import SECONDS_MAX, joining


def test_a_process_that_is_started_again_has_the_tasks_at_once(
    postgresql_dsn: str, postgresql_schema: str
) -> None:
    lost = threading.Event()

    async def work() -> None:
        old = joining(
            postgresql_dsn, postgresql_schema, node="a", name="files", on_declared_dead=lost.set
        )()
        others = [
            joining(postgresql_dsn, postgresql_schema, node=node, name=name)()
            for node, name in (("a", "front end 1"), ("b", "files"))
        ]
        async with old.sole_worker("task") as held:
            assert held is not None
            new = joining(
                postgresql_dsn, postgresql_schema, node="a", name="files", replaces_predecessor=True
            )()
            assert not await new.is_alive(old.process_id)
            for other in others:
                assert await new.is_alive(other.process_id)
            async with new.sole_worker("task") as taken:
                assert taken is not None
                assert taken.epoch > held.epoch
        assert await asyncio.to_thread(lost.wait, SECONDS_MAX)
        for each in (new, old, *others):
            each.close()

    asyncio.run(work())
