"""XML, as much of it as the protocols need: small trees in, text out.

Reading is safe because of what it leaves out. A document type declaration ends it, so there are
no entities but the five and nothing outside the document; size, depth, the number of elements and
attributes and the length of a token have limits, so the cost of a document is linear in its bytes.
Whatever cannot be read is refused as `InvalidXmlDocument`, with the place.

Namespaces are understood and forgotten: clients declare some, and no two elements of ours differ
by them. Attributes are not read, since no request has one that says anything.

Writing is putting strings together. Almost every text is found to need no escaping, which costs
little.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple
from urllib.parse import quote
from xml.parsers import expat

from etagere.errors import Refusal
from etagere.protocol.turns import at_once

# Reading


@dataclass(slots=True)
class Element:
    """An element: its name without a namespace, its own text, its children in their order."""

    name: str
    text: str = ""
    children: list[Element] = field(default_factory=list)
    end_line: int = 0
    """Where its end tag is, or what follows the tag of an empty element; 0 if positions were not
    asked for."""
    end_position: int = 0
    """The same in its line, counted from 1."""


class Limits(NamedTuple):
    """How much a document may be. The root is at depth 1."""

    bytes_max: int
    elements_max: int
    depth_max: int
    attributes_max: int = 1000
    """Of the whole document, declarations of namespaces included: the parser keeps the name of each
    until its end."""
    token_bytes_max: int = 64 * 1024
    """A token is a tag, a comment, a processing instruction or a literal; text is none. The parser
    reads an unfinished token again, from its start, whenever more of the document arrives."""


SMALL: Final = Limits(bytes_max=256 * 1024, elements_max=1000, depth_max=16)
"""For documents of settings; lists of blocks need their own."""

_ENCODINGS: Final = frozenset({"utf-8", "utf-16", "utf-16le", "utf-16be", "us-ascii", "iso-8859-1"})
"""Those that expat knows itself. For others Python would go and look for a codec of that name."""


class _Unacceptable(Exception):
    """Raised inside of the parser to end it."""


class _Builder:
    """Makes a tree of what the parser finds."""

    def __init__(self, limits: Limits) -> None:
        self.root: Element | None = None
        self._limits = limits
        self._count = 0
        self._attributes = 0
        self._open: list[tuple[Element, list[str]]] = []

    def declaration(self, _version: str, encoding: str | None, _standalone: int) -> None:
        if encoding is not None and encoding.lower() not in _ENCODINGS:
            raise _Unacceptable("The encoding is not supported.")

    def doctype(self, *_: object) -> None:
        raise _Unacceptable("A document type declaration is not supported.")

    def namespace(self, *_: object) -> None:
        self._count_attributes(1)

    def _count_attributes(self, count: int) -> None:
        self._attributes += count
        if self._attributes > self._limits.attributes_max:
            raise _Unacceptable("There are too many attributes.")

    def start(self, name: str, attributes: Sequence[str]) -> None:
        self._count += 1
        if attributes:
            self._count_attributes(len(attributes) // 2)
        if self._count > self._limits.elements_max:
            raise _Unacceptable("There are too many elements.")
        if len(self._open) >= self._limits.depth_max:
            raise _Unacceptable("The elements are nested too deeply.")
        element = Element(name.rpartition(_NAMESPACE_END)[2])
        if self._open:
            self._open[-1][0].children.append(element)
        else:
            self.root = element
        self._open.append((element, []))

    def end(self, _name: str) -> None:
        element, pieces = self._open.pop()
        element.text = "".join(pieces)

    def end_at(self, parser: expat.XMLParserType, name: str) -> None:
        element, _ = self._open[-1]
        element.end_line = parser.CurrentLineNumber
        element.end_position = parser.CurrentColumnNumber + 1
        self.end(name)

    def data(self, text: str) -> None:
        # Joined at the end: comments can cut a text into very many pieces.
        self._open[-1][1].append(text)


_NAMESPACE_END: Final = " "
_NOT_WELL_FORMED: Final = "Error parsing Xml content"
"""The words of the service; the position says more."""
_STEP_BYTES: Final = 16 << 10


def read(
    body: bytes, root_name: str, limits: Limits = SMALL, *, with_positions: bool = False
) -> Element | Refusal:
    """The root of a document, if it has this name. `with_positions`: each element says where it
    ends, for refusals of what it holds."""
    return at_once(read_in_steps(body, root_name, limits, with_positions=with_positions))


def read_in_steps(
    body: bytes, root_name: str, limits: Limits, *, with_positions: bool = False
) -> Generator[None, None, Element | Refusal]:
    """The same for a document that may be long: stops after each bit of it."""
    if len(body) > limits.bytes_max:
        return invalid_document("The document is too large.")
    builder = _Builder(limits)
    parser = expat.ParserCreate(namespace_separator=_NAMESPACE_END)
    parser.buffer_text = True
    parser.ordered_attributes = True
    parser.StartNamespaceDeclHandler = builder.namespace
    parser.XmlDeclHandler = builder.declaration
    parser.StartDoctypeDeclHandler = builder.doctype
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = partial(builder.end_at, parser) if with_positions else builder.end
    parser.CharacterDataHandler = builder.data
    try:
        for at in range(0, len(body), _STEP_BYTES):
            step = body[at : at + _STEP_BYTES]
            parser.Parse(step, False)
            # What was read up to now ends where the token that is not finished yet begins.
            if at + len(step) - parser.CurrentByteIndex > limits.token_bytes_max:
                raise _Unacceptable("A tag, a comment or an instruction is too long.")
            yield
        parser.Parse(b"", True)
    except _Unacceptable as error:
        return invalid_document(
            str(error), parser.CurrentLineNumber, parser.CurrentColumnNumber + 1
        )
    except expat.ExpatError as error:
        return invalid_document(_NOT_WELL_FORMED, error.lineno, error.offset + 1)
    root = builder.root
    if root is None or root.name != root_name:
        return invalid_document(f"The root element is not {root_name}.")
    return root


def invalid_document(reason: str, line: int | None = None, position: int | None = None) -> Refusal:
    facts: dict[str, str | int] = {}
    if line is not None and position is not None:
        facts = {"LineNumber": line, "LinePosition": position}
    return Refusal("InvalidXmlDocument", {**facts, "Reason": reason})


# What a tree says


class Unreadable(Exception):
    """A tree that does not say what it should. Caught by each codec, which returns the refusal."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.code)
        self.refusal = refusal


def children(element: Element, names: Iterable[str]) -> dict[str, Element]:
    """The children by name, each there at most once and of a name that is known."""
    known = frozenset(names)
    found: dict[str, Element] = {}
    for child in element.children:
        if child.name not in known:
            raise Unreadable(Refusal("UnsupportedXmlNode", {"XmlNodeName": child.name}))
        if child.name in found:
            raise Unreadable(invalid_document(f"The element {child.name} is there twice."))
        found[child.name] = child
    return found


def required(found: dict[str, Element], name: str) -> Element:
    element = found.get(name)
    if element is None:
        raise Unreadable(Refusal("MissingRequiredXmlNode", {"XmlNodeName": name}))
    return element


def text(element: Element) -> str:
    """The text of an element that has nothing else, exactly as it is."""
    if element.children:
        raise Unreadable(invalid_document(f"The element {element.name} has elements inside."))
    return element.text


def value(element: Element) -> str:
    """The same without the space around it, where space says nothing."""
    return text(element).strip(SPACE)


def boolean(element: Element) -> bool:
    word = value(element).lower()
    if word not in {"true", "false"}:
        raise bad_value(element)
    return word == "true"


def integer(element: Element) -> int:
    """A number of ten digits at most; which of them will do, the rules say."""
    digits = value(element)
    if _INTEGER.fullmatch(digits) is None:
        raise bad_value(element)
    return int(digits)


def bad_value(element: Element) -> Unreadable:
    return Unreadable(
        Refusal(
            "InvalidXmlNodeValue",
            {"XmlNodeName": element.name, "XmlNodeValue": element.text.strip(SPACE)},
        )
    )


SPACE: Final = " \t\r\n"
_INTEGER = re.compile(r"-?[0-9]{1,10}")


# Writing

DECLARATION: Final = '<?xml version="1.0" encoding="utf-8"?>'

_UNCARRIABLE_CLASS = "\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff"
_UNCARRIABLE = re.compile(f"[{_UNCARRIABLE_CLASS}]")
_NOT_TEXT = re.compile(f"[&<>\r{_UNCARRIABLE_CLASS}]")
_REPLACEMENT: Final = "\ufffd"


def escape(text: str) -> str:
    """Text between tags. What XML cannot carry becomes the character that says so."""
    # All of it in C: a text may be long, and nothing but characters that need a reference. What
    # is printable can be carried, which is faster to find out than what cannot.
    if not text.isprintable():
        # Readers make other white space of this one, unless it comes as a number.
        text = _UNCARRIABLE.sub(_REPLACEMENT, text)
        return _referenced(text).replace("\r", "&#13;")
    return _referenced(text)


def _referenced(text: str) -> str:
    if "&" in text:
        text = text.replace("&", "&amp;")
    if "<" in text:
        text = text.replace("<", "&lt;")
    return text.replace(">", "&gt;") if ">" in text else text


def escape_attribute(text: str) -> str:
    """Text between double quotes."""
    escaped = escape(text).replace('"', "&quot;")
    return escaped.replace("\t", "&#9;").replace("\n", "&#10;")


def element(name: str, text: str) -> str:
    return f"<{name}>{escape(text)}</{name}>" if text else f"<{name} />"


def is_plain(text: str) -> bool:
    """Whether a text, or each of several that were joined, can stand between tags as it is."""
    if text.isprintable():
        return "&" not in text and "<" not in text and ">" not in text
    return _NOT_TEXT.search(text) is None


def must_be_encoded(name: str) -> bool:
    """Whether a blob's name has characters that XML cannot carry, not even as references."""
    return _UNCARRIABLE.search(name) is not None


def name_element(tag: str, name: str) -> str:
    """A blob's name or the beginning of one, percent-encoded and marked so if need be."""
    if is_plain(name):
        return f"<{tag}>{name}</{tag}>"
    # Not every client's parser reads references by number, which a carriage return would need.
    if must_be_encoded(name) or "\r" in name:
        return f'<{tag} Encoded="true">{quote(name, safe="", errors="replace")}</{tag}>'
    return f"<{tag}>{escape(name)}</{tag}>"


def document(content: str) -> bytes:
    return (DECLARATION + content).encode()
