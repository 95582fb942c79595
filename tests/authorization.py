"""What callers need for each request of the probes, by the REST reference.

The rules are in `tests/data/authorization.txt` and do not depend on the permissions that the source
states: the tests compare the answers of a server with them.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from itertools import product
from typing import Final, NamedTuple

from tests.server import ROOT

_NOBODY: Final = "-"
_ANY: Final = "*"
_DERIVED_NAMES: Final = ("head_of_", "group_of_")
"""Prefixes of requests that need what the request without the prefix needs."""


class Need(NamedTuple):
    """What a shared access signature needs."""

    places: frozenset[str]
    """Resource types of an account SAS, or resources of a service SAS: it must be for one."""
    alternatives: tuple[frozenset[str], ...]
    """Sets of letters: it must have all letters of one."""

    def suffices(self, letters: str) -> bool:
        return any(alternative <= set(letters) for alternative in self.alternatives)

    def minimal(self, letters: str) -> Iterator[str]:
        """Yields the smallest sets that suffice, out of the letters that a token may have."""
        for alternative in self.alternatives:
            if alternative <= set(letters):
                yield "".join(sorted(alternative))

    def maximal_insufficient(self, letters: str) -> Iterator[str]:
        """Yields the largest sets that do not suffice. Together with the smallest sets that do,
        they decide about all sets: no letter takes away what others grant."""
        for missing in sorted({"".join(sorted(set(each))) for each in product(*self.alternatives)}):
            if rest := "".join(letter for letter in letters if letter not in missing):
                yield rest


class Rule(NamedTuple):
    """What callers need for a request. None means that no such caller is allowed."""

    account_sas: Need | None
    service_sas: Need | None
    public: str
    """The public access level of the container that anonymous callers need, or an empty string."""
    actions: tuple[frozenset[str], ...]
    """Sets of actions: the role of a user must grant all actions of one. If there is none, no role
    is enough."""

    def allows_user(self, role: str, service: str) -> bool:
        """Returns whether a user with this role may send the request to this service."""
        if not self.actions:
            return False
        granted = ROLES[role].get(service, frozenset())
        return _ANY in granted or any(needed <= granted for needed in self.actions)


def rule_of(service: str, request: str) -> Rule:
    for prefix in _DERIVED_NAMES:
        request = request.removeprefix(prefix)
    return RULES[service][request]


def _read() -> tuple[dict[str, dict[str, Rule]], dict[str, dict[str, frozenset[str]]]]:
    rules: dict[str, dict[str, Rule]] = {}
    roles: dict[str, dict[str, frozenset[str]]] = {}
    section = ""
    for line in (ROOT / "tests/data/authorization.txt").read_text("utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            section = line.strip("[]")
            continue
        name, *columns = line.split()
        if section == "roles":
            service, *actions = columns
            services = list(rules) if service == _ANY else [service]
            roles[name] = dict.fromkeys(services, frozenset(actions))
        else:
            rules.setdefault(section, {})[name] = _rule(*columns)
    return rules, roles


def _rule(account_sas: str, service_sas: str, public: str, user: str) -> Rule:
    return Rule(
        _need(account_sas, ""),
        _need(service_sas, ","),
        public.removeprefix(_NOBODY),
        tuple(frozenset(each.split("+")) for each in user.split("|") if each != _NOBODY),
    )


def _need(text: str, separator: str) -> Need | None:
    if text == _NOBODY:
        return None
    places, _, letters = text.partition(":")
    wanted = string.ascii_lowercase if letters == _ANY else letters.split("|")
    return Need(
        frozenset(places.split(separator) if separator else places),
        tuple(frozenset(each) for each in wanted),
    )


RULES, ROLES = _read()
"""The rules by service and request; the actions that each role grants, by service."""
