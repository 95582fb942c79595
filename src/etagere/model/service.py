"""Service properties and stored access policies: what an owner sets for a service or a container.

Properties are stored as a whole and changed element by element: what a request leaves out stays
as it is. `rules/service_properties.py` says what may be set and how a change is merged.
"""

from __future__ import annotations

from typing import Final

from etagere.model.base import Part, Record

ANALYTICS_VERSION: Final = "1.0"


class RetentionPolicy(Part, frozen=True):
    """How long something is kept: logs and metrics before they go, blobs after they are deleted."""

    enabled: bool = False
    days: int | None = None
    """Only where it is enabled."""
    allow_permanent_delete: bool = False
    """Whether what is kept may be deleted for good before its time; deleted blobs only."""


NO_RETENTION: Final = RetentionPolicy()


class Logging(Part, frozen=True):
    """Which requests are logged."""

    version: str = ANALYTICS_VERSION
    delete: bool = False
    read: bool = False
    write: bool = False
    retention: RetentionPolicy = NO_RETENTION


class Metrics(Part, frozen=True):
    """Whether requests are counted, by the hour or by the minute."""

    version: str = ANALYTICS_VERSION
    enabled: bool = False
    include_apis: bool | None = None
    """Whether each operation is counted for itself; only where it is enabled."""
    retention: RetentionPolicy = NO_RETENTION


class CorsRule(Part, frozen=True):
    """Which pages of other origins may do what. `rules/cors.py` says what it means."""

    allowed_origins: tuple[str, ...]
    allowed_methods: tuple[str, ...]
    allowed_headers: tuple[str, ...] = ()
    exposed_headers: tuple[str, ...] = ()
    max_age_seconds: int = 0


class StaticWebsite(Part, frozen=True):
    """Whether `$web` is served as a website, and which of its blobs stand in for others."""

    enabled: bool = False
    index_document: str | None = None
    default_index_document_path: str | None = None
    error_document_404_path: str | None = None


class ServiceProperties(Record, frozen=True):
    """All that can be set for one service of an account, as it is when nobody has set it."""

    logging: Logging = Logging()
    hour_metrics: Metrics = Metrics()
    minute_metrics: Metrics = Metrics()
    cors: tuple[CorsRule, ...] = ()
    default_service_version: str | None = None
    """For requests that name none."""
    delete_retention: RetentionPolicy = NO_RETENTION
    static_website: StaticWebsite = StaticWebsite()


class ServicePropertiesChange(Part, frozen=True):
    """What a request sets. None: it is not in the request, and stays as it is."""

    logging: Logging | None = None
    hour_metrics: Metrics | None = None
    minute_metrics: Metrics | None = None
    cors: tuple[CorsRule, ...] | None = None
    default_service_version: str | None = None
    delete_retention: RetentionPolicy | None = None
    static_website: StaticWebsite | None = None


class AccessPolicy(Part, frozen=True):
    """What tokens that name the policy may do and when, in the words of whoever set it: they
    come back as they were written. None: left to the token."""

    start: str | None = None
    expiry: str | None = None
    permission: str | None = None


NO_LIMITS: Final = AccessPolicy()


class SignedIdentifier(Part, frozen=True):
    """A stored access policy under the name by which tokens refer to it."""

    id: str
    policy: AccessPolicy = NO_LIMITS
