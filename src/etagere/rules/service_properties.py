"""Rules for service properties: what may be set, and how changes are merged.

The decoder has checked the required nodes of the document. These rules check what each service and
version supports, nodes that depend on others, and limits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from etagere.errors import Refusal
from etagere.model.service import (
    CorsRule,
    Logging,
    Metrics,
    NfsSettings,
    ProtocolSettings,
    RetentionPolicy,
    ServiceProperties,
    ServicePropertiesChange,
    SmbSettings,
    StaticWebsite,
)

# Elements

ELEMENTS: Final[dict[str, str]] = {
    "Logging": "logging",
    "HourMetrics": "hour_metrics",
    "MinuteMetrics": "minute_metrics",
    "Cors": "cors",
    "DeleteRetentionPolicy": "delete_retention",
    "StaticWebsite": "static_website",
    "DefaultServiceVersion": "default_service_version",
    "ProtocolSettings": "protocol_settings",
    "ShareDeleteRetentionPolicy": "share_delete_retention",
}
"""The elements of the document in order, and the fields that hold them."""

_ANALYTICS: Final = frozenset({"Logging", "HourMetrics", "MinuteMetrics", "Cors"})
_BY_SERVICE: Final[dict[str, frozenset[str]]] = {
    "blob": _ANALYTICS | {"DeleteRetentionPolicy", "StaticWebsite", "DefaultServiceVersion"},
    "queue": _ANALYTICS,
    "table": _ANALYTICS,
    "file": _ANALYTICS - {"Logging"} | {"ProtocolSettings", "ShareDeleteRetentionPolicy"},
}
_SINCE: Final[dict[str, str]] = {
    "HourMetrics": "2013-08-15",
    "MinuteMetrics": "2013-08-15",
    "Cors": "2013-08-15",
    "DefaultServiceVersion": "2011-08-18",
    "DeleteRetentionPolicy": "2017-07-29",
    "StaticWebsite": "2018-03-28",
    "ProtocolSettings": "2020-02-10",
}


def elements(service: str, version: str) -> Iterator[str]:
    """Yields the elements that a service has in this version."""
    for name in ELEMENTS:
        if name in _BY_SERVICE[service] and version >= _SINCE.get(name, ""):
            yield name


# Limits

CORS_RULES_MAX = 5
CORS_CHARACTERS_MAX = 2 * 1024
"""Of all rules together, without XML tags."""
CORS_ITEM_CHARACTERS_MAX = 256
CORS_ORIGINS_MAX = 64
CORS_LITERAL_HEADERS_MAX = 64
CORS_PREFIXED_HEADERS_MAX = 2
CORS_METHODS: Final = frozenset(
    {"DELETE", "GET", "HEAD", "MERGE", "OPTIONS", "PATCH", "POST", "PUT"}
)
MAX_AGE_SECONDS_MAX = 2**31 - 1
RETENTION_DAYS_MIN = 1
RETENTION_DAYS_MAX = 365
DOCUMENT_PATH_CHARACTERS_MAX = 1024
# fmt: off
VERSIONS: Final = frozenset({
    "2008-10-27", "2009-04-14", "2009-07-17", "2009-09-19", "2011-08-18", "2012-02-12",
    "2013-08-15", "2014-02-14", "2015-02-21", "2015-04-05", "2015-07-08", "2015-12-11",
    "2016-05-31", "2017-04-17", "2017-07-29", "2017-11-09", "2018-03-28", "2018-06-17",
    "2018-11-09", "2019-02-02", "2019-07-07", "2019-10-10", "2019-12-12", "2020-02-10",
    "2020-04-08", "2020-06-12", "2020-08-04", "2020-10-02", "2020-12-06", "2021-02-12",
    "2021-04-10", "2021-06-08", "2021-08-06", "2021-10-04", "2021-12-02", "2022-11-02",
    "2023-01-03", "2023-05-03", "2023-08-03", "2023-11-03", "2024-02-04", "2024-05-04",
    "2024-08-04", "2024-11-04", "2025-01-05", "2025-05-05", "2025-07-05", "2025-11-05",
    "2026-02-06", "2026-04-06", "2026-06-06", "2026-10-06",
})
# fmt: on
"""The versions of the protocol that can be set as the default."""

_LOGGING_VERSIONS: Final = frozenset({"1.0", "2.0"})
_METRICS_VERSIONS: Final = frozenset({"1.0"})
_ORIGIN = re.compile(r"[\x21-\x29\x2b\x2d-\x7e]+")  # no star, no comma
_SUBDOMAINS = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*://)?\*\.[\x21-\x29\x2b\x2d-\x7e]+")
_HEADER = re.compile(r"[!#$%&'+.^_`|~0-9A-Za-z-]+")  # a token without a star


def check(change: ServicePropertiesChange, service: str, version: str) -> Refusal | None:
    """Refuses a change that a request of this version may not make."""
    known = set(elements(service, version))
    for name, field in ELEMENTS.items():
        if getattr(change, field) is not None and name not in known:
            return Refusal("UnsupportedXmlNode", {"XmlNodeName": name})
    return (
        _check_logging(change.logging)
        or _check_metrics(change.hour_metrics)
        or _check_metrics(change.minute_metrics)
        or _check_cors(change.cors)
        or _check_default_version(change.default_service_version)
        or _check_retention(change.delete_retention)
        or _check_website(change.static_website)
        or _check_protocols(change.protocol_settings)
        or _check_retention(change.share_delete_retention)
    )


def merge(current: ServiceProperties, change: ServicePropertiesChange) -> ServiceProperties:
    """Returns the properties after a change; elements are replaced as a whole, except that each
    setting of a protocol is an element of its own.

    The options of a disabled feature are dropped, so that they do not reappear when it is enabled
    again.
    """
    given = {
        field: value for field in ELEMENTS.values() if (value := getattr(change, field)) is not None
    }
    if change.protocol_settings is not None:
        given["protocol_settings"] = _merged_protocols(
            current.protocol_settings, change.protocol_settings
        )
    merged = msgspec.structs.replace(current, **given)
    return msgspec.structs.replace(
        merged,
        logging=msgspec.structs.replace(
            merged.logging, retention=_normalized_retention(merged.logging.retention)
        ),
        hour_metrics=_normalized_metrics(merged.hour_metrics),
        minute_metrics=_normalized_metrics(merged.minute_metrics),
        delete_retention=_normalized_retention(merged.delete_retention),
        share_delete_retention=_normalized_retention(merged.share_delete_retention),
        static_website=merged.static_website if merged.static_website.enabled else StaticWebsite(),
    )


def _normalized_retention(policy: RetentionPolicy) -> RetentionPolicy:
    return policy if policy.enabled else RetentionPolicy()


def _normalized_metrics(metrics: Metrics) -> Metrics:
    return msgspec.structs.replace(
        metrics,
        include_apis=metrics.include_apis if metrics.enabled else None,
        retention=_normalized_retention(metrics.retention),
    )


# Each element


def _check_logging(logging: Logging | None) -> Refusal | None:
    if logging is None:
        return None
    if logging.version not in _LOGGING_VERSIONS:
        return _bad("Version", logging.version)
    return _check_retention(logging.retention)


def _check_metrics(metrics: Metrics | None) -> Refusal | None:
    if metrics is None:
        return None
    if metrics.version not in _METRICS_VERSIONS:
        return _bad("Version", metrics.version)
    if metrics.enabled and metrics.include_apis is None:
        return _missing("IncludeAPIs")
    return _check_retention(metrics.retention)


def _check_retention(policy: RetentionPolicy | None) -> Refusal | None:
    if policy is None or not policy.enabled:
        return None
    if policy.days is None:
        return _missing("Days")
    return check_retention_days(policy.days)


def check_retention_days(days: int, line: int = 0, position: int = 0) -> Refusal | None:
    """Checks the days of an enabled retention policy. Line and position are those of its end in the
    document."""
    if RETENTION_DAYS_MIN <= days <= RETENTION_DAYS_MAX:
        return None
    reason = (
        "Retention days must be greater than 0 and less than or equal to "
        f"{RETENTION_DAYS_MAX} days."
    )
    return invalid_document(reason, line, position)


def _check_default_version(version: str | None) -> Refusal | None:
    if version is None or version in VERSIONS:
        return None
    return _bad("DefaultServiceVersion", version)


def _check_website(website: StaticWebsite | None) -> Refusal | None:
    if website is None or not website.enabled:
        return None
    for node, path in (
        ("IndexDocument", website.index_document),
        ("DefaultIndexDocumentPath", website.default_index_document_path),
        ("ErrorDocument404Path", website.error_document_404_path),
    ):
        if path is not None and len(path) > DOCUMENT_PATH_CHARACTERS_MAX:
            return _bad(node, path)
    # It is looked up in every directory, so it must be a name without slashes.
    if website.index_document is not None and "/" in website.index_document:
        return _bad("IndexDocument", website.index_document)
    return None


# Protocols of the file service

SMB_VALUES: Final[dict[str, tuple[str, ...]]] = {
    "Versions": ("SMB2.1", "SMB3.0", "SMB3.1.1"),
    "AuthenticationMethods": ("NTLMv2", "Kerberos"),
    "KerberosTicketEncryption": ("RC4-HMAC", "AES-256"),
    "ChannelEncryption": ("AES-128-CCM", "AES-128-GCM", "AES-256-GCM"),
}
"""The values of the lists in the settings of SMB, and their order."""


def _check_protocols(settings: ProtocolSettings | None) -> Refusal | None:
    if settings is None:
        return None
    smb = settings.smb
    for node, values in (
        ("Versions", smb.versions),
        ("AuthenticationMethods", smb.authentication_methods),
        ("KerberosTicketEncryption", smb.kerberos_ticket_encryption),
        ("ChannelEncryption", smb.channel_encryption),
    ):
        for value in values or ():
            if value not in SMB_VALUES[node]:
                return _bad(node, value)
    return None


def _merged_protocols(current: ProtocolSettings, change: ProtocolSettings) -> ProtocolSettings:
    return ProtocolSettings(
        msgspec.structs.replace(current.smb, **_set_fields(change.smb)),
        msgspec.structs.replace(current.nfs, **_set_fields(change.nfs)),
    )


def _set_fields(settings: SmbSettings | NfsSettings) -> dict[str, object]:
    """Returns the settings that a request changes. An empty list is the default, None."""
    values = {name: getattr(settings, name) for name in settings.__struct_fields__}
    return {
        name: None if value == () else value for name, value in values.items() if value is not None
    }


# CORS


def _check_cors(rules: tuple[CorsRule, ...] | None) -> Refusal | None:
    if rules is None:
        return None
    if len(rules) > CORS_RULES_MAX:
        # The service reports neither a position nor a reason.
        return invalid_document("")
    characters = sum(map(_characters, rules))
    if characters > CORS_CHARACTERS_MAX:
        return _outside("Cors", characters, 0, CORS_CHARACTERS_MAX)
    for rule in rules:
        refusal = _check_rule(rule)
        if refusal is not None:
            return refusal
    return None


def _characters(rule: CorsRule) -> int:
    lists = (rule.allowed_origins, rule.allowed_methods, rule.allowed_headers, rule.exposed_headers)
    return sum(len(",".join(items)) for items in lists) + len(str(rule.max_age_seconds))


def _check_rule(rule: CorsRule) -> Refusal | None:
    if not 0 <= rule.max_age_seconds <= MAX_AGE_SECONDS_MAX:
        return _outside("MaxAgeInSeconds", rule.max_age_seconds, 0, MAX_AGE_SECONDS_MAX)
    return (
        _check_origins(rule.allowed_origins)
        or _check_methods(rule.allowed_methods)
        or _check_headers("AllowedHeaders", rule.allowed_headers)
        or _check_headers("ExposedHeaders", rule.exposed_headers)
    )


def _check_origins(origins: tuple[str, ...]) -> Refusal | None:
    node = "AllowedOrigins"
    if not origins:
        return _bad(node, "")
    if len(origins) > CORS_ORIGINS_MAX:
        return _outside(node, len(origins), 1, CORS_ORIGINS_MAX)
    for origin in origins:
        good = origin == "*" or _ORIGIN.fullmatch(origin) or _SUBDOMAINS.fullmatch(origin)
        if not good or len(origin) > CORS_ITEM_CHARACTERS_MAX:
            return _bad(node, origin)
    return None


def _check_methods(methods: tuple[str, ...]) -> Refusal | None:
    if not methods:
        return _bad("AllowedMethods", "")
    for method in methods:
        if method.upper() not in CORS_METHODS:
            return _bad("AllowedMethods", method)
    return None


def _check_headers(node: str, headers: tuple[str, ...]) -> Refusal | None:
    for header in headers:
        # `*` alone is a prefix of every name.
        good = header == "*" or _HEADER.fullmatch(header.removesuffix("*")) is not None
        if not good or len(header) > CORS_ITEM_CHARACTERS_MAX:
            return _bad(node, header)
    prefixed = sum(header.endswith("*") for header in headers)
    literal = len(headers) - prefixed
    if literal > CORS_LITERAL_HEADERS_MAX:
        return _outside(node, literal, 0, CORS_LITERAL_HEADERS_MAX)
    if prefixed > CORS_PREFIXED_HEADERS_MAX:
        return _outside(node, prefixed, 0, CORS_PREFIXED_HEADERS_MAX)
    return None


def invalid_document(reason: str, line: int = 0, position: int = 0) -> Refusal:
    """Returns the refusal of a well-formed document with invalid values: the service calls it
    invalid, at position 0 where it has no other."""
    facts: dict[str, str | int] = {"LineNumber": line, "LinePosition": position}
    return Refusal("InvalidXmlDocument", {**facts, "Reason": reason})


def _missing(node: str) -> Refusal:
    return Refusal("MissingRequiredXmlNode", {"XmlNodeName": node})


def _bad(node: str, value: str) -> Refusal:
    return Refusal("InvalidXmlNodeValue", {"XmlNodeName": node, "XmlNodeValue": value})


def _outside(node: str, value: int, minimum: int, maximum: int) -> Refusal:
    """Returns the refusal of a number, a count or a length out of range."""
    return Refusal(
        "InvalidXmlNodeValue",
        {
            "XmlNodeName": node,
            "XmlNodeValue": value,
            "MinimumAllowed": minimum,
            "MaximumAllowed": maximum,
        },
    )
