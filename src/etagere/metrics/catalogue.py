"""The catalogue of metrics: one row per metric, with its labels.

Every metric that belongs to a process has the label `process` before those of its row. A counter is
exported with the suffix `_total`. Labels have values of the server's own tables, so that clients
cannot add to the number of time series. No label is called `job` or `instance`, which Prometheus
adds itself.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from etagere.metrics.counters import (
    GROUP_OPERATIONS,
    GROUP_ROUND_TRIPS,
    REQUEST_SECONDS,
    WRITE_SECONDS,
)

PREFIX: Final = "etagere_"
PROCESS_LABEL: Final = "process"


class MetricKind(enum.Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(NamedTuple):
    """A row of the catalogue."""

    name: str
    """Without the prefix and the suffixes of samples."""
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    """The upper bounds of the buckets of a histogram, inclusive."""
    of_process: bool = True
    """Whether each process has its own value."""

    @property
    def exported_name(self) -> str:
        suffix = "_total" if self.kind is MetricKind.COUNTER else ""
        return f"{PREFIX}{self.name}{suffix}"

    @property
    def exported_labels(self) -> tuple[str, ...]:
        return (PROCESS_LABEL, *self.labels) if self.of_process else self.labels


COUNTER, GAUGE, HISTOGRAM = MetricKind

# The formatter would spread rows over many lines.
# fmt: off
METRICS: Final = (
    # Requests
    Metric("requests", COUNTER,
           "Requests that were answered, by HTTP status (SMB: NTSTATUS).",
           ("service", "operation", "status")),
    Metric("request_duration_seconds", HISTOGRAM,
           "Time from the head of a request to the end of its response.",
           ("service", "operation"), REQUEST_SECONDS),
    Metric("requests_aborted", COUNTER,
           "Requests whose clients disconnected before the response.", ("service",)),
    Metric("refusals", COUNTER,
           "Refused requests by error code; parts of batches and malformed input count too.",
           ("service", "code")),
    Metric("request_body_bytes", COUNTER, "Bytes of request bodies received.", ("service",)),
    Metric("response_body_bytes", COUNTER,
           "Bytes of response bodies, including those that a client did not read.", ("service",)),
    Metric("connections", GAUGE, "Open connections.", ("service",)),
    Metric("memory_budget_used_bytes", GAUGE, "Memory that bodies in flight use."),
    Metric("memory_budget_bytes", GAUGE, "The limit of that memory, for all front ends together."),
    # The engine
    Metric("write_duration_seconds", HISTOGRAM,
           "Time from sending an operation to the writer to its answer.", (), WRITE_SECONDS),
    Metric("conflicts", COUNTER, "Attempts of operations that ended in a conflict."),
    Metric("retries", COUNTER, "Operations that were run again after a conflict."),
    Metric("retries_exhausted", COUNTER, "Operations that failed after too many conflicts."),
    Metric("writer_operations", COUNTER, "Operations that the writer has run.", ("outcome",)),
    Metric("writer_group_operations", HISTOGRAM,
           "Operations that were committed together.", (), GROUP_OPERATIONS),
    Metric("writer_commit_duration_seconds", HISTOGRAM,
           "Duration of a commit, with its fsync.", (), WRITE_SECONDS),
    Metric("writer_queue_wait_seconds", HISTOGRAM,
           "How long the oldest operation of each group waited.", (), WRITE_SECONDS),
    Metric("writer_queue_operations", GAUGE, "Operations that wait for the writer."),
    # The engine of a cluster
    Metric("database_reads", COUNTER,
           "Reads from PostgreSQL: `validated` on cached records, or in a `transaction`.",
           ("kind",)),
    Metric("database_validations", COUNTER,
           "Statements that validated reads: one round trip for all that had arrived."),
    Metric("database_validation_misses", COUNTER,
           "Records that these statements returned: they were not cached, or had changed."),
    Metric("database_group_round_trips", HISTOGRAM,
           "Round trips to PostgreSQL of a group of writes.", (), GROUP_ROUND_TRIPS),
    Metric("database_wrong_predictions", COUNTER,
           "Write operations that ran again, because a record or the time was not as predicted."),
    Metric("database_connections_lost", COUNTER,
           "Connections to PostgreSQL that were lost, or given up, while reads waited."),
    # SMB
    Metric("smb_sessions", GAUGE, "Sessions of SMB clients."),
    Metric("smb_tracked_shares", GAUGE, "Shares that SMB clients are connected to."),
    Metric("smb_opens", GAUGE, "Handles that SMB clients have open."),
    Metric("smb_locks", GAUGE, "Byte-range locks of SMB clients."),
    Metric("smb_breaks", COUNTER, "Break notifications of oplocks and leases."),
    # Jobs
    Metric("job_rounds", COUNTER, "Successful rounds of a background job.", ("job_name",)),
    Metric("job_failures", COUNTER, "Failed rounds of a background job.", ("job_name",)),
    Metric("job_consecutive_failures", GAUGE,
           "Failures of a background job since its last success.", ("job_name",)),
    Metric("job_last_success_timestamp_seconds", GAUGE,
           "Time of the last success of a background job.", ("job_name",)),
    Metric("collector_chunks_reaped", COUNTER, "Chunks of deleted contents that were released."),
    Metric("collector_extents_moved", COUNTER, "Extents moved out of sparse segments."),
    Metric("collector_segments_removed", COUNTER, "Segments removed."),
    Metric("collector_removed_bytes", COUNTER, "Length of the segments removed."),
    # Processes
    Metric("process_up", GAUGE, "Whether a process answers."),
    Metric("process_start_time_seconds", GAUGE, "Time at which a process was started."),
    Metric("process_restarts", COUNTER, "How often the supervisor has restarted a process."),
    Metric("process_cpu_seconds", COUNTER, "CPU time of a process."),
    Metric("process_resident_memory_bytes", GAUGE, "Resident memory of a process."),
    Metric("certificate_expiry_timestamp_seconds", GAUGE,
           "Time at which the certificate that a front end uses expires; only with TLS."),
    # The store
    Metric("ready", GAUGE, "Whether the server is ready, as /readyz says.", of_process=False),
    Metric("disk_free_bytes", GAUGE, "Free space of the file system of the data directory.",
           of_process=False),
    Metric("reserve_bytes", GAUGE,
           "Disk space reserved for deletes; less than usual on a full disk.", of_process=False),
    Metric("ledger_bytes", GAUGE, "Length of the ledger.", of_process=False),
    Metric("ledger_log_bytes", GAUGE, "Length of the write-ahead log.", of_process=False),
    Metric("segments", GAUGE, "Segment files.", ("state",), of_process=False),
    Metric("segment_bytes", GAUGE, "Length of sealed segments.", ("liveness",), of_process=False),
    Metric("objects", GAUGE, "Stored objects at the last count.", ("kind",), of_process=False),
    Metric("leases", GAUGE, "Active leases at the last count.", ("kind",), of_process=False),
    Metric("count_timestamp_seconds", GAUGE,
           "Time at which the last count of objects and leases ended.", of_process=False),
    Metric("build_info", GAUGE, "Always 1; the labels name the version.",
           ("version", "python_version"), of_process=False),
)
# fmt: on

BY_NAME: Final = {metric.name: metric for metric in METRICS}
