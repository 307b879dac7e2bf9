"""`make docs`: the documents and the manual pages as plain HTML in build/docs, with every link checked.

Nothing is loaded from anywhere: HTML and one style sheet. What a document links to in the tree (a source, an example)
is copied beside the pages, so the folder is whole and can be put anywhere.
"""

from __future__ import annotations

import argparse
import html
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

import envs
from envs import BUILD, ROOT, SetupError, say

REQUIREMENTS = ROOT / "tools" / "requirements-docs.txt"
OUT = BUILD / "docs"
# The reader's way through, for the list at the side; what is not here comes after it.
ORDER = {
    "Start": ["README.md", "docs/which-tool.md", "docs/accounting.md", "docs/lines.md", "docs/commands.md"],
    "Reference": ["docs/report.md", "docs/resources.md", "docs/compat-line_profiler.md", "docs/file-format.md"],
    "Inside": ["docs/architecture.md", "docs/reliability.md", "docs/features.md", "benchmarks/README.md"],
    "Project": ["examples/README.md", "CONTRIBUTING.md", "docs/dependencies.md", "CHANGELOG.md"],
}


def documents() -> dict[str, str]:
    """Every document of the tree, and the name of its page."""
    listed = [name for names in ORDER.values() for name in names]
    found = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md"))
    names = [name for name in [*listed, *found] if (ROOT / name).exists()]
    return {name: page_of(name) for name in dict.fromkeys(names)}


def page_of(name: str) -> str:
    path = PurePosixPath(name)
    if name == "README.md":
        return "index.html"
    return f"{path.parent.name}.html" if path.name == "README.md" else f"{path.stem.lower()}.html"


def anchor_of(heading: str) -> str:
    """As the hosts of repositories make them, so that links of the documents hold in both places."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


class Site:
    def __init__(self) -> None:
        self.pages = documents()
        self.manuals = {p.relative_to(ROOT).as_posix(): f"man/{p.name}.html" for p in (ROOT / "docs/man").glob("*.1")}
        self.copied: set[str] = set()
        self.titles: dict[str, str] = {}

    def target(self, source: str, link: str) -> str:
        """Where a link of a document leads on its page."""
        parts = urlsplit(link)
        if parts.scheme or not parts.path:
            return link
        place = os.path.normpath((PurePosixPath(source).parent / unquote(parts.path)).as_posix())
        anchor = f"#{parts.fragment}" if parts.fragment else ""
        page = self.pages.get(place) or self.manuals.get(place)
        if page is None:
            if not (ROOT / place).is_file():
                return link  # the check of links names it
            page = f"tree/{place}" + ("" if PurePosixPath(place).suffix in (".svg", ".png", ".ipynb") else ".txt")
            if place not in self.copied:
                self.copied.add(place)
                (OUT / page).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / place, OUT / page)
        return page + anchor

    def body(self, name: str) -> str:
        from markdown_it import MarkdownIt

        text = (ROOT / name).read_text(encoding="utf-8")
        # Comments are for the tests and the benchmarks, not for a reader.
        text = re.sub(r"<!--.*?-->\n?", "", text, flags=re.S)
        markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
        tokens = markdown.parse(text)
        for at, token in enumerate(tokens):
            if token.type == "heading_open":
                heading = tokens[at + 1].content
                token.attrSet("id", anchor_of(heading))
                if token.tag == "h1":
                    self.titles.setdefault(name, heading)
            for inner in token.children or []:
                for attribute in ("href", "src"):
                    if attribute in inner.attrs:
                        inner.attrSet(attribute, self.target(name, str(inner.attrs[attribute])))
        made = markdown.renderer.render(tokens, markdown.options, {})
        return made.replace("<table>", '<div class="wide"><table>').replace("</table>", "</table></div>")

    def menu(self, here: str, up: str) -> str:
        lines = []
        groups = {**ORDER, "Manual pages": sorted(self.manuals)}
        rest = [name for name in self.pages if all(name not in names for names in ORDER.values())]
        for group, names in {**groups, **({"More": rest} if rest else {})}.items():
            lines.append(f"<h2>{group}</h2>")
            for name in names:
                page = self.pages.get(name) or self.manuals.get(name)
                if page is None:
                    continue
                current = ' aria-current="page"' if name == here else ""
                title = PurePosixPath(name).stem if name in self.manuals else self.titles[name]
                lines.append(f'<a href="{up}{page}"{current}>{html.escape(title)}</a>')
        return "\n".join(lines)

    def write(self, name: str, page: str, title: str, body: str) -> None:
        up = "../" * page.count("/")
        whole = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title>
<link rel="stylesheet" href="{up}style.css">
</head>
<body>
<nav aria-label="Documents">
{self.menu(name, up)}
</nav>
<main>
{body}
</main>
</body>
</html>
"""
        (OUT / page).parent.mkdir(parents=True, exist_ok=True)
        (OUT / page).write_text(whole, encoding="utf-8")

    def build(self) -> None:
        shutil.rmtree(OUT, ignore_errors=True)
        OUT.mkdir(parents=True)
        shutil.copyfile(ROOT / "docs" / "style.css", OUT / "style.css")
        bodies = {name: self.body(name) for name in self.pages}
        for name, page in self.pages.items():
            title = self.titles[name] if name == "README.md" else f"{self.titles[name]} · lineprofiler"
            self.write(name, page, title, bodies[name])
        for name, page in self.manuals.items():
            self.write(name, page, f"{PurePosixPath(name).stem}(1)", manual_body((ROOT / name).read_text()))


# --- manual pages: the dozen macros that ours use; another one is an error ---


def manual_body(text: str) -> str:
    out: list[str] = []
    is_list = expects_term = verbatim = False
    for line in text.splitlines():
        macro, _, rest = line.partition(" ") if line.startswith(".") else ("", "", line)
        if macro in (".SH", ".PP") and is_list:
            out.append("</dd></dl>")
            is_list = False
        if macro == ".TH":
            out.append(f"<h1>{inline(rest.split()[0].lower())}</h1>")
        elif macro == ".SH":
            out.append(f"<h2>{inline(rest)}</h2>")
        elif macro == ".PP":
            out.append("<p>")
        elif macro == ".br":
            out.append("<br>")
        elif macro == ".TP":
            out.append("</dd>" if is_list else "<dl>")
            is_list = expects_term = True
        elif macro in (".nf", ".fi"):
            verbatim = macro == ".nf"
            out.append("<pre>" if verbatim else "</pre>")
        elif macro in ("", ".B", ".I", ".BR", ".RI", ".BI", ".RB", ".IR"):
            shown = inline(rest) if not macro else fonts(macro[1:], rest)
            if expects_term:
                out.append(f"<dt>{shown}</dt><dd>")
                expects_term = False
            else:
                out.append(shown)
        else:
            raise SetupError(f"a manual page uses {macro}, which tools/pages.py does not know")
    if is_list:
        out.append("</dd></dl>")
    return "\n".join(out)


def inline(text: str) -> str:
    text = html.escape(text.replace("\\-", "-").replace("\\fR", "").replace("\\&", ""), quote=False)
    return text.replace("\\e", "\\")


def fonts(macro: str, rest: str) -> str:
    words = [quoted or plain for quoted, plain in re.findall(r'"([^"]*)"|(\S+)', rest)]
    if len(macro) == 1:
        tag = "b" if macro == "B" else "i"
        return f"<{tag}>{inline(' '.join(words))}</{tag}>"
    pieces = []
    for at, word in enumerate(words):
        # \fR within a word ends its font.
        head, ends, tail = word.partition("\\fR")
        tag = {"B": "b", "I": "i", "R": ""}[macro[at % 2]]
        shown = f"<{tag}>{inline(head)}</{tag}>" if tag else inline(head)
        pieces.append(shown + (inline(tail) if ends else ""))
    made = "".join(pieces)
    return re.sub(r"<b>(lineprofiler[\w-]*)</b> ?\(1\)", r'<a href="\1.1.html">\1(1)</a>', made)


# --- links ---


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value is not None:
                self.links.append(value)
            elif name == "id" and value is not None:
                self.anchors.add(value)


def broken_links() -> tuple[int, list[str]]:
    parsed = {}
    for path in sorted(OUT.rglob("*.html")):
        parsed[path] = Links()
        parsed[path].feed(path.read_text(encoding="utf-8"))
    checked, broken = 0, []
    for path, page in parsed.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            checked += 1
            place = Path(os.path.normpath(path.parent / unquote(parts.path))) if parts.path else path
            if not place.is_file():
                broken.append(f"{path.relative_to(OUT)}: {link}: no such file")
            elif parts.fragment and place in parsed and unquote(parts.fragment) not in parsed[place].anchors:
                broken.append(f"{path.relative_to(OUT)}: {link}: no such heading")
    return checked, broken


def main() -> int:
    parser = argparse.ArgumentParser(prog="make docs", description=__doc__.split("\n\n")[0])
    parser.parse_args()
    try:
        venv = envs.environment(envs.main_interpreter(envs.find_interpreters()), "docs", [REQUIREMENTS])
        if Path(sys.prefix) != venv:  # once more, where markdown-it-py is
            return subprocess.run([envs.python_of(venv), __file__], check=False).returncode
        Site().build()
    except SetupError as error:
        print(error, file=sys.stderr)
        return 1
    checked, broken = broken_links()
    for each in broken:
        say(f"  {each}")
    pages = len(list(OUT.rglob("*.html")))
    print(f"docs: {pages} pages in {OUT.relative_to(ROOT)}, {checked} links checked, {len(broken)} broken", flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
