"""Every setting and limit in one place, named with its unit."""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True)
class Config:
    """Settings of one store; the defaults are what the measurements in docs/decisions chose."""

    # Durability: False only for stores that are thrown away.
    durable: bool = True
    # An SQLite VFS registered by the process, for tests that inject errors; "" is the default.
    sqlite_vfs: str = ""
    page_bytes: int = 8 * KIB
    page_cache_bytes: int = 64 * MIB
    # Of each connection for listings, which read in order what they read once.
    stepping_cache_bytes: int = 4 * MIB
    # The write-ahead log is moved into the database once it holds this many pages.
    checkpoint_pages: int = 2_000
    # A log that overlapping readers keep from starting over may become this long; then the writer
    # waits so long for them. A snapshot held longer than its limit is given up, and a scan goes on
    # in a new one: twice that limit must fit into the wait.
    log_restart_pages: int = 6_000
    log_restart_seconds_max: float = 1.0
    snapshot_seconds_max: float = 0.25
    # What a log that has started over keeps of its file.
    log_bytes_kept: int = 32 * MIB
    # Free pages of the database are given back to the file system in steps of so many, until no
    # more are left than these and an eighth of the pages in use.
    vacuum_step_pages: int = 64
    free_pages_kept: int = 256

    # A group is what one commit makes durable. More per group is more throughput; the
    # time bound keeps one group from making the next one wait.
    group_operations_max: int = 256
    group_seconds_max: float = 0.005
    # One message between a front end and the writer.
    frame_bytes_max: int = 64 * MIB
    # How long a front end waits for a writer that is being started again.
    writer_start_seconds_max: float = 10.0
    # An answer that takes longer is given up as unknown.
    writer_answer_seconds_max: float = 60.0

    conflict_attempts_max: int = 20
    conflict_seconds_max: float = 15.0

    # Bodies up to this size live in the ledger, larger ones in segments.
    inline_bytes_max: int = 32 * KIB
    segment_bytes_max: int = 256 * MIB
    # A piece is what one checksum covers.
    piece_bytes_max: int = 64 * MIB
    # Open segment files a process keeps for its readers.
    segment_files_max: int = 256
    # Connections of one front end, as far as its descriptors allow for.
    connections_max: int = 10_000
    # Bodies and documents in flight, in all front ends of a server together.
    memory_budget_bytes: int = 192 * MIB
    # A segment is rewritten when this share of it is dead.
    sparse_dead_share: float = 0.15
    # Deletes must work on a full disk: the ledger keeps this much allocated for them,
    # and bodies leave this much free. Several times the write-ahead log, which needs it.
    reserve_bytes: int = 64 * MIB
