"""Every setting and limit in one place, named with its unit."""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True)
class Config:
    """Settings of one store; the defaults are based on the measurements in docs/decisions."""

    # Durability: False only for temporary stores.
    durable: bool = True
    # An SQLite VFS registered by the process, for tests that inject errors; "" is the default.
    sqlite_vfs: str = ""
    page_bytes: int = 8 * KIB
    page_cache_bytes: int = 64 * MIB
    # The page cache of each connection for listings, which read every page only once.
    stepping_cache_bytes: int = 4 * MIB
    # The write-ahead log is checkpointed once it has this many pages.
    checkpoint_pages: int = 2_000
    # The maximum length of a log that overlapping readers keep from being restarted, and the time
    # for which the writer then waits for them. A snapshot that is held longer than its limit is
    # given up, and a scan continues in a new one: twice that limit must be less than the wait.
    log_restart_pages: int = 6_000
    log_restart_seconds_max: float = 1.0
    snapshot_seconds_max: float = 0.25
    # The length of the log up to which it is not checkpointed while the ledger is being copied.
    log_copy_pages_max: int = 32_768
    # The maximum size of the log file after a restart.
    log_bytes_kept: int = 32 * MIB
    # Free pages of the database are returned to the file system in steps of this many, until no
    # more are left than this number and an eighth of the used pages.
    vacuum_step_pages: int = 64
    free_pages_kept: int = 256

    # A group of operations shares one commit. Larger groups have more throughput; the time limit
    # keeps a group from delaying the next one.
    group_operations_max: int = 256
    group_seconds_max: float = 0.005
    # The maximum length of a message between a front end and the writer.
    frame_bytes_max: int = 64 * MIB
    # How long a front end waits for a writer that is being restarted.
    writer_start_seconds_max: float = 10.0
    # After this time without an answer, the outcome is unknown.
    writer_answer_seconds_max: float = 60.0

    conflict_attempts_max: int = 20
    conflict_seconds_max: float = 15.0

    # Bodies up to this size are stored in the ledger, larger ones in segments.
    inline_bytes_max: int = 32 * KIB
    segment_bytes_max: int = 256 * MIB
    # A piece has one checksum.
    piece_bytes_max: int = 64 * MIB
    # The number of segment files that a process keeps open for its readers.
    segment_files_max: int = 256
    # The connections of one front end, if it has enough descriptors.
    connections_max: int = 10_000
    # For bodies and documents in flight, in all front ends of a server together.
    memory_budget_bytes: int = 192 * MIB
    # A segment is compacted when more than this fraction of it is dead.
    sparse_dead_share: float = 0.15
    # Deletes must work on a full disk: this much is kept allocated for the ledger, and bodies leave
    # this much free. Several times the size of the write-ahead log, which needs it.
    reserve_bytes: int = 64 * MIB
    # Requests and operations that take longer are logged.
    slow_seconds: float = 1.0
