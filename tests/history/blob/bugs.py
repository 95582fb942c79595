"""The bugs that the fake store can have."""

from __future__ import annotations

import enum


class Bug(enum.Enum):
    LOST_UPDATE = "a condition is checked some time before the write"
    STALE_READ = "a read shows the version before"
    TORN_READ = "a read shows the content of the version before"
    ACKNOWLEDGED_LOST = "a kill undoes a change that was acknowledged"
    APPLIED_TWICE = "what was done but not answered is done again after a kill"
    APPLIED_LATE = "what was not done is done after a kill and a restart"
    FAILED_BUT_DONE = "a write is done and answered as if nothing had happened"
    LATE_WRITE = "a write is let through after its lease has ended"
    TWO_HOLDERS = "a lease is granted while another one holds"
    LEASE_FORGOTTEN = "a kill makes leases forgotten"
    ETAG_REUSED = "a write leaves the ETag as it is"
    CLOCK_BACK = "after a kill the clock starts in the past"
    HALF_COMMIT = "a list of blocks is committed block by block"
    LOST_APPEND = "a block that was acknowledged is not there"
    DOUBLED_APPEND = "a block is there twice"
    SWAPPED_APPEND = "a block lies before the one that was there"
    APPENDED_ELSEWHERE = "a block is added although the blob ends elsewhere"
    APPENDED_AFTER_SEAL = "a block is added to what is sealed"
    TORN_PAGES = "only some of the pages are written"
    KEPT_PAGES = "pages stay that were cleared"
    ANY_NUMBER = "pages are written whatever the sequence number is"
    NUMBER_LOST = "the sequence number stays as it was"
    SHARED_SNAPSHOT = "a snapshot changes with its blob"
    LATE_SNAPSHOT = "a snapshot shows what the blob was before"
    SNAPSHOT_LOST = "a kill makes a snapshot forgotten"
