"""Service properties as XML.

Decoding requires the mandatory nodes and values of the right type; `rules/service_properties.py`
checks the rest. Encoding includes every element of the service, without options of disabled
features.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

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
from etagere.protocol.codecs import xml
from etagere.protocol.codecs.xml import Element
from etagere.rules.service_properties import (
    CORS_RULES_MAX,
    ELEMENTS,
    SMB_VALUES,
    check_retention_days,
    elements,
)

ROOT: Final = "StorageServiceProperties"

_T = TypeVar("_T")


# Decoding


def decode(body: bytes) -> ServicePropertiesChange | Refusal:
    """Decodes a document. Its elements may be in any order."""
    root = xml.read(body, ROOT, with_positions=True)
    if isinstance(root, Refusal):
        return root
    if not root.children:
        return xml.invalid_document("The document sets nothing.", root.end_line, root.end_position)
    try:
        found = xml.children(root, ELEMENTS)
        return ServicePropertiesChange(
            logging=_if_there(found, "Logging", _logging),
            hour_metrics=_if_there(found, "HourMetrics", _metrics),
            minute_metrics=_if_there(found, "MinuteMetrics", _metrics),
            cors=_if_there(found, "Cors", _cors),
            default_service_version=_if_there(found, "DefaultServiceVersion", xml.value),
            delete_retention=_if_there(found, "DeleteRetentionPolicy", _delete_retention),
            static_website=_if_there(found, "StaticWebsite", _static_website),
            protocol_settings=_if_there(found, "ProtocolSettings", _protocols),
            share_delete_retention=_if_there(found, "ShareDeleteRetentionPolicy", _retention),
        )
    except xml.Unreadable as unreadable:
        return unreadable.refusal


def _if_there(found: dict[str, Element], name: str, read: Callable[[Element], _T]) -> _T | None:
    element = found.get(name)
    return None if element is None else read(element)


def _logging(element: Element) -> Logging:
    found = xml.children(element, ("Version", "Delete", "Read", "Write", "RetentionPolicy"))
    return Logging(
        version=xml.value(xml.required(found, "Version")),
        delete=xml.boolean(xml.required(found, "Delete")),
        read=xml.boolean(xml.required(found, "Read")),
        write=xml.boolean(xml.required(found, "Write")),
        retention=_analytics_retention(xml.required(found, "RetentionPolicy")),
    )


def _metrics(element: Element) -> Metrics:
    found = xml.children(element, ("Version", "Enabled", "IncludeAPIs", "RetentionPolicy"))
    return Metrics(
        version=xml.value(xml.required(found, "Version")),
        enabled=xml.boolean(xml.required(found, "Enabled")),
        include_apis=_if_there(found, "IncludeAPIs", xml.boolean),
        retention=_analytics_retention(xml.required(found, "RetentionPolicy")),
    )


def _retention(element: Element, *more: str) -> RetentionPolicy:
    found = xml.children(element, ("Enabled", "Days", *more))
    policy = RetentionPolicy(
        enabled=xml.boolean(xml.required(found, "Enabled")),
        days=_if_there(found, "Days", xml.integer),
        allow_permanent_delete=_if_there(found, "AllowPermanentDelete", xml.boolean) or False,
    )
    if policy.enabled and policy.days is not None:
        refusal = check_retention_days(policy.days, *_end(element))
        if refusal is not None:
            raise xml.Unreadable(refusal)
    return policy


def _end(element: Element) -> tuple[int, int]:
    """Returns the line and the position that the service reports for the end of an element: up to
    the name in the end tag."""
    return element.end_line, element.end_position + len("</")


def _analytics_retention(element: Element) -> RetentionPolicy:
    policy = _retention(element)
    if policy.days is not None and not policy.enabled:
        reason = "Element Days is only expected when RetentionPolicy is enabled."
        raise xml.Unreadable(xml.invalid_document(reason, *_end(element)))
    return policy


def _delete_retention(element: Element) -> RetentionPolicy:
    return _retention(element, "AllowPermanentDelete")


def _cors(element: Element) -> tuple[CorsRule, ...]:
    for child in element.children:
        if child.name != "CorsRule":
            raise xml.Unreadable(Refusal("UnsupportedXmlNode", {"XmlNodeName": child.name}))
    # One more than allowed is read, so that the rules can refuse it.
    return tuple(map(_cors_rule, element.children[: CORS_RULES_MAX + 1]))


def _cors_rule(element: Element) -> CorsRule:
    lists = ("AllowedOrigins", "AllowedMethods", "AllowedHeaders", "ExposedHeaders")
    found = xml.children(element, (*lists, "MaxAgeInSeconds"))
    origins, methods, allowed, exposed = (_items(xml.required(found, name)) for name in lists)
    max_age = xml.integer(xml.required(found, "MaxAgeInSeconds"))
    return CorsRule(origins, methods, allowed, exposed, max_age)


def _items(element: Element) -> tuple[str, ...]:
    return tuple(item for part in xml.value(element).split(",") if (item := part.strip()))


def _static_website(element: Element) -> StaticWebsite:
    paths = ("IndexDocument", "DefaultIndexDocumentPath", "ErrorDocument404Path")
    found = xml.children(element, ("Enabled", *paths))
    index, default_index, error = (_if_there(found, name, xml.value) or None for name in paths)
    return StaticWebsite(xml.boolean(xml.required(found, "Enabled")), index, default_index, error)


def _protocols(element: Element) -> ProtocolSettings:
    found = xml.children(element, ("SMB", "NFS"))
    return ProtocolSettings(
        _if_there(found, "SMB", _smb) or SmbSettings(),
        _if_there(found, "NFS", _nfs) or NfsSettings(),
    )


def _smb(element: Element) -> SmbSettings:
    found = xml.children(element, ("Multichannel", "EncryptionInTransit", *SMB_VALUES))
    lists = [_if_there(found, name, _values) for name in SMB_VALUES]
    return SmbSettings(
        _if_there(found, "Multichannel", lambda child: _switch(child, "Enabled")),
        _if_there(found, "EncryptionInTransit", lambda child: _switch(child, "Required")),
        *lists,
    )


def _nfs(element: Element) -> NfsSettings:
    found = xml.children(element, ("EncryptionInTransit",))
    return NfsSettings(
        _if_there(found, "EncryptionInTransit", lambda child: _switch(child, "Required"))
    )


def _switch(element: Element, name: str) -> bool:
    return xml.boolean(xml.required(xml.children(element, (name,)), name))


def _values(element: Element) -> tuple[str, ...]:
    """Returns a list of values that are separated by semicolons, as in the resource manager."""
    return tuple(item for part in xml.value(element).split(";") if (item := part.strip()))


# Encoding


def encode(properties: ServiceProperties, service: str, version: str) -> bytes:
    """Encodes the properties of a service for a version."""
    content = "".join(_WRITERS[name](properties, version) for name in elements(service, version))
    return xml.document(f"<{ROOT}>{content}</{ROOT}>")


def _write_logging(properties: ServiceProperties, _version: str) -> str:
    logging = properties.logging
    return (
        f"<Logging>{xml.element('Version', logging.version)}"
        f"<Read>{_word(logging.read)}</Read><Write>{_word(logging.write)}</Write>"
        f"<Delete>{_word(logging.delete)}</Delete>"
        f"<RetentionPolicy>{_write_retention(logging.retention)}</RetentionPolicy></Logging>"
    )


def _write_metrics(name: str, metrics: Metrics) -> str:
    include_apis = ""
    if metrics.enabled:
        include_apis = f"<IncludeAPIs>{_word(metrics.include_apis or False)}</IncludeAPIs>"
    return (
        f"<{name}>{xml.element('Version', metrics.version)}"
        f"<Enabled>{_word(metrics.enabled)}</Enabled>{include_apis}"
        f"<RetentionPolicy>{_write_retention(metrics.retention)}</RetentionPolicy></{name}>"
    )


def _write_retention(policy: RetentionPolicy) -> str:
    days = f"<Days>{policy.days}</Days>" if policy.enabled else ""
    return f"<Enabled>{_word(policy.enabled)}</Enabled>{days}"


def _write_delete_retention(properties: ServiceProperties, version: str) -> str:
    policy = properties.delete_retention
    permanent = ""
    if version >= _PERMANENT_DELETE_SINCE:
        allowed = _word(policy.allow_permanent_delete)
        permanent = f"<AllowPermanentDelete>{allowed}</AllowPermanentDelete>"
    return f"<DeleteRetentionPolicy>{_write_retention(policy)}{permanent}</DeleteRetentionPolicy>"


_PERMANENT_DELETE_SINCE: Final = "2020-02-10"


def _write_cors(properties: ServiceProperties, _version: str) -> str:
    if not properties.cors:
        return "<Cors />"
    return f"<Cors>{''.join(map(_write_cors_rule, properties.cors))}</Cors>"


def _write_cors_rule(rule: CorsRule) -> str:
    return (
        f"<CorsRule>{xml.element('AllowedMethods', ','.join(rule.allowed_methods))}"
        f"{xml.element('AllowedOrigins', ','.join(rule.allowed_origins))}"
        f"{xml.element('AllowedHeaders', _header_list(rule.allowed_headers))}"
        f"{xml.element('ExposedHeaders', _header_list(rule.exposed_headers))}"
        f"<MaxAgeInSeconds>{rule.max_age_seconds}</MaxAgeInSeconds></CorsRule>"
    )


def _header_list(names: Sequence[str]) -> str:
    """Joins header names: complete names before prefixes, whatever their original order."""
    return ",".join(sorted(names, key=lambda name: name.endswith("*")))


def _write_default_version(properties: ServiceProperties, _version: str) -> str:
    version = properties.default_service_version
    return "" if version is None else xml.element("DefaultServiceVersion", version)


def _write_website(properties: ServiceProperties, _version: str) -> str:
    website = properties.static_website
    paths = ""
    if website.enabled:
        paths = "".join(
            xml.element(name, path)
            for name, path in (
                ("IndexDocument", website.index_document),
                ("ErrorDocument404Path", website.error_document_404_path),
                ("DefaultIndexDocumentPath", website.default_index_document_path),
            )
            if path is not None
        )
    return f"<StaticWebsite><Enabled>{_word(website.enabled)}</Enabled>{paths}</StaticWebsite>"


def _write_protocols(properties: ServiceProperties, version: str) -> str:
    smb, nfs = properties.protocol_settings.smb, properties.protocol_settings.nfs
    smb_content = (
        f"<Multichannel><Enabled>{_word(smb.multichannel or False)}</Enabled></Multichannel>"
    )
    nfs_content = ""
    if version >= _ENCRYPTION_IN_TRANSIT_SINCE:
        smb_content += _write_encryption(smb.encryption_required)
        nfs_content = f"<NFS>{_write_encryption(nfs.encryption_required)}</NFS>"
    lists = (
        smb.versions,
        smb.authentication_methods,
        smb.kerberos_ticket_encryption,
        smb.channel_encryption,
    )
    # The service shows these only to the resource manager, so they are shown only if they are set.
    for name, values in zip(SMB_VALUES, lists, strict=True):
        if values:
            smb_content += xml.element(name, ";".join(values))
    return f"<ProtocolSettings><SMB>{smb_content}</SMB>{nfs_content}</ProtocolSettings>"


_ENCRYPTION_IN_TRANSIT_SINCE: Final = "2026-02-06"


def _write_encryption(required: bool | None) -> str:
    shown = _word(required or False)
    return f"<EncryptionInTransit><Required>{shown}</Required></EncryptionInTransit>"


def _write_share_retention(properties: ServiceProperties, _version: str) -> str:
    policy = properties.share_delete_retention
    if not policy.enabled:
        # The real service has no such element.
        return ""
    name = "ShareDeleteRetentionPolicy"
    return f"<{name}>{_write_retention(policy)}</{name}>"


_WRITERS: Final[dict[str, Callable[[ServiceProperties, str], str]]] = {
    "Logging": _write_logging,
    "HourMetrics": lambda properties, _: _write_metrics("HourMetrics", properties.hour_metrics),
    "MinuteMetrics": lambda properties, _: _write_metrics(
        "MinuteMetrics", properties.minute_metrics
    ),
    "Cors": _write_cors,
    "DeleteRetentionPolicy": _write_delete_retention,
    "StaticWebsite": _write_website,
    "DefaultServiceVersion": _write_default_version,
    "ProtocolSettings": _write_protocols,
    "ShareDeleteRetentionPolicy": _write_share_retention,
}
"""The encoders of the elements, for a version."""


def _word(truth: bool) -> str:
    return "true" if truth else "false"
