"""Metrics: plain counters in each process, and the table of everything that is measured.

Every process counts for itself, without locks, in ordinary attributes and dictionaries. On request
it adds them to a `Snapshot`, which the admin process turns into the text that Prometheus reads.
"""
