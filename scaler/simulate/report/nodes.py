"""HTML and SVG as trees of elements, so that every name from a file is escaped by the serialiser and by nothing else.

Invariants: what comes out is well-formed XML and the same bytes for the same tree; characters that XML cannot hold become
U+FFFD. Only elements that may not be empty in HTML are closed by an end tag, which is why no void element is made here.
"""

import re
from typing import TypeAlias
from xml.etree.ElementTree import Element, tostring

Child: TypeAlias = "Element | str | None"

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def node(tag: str, *children: Child, **attributes: str | float) -> Element:
    """An element. `class_` is written `class`, other underscores become hyphens; None children are left out."""
    element = Element(tag, {_name(name): _value(value) for name, value in attributes.items()})
    for child in children:
        append(element, child)
    return element


def append(element: Element, child: Child) -> None:
    """Add an element or text as the last child."""
    if isinstance(child, Element):
        element.append(child)
    elif child is not None:
        _append_text(element, clean(child))


def render(element: Element) -> str:
    """The element as text."""
    return tostring(element, encoding="unicode", short_empty_elements=False)


def clean(text: str) -> str:
    """Text that XML can hold."""
    return _NOT_XML.sub("\ufffd", text)


def px(value: float) -> str:
    """A coordinate: a tenth of a pixel is as fine as eyes are."""
    return f"{value:.1f}".removesuffix(".0")


def _name(name: str) -> str:
    return name.rstrip("_").replace("_", "-")


def _value(value: str | float) -> str:
    return clean(value) if isinstance(value, str) else px(value)


def _append_text(element: Element, text: str) -> None:
    if len(element):
        element[-1].tail = (element[-1].tail or "") + text
    else:
        element.text = (element.text or "") + text
