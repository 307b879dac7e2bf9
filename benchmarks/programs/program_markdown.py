"""A renderer: Markdown becomes HTML by mistune. Regular expressions and string work in C, with Python in between."""

from __future__ import annotations

import hashlib
from typing import Any

import mistune
from mistune.inline_parser import InlineParser

PACKAGE = "mistune"
HOT = (InlineParser, "parse")
SENTENCE = (
    "phase time of a *thread* that **waits** for `a lock` and [what](https://example.org/a) it costs, _then_ more"
)
WORDS = SENTENCE.split()


def text_of(number: int) -> str:
    """A chapter: headings, paragraphs, lists, a table, code, a quotation; no two alike."""
    lines = [f"# Chapter {number}", ""]
    for section in range(6):
        lines += [f"## Section {section}", ""]
        for paragraph in range(4):
            turn = number + section + paragraph
            lines += [" ".join(WORDS[turn % len(WORDS) :] + WORDS) + ".", ""]
        lines += [f"- item {n} with **strong** text and `code {n}`" for n in range(6)]
        lines += ["", "| name | ns |", "|---|---:|"]
        lines += [f"| step {n} | {n * number} |" for n in range(6)]
        lines += ["", "```python", f"x = {section}", "print(x)", "```", "", "> quoted *here*", ""]
    return "\n".join(lines)


def inputs(size: float) -> list[str]:
    return [text_of(n) for n in range(max(1, round(90 * size)))]


def make() -> mistune.Markdown:
    return mistune.create_markdown(plugins=["table", "strikethrough", "footnotes"])


def bare(texts: list[str]) -> str:
    digest = hashlib.sha256()
    markdown = make()
    for text in texts:
        state = markdown.block.state_cls()
        state.process(text)
        markdown.block.parse(state)
        html = markdown.render_state(state)
        digest.update(html.encode())
    return digest.hexdigest()


def phased(texts: list[str], accounting: Any) -> str:
    digest = hashlib.sha256()
    markdown = make()
    for text in texts:
        with accounting.phase("chapter"):
            with accounting.phase("blocks"):
                state = markdown.block.state_cls()
                state.process(text)
                markdown.block.parse(state)
            with accounting.phase("inline"):
                html = markdown.render_state(state)
            accounting.count("characters", len(html))
        digest.update(html.encode())
    return digest.hexdigest()
