"""Service properties and stored access policies.

Properties are stored as a whole and changed element by element: elements that a request omits stay
unchanged. `rules/service_properties.py` defines what may be set and how changes are merged.
"""

from __future__ import annotations

from typing import Final

from etagere.model.base import Part, Record

ANALYTICS_VERSION: Final = "1.0"


class RetentionPolicy(Part, frozen=True):
    """How long data is kept: logs and metrics before they are deleted, blobs and shares after they
    were deleted."""

    enabled: bool = False
    days: int | None = None
    """Set only if the policy is enabled."""
    allow_permanent_delete: bool = False
    """Whether deleted blobs may be deleted permanently before the time is over."""


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
    """Whether operations are counted separately; set only if metrics are enabled."""
    retention: RetentionPolicy = NO_RETENTION


class CorsRule(Part, frozen=True):
    """A CORS rule; `rules/cors.py` applies it."""

    allowed_origins: tuple[str, ...]
    allowed_methods: tuple[str, ...]
    allowed_headers: tuple[str, ...] = ()
    exposed_headers: tuple[str, ...] = ()
    max_age_seconds: int = 0


class StaticWebsite(Part, frozen=True):
    """Whether `$web` is served as a website, and its index and error documents."""

    enabled: bool = False
    index_document: str | None = None
    default_index_document_path: str | None = None
    error_document_404_path: str | None = None


class SmbSettings(Part, frozen=True):
    """Settings of SMB. None: not set."""

    multichannel: bool | None = None
    encryption_required: bool | None = None
    versions: tuple[str, ...] | None = None
    """An empty list in a request removes the setting."""
    authentication_methods: tuple[str, ...] | None = None
    kerberos_ticket_encryption: tuple[str, ...] | None = None
    channel_encryption: tuple[str, ...] | None = None


class NfsSettings(Part, frozen=True):
    """Settings of NFS. None: not set."""

    encryption_required: bool | None = None


class ProtocolSettings(Part, frozen=True):
    """Settings of the protocols of the file service."""

    smb: SmbSettings = SmbSettings()
    nfs: NfsSettings = NfsSettings()


class ServiceProperties(Record, frozen=True):
    """The properties of one service of an account, with their defaults."""

    logging: Logging = Logging()
    hour_metrics: Metrics = Metrics()
    minute_metrics: Metrics = Metrics()
    cors: tuple[CorsRule, ...] = ()
    default_service_version: str | None = None
    """The version of requests that name none."""
    delete_retention: RetentionPolicy = NO_RETENTION
    static_website: StaticWebsite = StaticWebsite()
    protocol_settings: ProtocolSettings = ProtocolSettings()
    """Only of the file service."""
    share_delete_retention: RetentionPolicy = NO_RETENTION
    """How long deleted shares can be restored. Only of the file service."""


class ServicePropertiesChange(Part, frozen=True):
    """The properties that a request sets. None: unchanged."""

    logging: Logging | None = None
    hour_metrics: Metrics | None = None
    minute_metrics: Metrics | None = None
    cors: tuple[CorsRule, ...] | None = None
    default_service_version: str | None = None
    delete_retention: RetentionPolicy | None = None
    static_website: StaticWebsite | None = None
    protocol_settings: ProtocolSettings | None = None
    share_delete_retention: RetentionPolicy | None = None


class AccessPolicy(Part, frozen=True):
    """An access policy, in the words of the client that set it. None: left to the token."""

    start: str | None = None
    expiry: str | None = None
    permission: str | None = None


NO_LIMITS: Final = AccessPolicy()


class SignedIdentifier(Part, frozen=True):
    """A stored access policy, and the id by which tokens refer to it."""

    id: str
    policy: AccessPolicy = NO_LIMITS
