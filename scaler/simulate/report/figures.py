"""A picture with its caption above and its key below."""

from collections.abc import Sequence
from xml.etree.ElementTree import Element

from scaler.simulate.report.nodes import node


def figure(caption: str, *parts: Element | None) -> Element:
    """The caption's words up to the first colon stand out."""
    head, colon, rest = caption.partition(":")
    return node("figure", node("figcaption", node("b", head + colon), rest), *parts)


def key(entries: Sequence[tuple[str, str]]) -> Element:
    """What each colour means: (colour, words)."""
    return node("ul", *(_entry(colour, words) for colour, words in entries), class_="key")


def swatch(colour: str) -> Element:
    """A small patch of a colour, for keys and tables."""
    box = node("rect", x=0, y=0, width=22, height=12, rx=2, style=f"fill:{colour}")
    return node("svg", box, viewBox="0 0 22 12", class_="swatch", aria_hidden="true")


def _entry(colour: str, words: str) -> Element:
    return node("li", swatch(colour), words)
