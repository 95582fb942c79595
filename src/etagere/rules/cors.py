"""Cross-origin requests (CORS).

Rules are tried in order. The first one that allows the origin and the method decides, even if a
later one would allow more headers:

    AllowedOrigins      as sent, or `*` for all, or `https://*.example.com` for those below it, or
                        `*.example.com` for those below it with any scheme
    AllowedMethods      one of these
    AllowedHeaders      each header that the request is going to have, in any case; a `*` at the
                        end stands for the rest of a name

CORS does not authorize requests. A preflight that fails is refused. An actual request is answered
like any other, but without the headers that let a page read the response.

Responses to GET and HEAD may be cached, so they have `Vary: Origin` whenever another origin could
get other headers: unless there are no rules, or a rule for all origins applied. That includes
requests without an origin, since a cache may send the response to a page later.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from etagere.errors import Refusal
from etagere.model.service import CorsRule

ANY = "*"
CACHED_METHODS = frozenset({"GET", "HEAD"})
_BEFORE_HOST = "://"
_SUBDOMAINS = "://*."
_ANY_SUBDOMAIN = "*."
_HOST = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")

Headers = list[tuple[str, str]]
"""Headers, in the order in which they are sent."""


def preflight(
    rules: Iterable[CorsRule], origin: str | None, method: str | None, headers: str | None
) -> Headers | Refusal:
    """Returns the headers of the response to OPTIONS. The arguments are the values of Origin,
    Access-Control-Request-Method and Access-Control-Request-Headers.

    The response repeats only what was requested, so that a page learns nothing else about the rule.
    """
    if not origin:
        return Refusal("InvalidHeaderValue", {"HeaderName": "Origin"})
    if not method:
        return Refusal("InvalidHeaderValue", {"HeaderName": "Access-Control-Request-Method"})
    rule = _first_match(rules, origin, method)
    if rule is None:
        return _failure("No CORS rule allows this origin and method.")
    covers = _cover(rule.allowed_headers)
    for name in _split(headers or ""):
        if not covers(name):
            return _failure(
                f"The first CORS rule that allows this origin and method does not allow the "
                f"header {name}."
            )
    answer = [
        ("Access-Control-Allow-Origin", origin),
        ("Access-Control-Allow-Methods", method),
    ]
    if headers:
        answer.append(("Access-Control-Allow-Headers", headers))
    answer.append(("Access-Control-Max-Age", str(rule.max_age_seconds)))
    answer.append(("Access-Control-Allow-Credentials", "true"))
    return answer


def actual(
    rules: Sequence[CorsRule], origin: str | None, method: str, response_headers: Iterable[str]
) -> Headers:
    """Returns the headers to add to the response of an actual request, which has these headers."""
    if not rules:
        return []
    cached = method in CACHED_METHODS
    if not origin and not cached:
        return []
    rule = _first_match(rules, origin or None, method)
    if rule is None:
        return [("Vary", "Origin")] if cached else []
    added: Headers = []
    exposed = _exposed(rule.exposed_headers, response_headers)
    if exposed:
        added.append(("Access-Control-Expose-Headers", exposed))
    if ANY in rule.allowed_origins:
        added.append(("Access-Control-Allow-Origin", ANY))
        return added
    added.append(("Access-Control-Allow-Origin", origin or ""))
    # Browsers accept this only with a specific origin.
    added.append(("Access-Control-Allow-Credentials", "true"))
    if cached:
        added.append(("Vary", "Origin"))
    return added


def _failure(detail: str) -> Refusal:
    return Refusal("CorsPreflightFailure", {"MessageDetails": detail})


def _first_match(rules: Iterable[CorsRule], origin: str | None, method: str) -> CorsRule | None:
    """Returns the first rule that applies. Without an origin, only a rule for all origins does."""
    for rule in rules:
        if _allows_origin(rule, origin) and _allows_method(rule, method):
            return rule
    return None


def _allows_origin(rule: CorsRule, origin: str | None) -> bool:
    if ANY in rule.allowed_origins:
        return True
    if origin is None:
        return False
    return any(_is_allowed(origin, allowed) for allowed in rule.allowed_origins)


def _is_allowed(origin: str, allowed: str) -> bool:
    if allowed.startswith(_ANY_SUBDOMAIN):
        # Without a scheme, any scheme is allowed.
        allowed = origin.partition(_BEFORE_HOST)[0] + _BEFORE_HOST + allowed
    return _is_subdomain(origin, allowed) if _SUBDOMAINS in allowed else origin == allowed


def _is_subdomain(origin: str, allowed: str) -> bool:
    """Returns whether an origin is a subdomain of the allowed domain, with the same scheme."""
    scheme, _, domain = allowed.partition(_SUBDOMAINS)
    start, end = scheme + _BEFORE_HOST, "." + domain
    if not origin.startswith(start) or not origin.endswith(end):
        return False
    return _HOST.fullmatch(origin, len(start), len(origin) - len(end)) is not None


def _allows_method(rule: CorsRule, method: str) -> bool:
    wanted = method.upper()
    return any(allowed.upper() == wanted for allowed in rule.allowed_methods)


def _cover(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Returns a function that tells whether a header name matches a pattern. It is fast, because
    preflights, which are not authenticated, may name thousands of headers."""
    lower = [pattern.lower() for pattern in patterns]
    names = frozenset(lower)
    beginnings = tuple(pattern[:-1] for pattern in lower if pattern.endswith(ANY))

    def covers(name: str) -> bool:
        name = name.lower()
        return name in names or name.startswith(beginnings)

    return covers


def _exposed(patterns: Sequence[str], response_headers: Iterable[str]) -> str:
    """Returns the exposed headers of the response, and those that the rule names in full, which may
    be added later."""
    if not patterns:
        return ""
    names = list(filter(_cover(patterns), response_headers))
    seen = {name.lower() for name in names}
    names += [name for name in patterns if not name.endswith(ANY) and name.lower() not in seen]
    return ",".join(names)


def _split(text: str) -> list[str]:
    return [part for part in map(str.strip, text.split(",")) if part]
