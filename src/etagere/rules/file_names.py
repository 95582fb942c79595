"""Names of shares, directories and files.

Lengths are counted in UTF-16 code units, as the service and Windows count them.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from etagere.errors import Refusal
from etagere.rules.names import NAME_LENGTH_MESSAGE, utf16_length

SHARE_NAME_LENGTH_MIN: Final = 3
SHARE_NAME_LENGTH_MAX: Final = 63
COMPONENT_LENGTH_MAX: Final = 255
PATH_LENGTH_MAX: Final = 2_048
DEPTH_MAX: Final = 250

_SHARE_NAME: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_ILLEGAL: Final = re.compile(r'["\\/:|<>*?\x00-\x1f\x7f\ud800-\udfff]')
_RESERVED: Final = frozenset(
    {"PRN", "AUX", "NUL", "CON", "CLOCK$"}
    | {f"{device}{number}" for device in ("LPT", "COM") for number in range(1, 10)}
)


def check_share_name(name: str) -> Refusal | None:
    if not SHARE_NAME_LENGTH_MIN <= len(name) <= SHARE_NAME_LENGTH_MAX:
        facts: dict[str, str | int] = {
            "Input": "ShareName",
            "Minimum": SHARE_NAME_LENGTH_MIN,
            "Maximum": SHARE_NAME_LENGTH_MAX,
        }
        return Refusal("OutOfRangeInput", facts, message_override=NAME_LENGTH_MESSAGE)
    return None if _SHARE_NAME.fullmatch(name) is not None else Refusal("InvalidResourceName")


def split_path(path: str, *, allow_trailing_dot: bool) -> tuple[str, ...]:
    """Returns the components of a path; the root has none.

    A trailing slash names the same directory. Without `allow_trailing_dot`, trailing dots of a
    component are removed, as SMB clients do.
    """
    components = tuple(path.removesuffix("/").split("/")) if path else ()
    if allow_trailing_dot:
        return components
    return tuple(without_trailing_dots(component) for component in components)


def without_trailing_dots(component: str) -> str:
    """Returns the component without trailing dots, unless it consists of dots alone."""
    return component.rstrip(".") or component


def check_path(components: tuple[str, ...]) -> Refusal | None:
    for component in components:
        refusal = check_component(component)
        if refusal is not None:
            return refusal
    length = sum(map(utf16_length, components)) + max(0, len(components) - 1)
    if length > PATH_LENGTH_MAX or len(components) > DEPTH_MAX:
        return Refusal("InvalidFileOrDirectoryPathName", {"PathLength": length})
    return None


def check_component(name: str) -> Refusal | None:
    if not 1 <= utf16_length(name) <= COMPONENT_LENGTH_MAX:
        facts: dict[str, str | int] = {"Minimum": 1, "Maximum": COMPONENT_LENGTH_MAX}
        return Refusal("OutOfRangeInput", facts, message_override=NAME_LENGTH_MESSAGE)
    if _ILLEGAL.search(name) is not None or name.upper() in _RESERVED or not name.strip("."):
        return Refusal("InvalidResourceName")
    return None


def fold_name(name: str) -> str:
    """Returns the form under which a name is looked up: two names are the same if theirs is.

    Windows upper-cases every UTF-16 code unit by itself. Characters whose upper-case form has
    several characters (U+00DF) or is ASCII (U+0131, U+017F) stay as they are, and so do those
    outside of the basic multilingual plane.
    """
    return name.upper() if name.isascii() else _fold(name)


@lru_cache(maxsize=4_096)
def _fold(name: str) -> str:
    return "".join(map(_fold_character, name))


def _fold_character(character: str) -> str:
    if character.isascii():
        return character.upper()
    upper = character.upper()
    if len(upper) != 1 or upper.isascii() or character > "\uffff" or upper > "\uffff":
        return character
    return upper
