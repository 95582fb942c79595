"""The front ends of the blob, queue and table services."""

from __future__ import annotations

from etagere.front.process import JOB_PAUSE_SECONDS, Assembly, FrontEndContext
from etagere.jobs.copying import BLOB_COPIES, Copying
from etagere.jobs.folding import JOBS as FOLDING_JOBS
from etagere.jobs.folding import Folding
from etagere.jobs.indexing import DROP_UNUSED_SECONDS, STORE_USES_SECONDS, Indexing
from etagere.jobs.purging import purge
from etagere.jobs.read_recording import PAUSE_SECONDS, ReadRecording
from etagere.jobs.supervision import Job
from etagere.protocol.blob.service import BlobService
from etagere.protocol.queue.service import QueueService
from etagere.protocol.sources.opening import Sources
from etagere.protocol.table.service import TableService

SERVICES = ("blob", "queue", "table")


def assemble(context: FrontEndContext) -> Assembly:
    """Returns the services, with the jobs that maintain the whole store."""
    engine, store, settings = context.engine, context.store, context.settings
    common = engine, context.authenticator, context.access_log
    collector = context.storage.new_collector()
    sources = Sources(
        engine,
        store,
        context.authenticator,
        settings.copy_sources,
        context.ports,
        context.storage.file_process,
    )
    copying = Copying(engine, store, context.coordinator, BLOB_COPIES)
    folding = Folding(engine, store)
    indexing = Indexing(engine)
    read_recording = ReadRecording(engine) if settings.last_access_time_tracking else None
    services = (
        BlobService(
            *common,
            context.share,
            store=store,
            sources=sources,
            copying=copying,
            folding=folding,
            settings=settings,
            read_recording=read_recording,
        ),
        QueueService(*common, context.share),
        TableService(*common, indexing, context.share),
    )
    jobs = [
        Job("collecting", collector.run, JOB_PAUSE_SECONDS),
        Job("purging", lambda: purge(engine, context.coordinator), JOB_PAUSE_SECONDS),
        Job("ending copies", copying.fail_abandoned, JOB_PAUSE_SECONDS),
        *(Job(f"folding {folder}", folding.fold_next, 0) for folder in range(1, FOLDING_JOBS + 1)),
        Job("indexing", indexing.build_next, 0),
        Job("storing uses of indexes", indexing.store_uses, STORE_USES_SECONDS),
        Job("dropping unused indexes", indexing.drop_unused, DROP_UNUSED_SECONDS),
    ]
    closing = [("end copies", copying.close)]
    if read_recording is not None:
        jobs.append(Job("recording reads", read_recording.record_noted, PAUSE_SECONDS))
        closing.append(("record reads", read_recording.close))
    closing.append(("close sources", sources.close))
    return Assembly(services, jobs, closing, counted=(collector,))
