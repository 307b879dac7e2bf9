"""The annotated source in a real browser, opened from the disk without a network."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from lptest import LIMIT_S

from lineprofiler.lines import html, listing
from lineprofiler.lines.model import Function, FunctionKey, Line, Profile
from lineprofiler.lines.source import from_text

BROWSER = next((b for b in ("chromium", "chromium-browser", "google-chrome") if shutil.which(b)), None)
HOSTILE = "</script><script>document.title='x'</script><!-- \"&' \u2028 \x1b[2J<img src=x onerror=document.title=1>"
PATH = "/srv/app/m.py"
TEXT = (
    "def hot(n):\n"
    "    if n < 0:\n"
    "        return None\n"
    f"    x = 1  # {HOSTILE}\n"
    "    return x\n"
    "\n\ndef never():\n    return 2\n"
)


def example() -> Profile:
    function = Function(FunctionKey(PATH, "hot", 1), calls=4, time_ns=10_000_000, self_ns=10_000_000)
    function.lines = {
        2: Line(4, 4, 1_000_000, 1_000_000),
        4: Line(4, 4, 8_000_000, 8_000_000, 3_000_000),
        5: Line(4, 4, 1_000_000, 1_000_000),
    }
    function.executable = frozenset((2, 3, 4, 5))
    return Profile({function.key: function}, {PATH: from_text(TEXT)}, {"line": 31.0, "line_error": 2.0}, ["a < b"])


class Structure(HTMLParser):
    """What the page is made of, as a browser's parser sees the file."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attributes if name in ("src", "href")]


def data_of(page: str) -> Any:
    found = re.search(r'<script type="application/json" id="lineprofiler-data">(.*?)</script>', page, re.S)
    assert found is not None
    return json.loads(found[1])


def test_nothing_in_the_data_can_end_it() -> None:
    page = html.render(example(), HOSTILE)
    structure = Structure()
    structure.feed(page)
    assert structure.tags.count("script") == 2
    assert page.count("</script>") == 2
    assert "img" not in structure.tags
    assert structure.addresses == []
    assert "http" not in page.replace("http-equiv", "")
    lines = data_of(page)["functions"][0]["lines"]
    assert lines[3]["text"].startswith("    x = 1  # </script><script>")
    assert "\x1b" not in page


@pytest.fixture(scope="module")
def browser() -> str:
    if BROWSER is None:
        pytest.skip("no chromium is installed")
    return BROWSER


def shown(browser: str, folder: Path, profile: Profile, script: str = "") -> str:
    """The document after its script has run, and after ours."""
    page = html.render(profile, "a <title>")
    if script:
        page = page.replace("</body>", f"<script>{{{script}}}</script></body>")
    (folder / "page.html").write_text(page, encoding="utf-8")
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'browser'}"]
    command += ["--virtual-time-budget=5000", "--dump-dom", f"file://{folder / 'page.html'}"]
    env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}  # a sanitizer's runtime is not for the browser
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True, env=env).stdout


def test_what_a_reader_sees(browser: str, tmp_path: Path) -> None:
    dom = shown(browser, tmp_path, example())
    assert "<title>a &lt;title&gt;</title>" in dom
    assert '<h1 id="title">a &lt;title&gt;</h1>' in dom
    assert "Not measured: a &lt; b" in dom
    # The hot line leads to its row, is warm there, and is text.
    row = re.search(r'<tr id="f0l4" class="(\w+)".*?</tr>', dom, re.S)
    assert row is not None
    assert row[1] == "h5"
    assert "&lt;/script&gt;&lt;script&gt;" in row[0]
    assert "8.0ms" in row[0]
    assert "3.0ms" in row[0]
    assert 'href="#f0l4"' in dom
    # What has code and never ran is grey; the function that was never called is named.
    assert re.search(r'<tr id="f0l3" class="cold" title="never ran">', dom)
    assert "never called" in dom
    assert "31 ± 2 ns a line" in dom
    assert dom.count("<caption") == 3


def test_the_last_digit_is_that_of_the_table(browser: str, tmp_path: Path) -> None:
    """Also where a figure lies in the middle between two, for every unit and for shares."""
    times = [0, 1, 5, 999, 1250, 1350, 11_250, 999_750, 1_250_000, 1_150_000, 1_250_000_000, 1_125_000_000]
    function = Function(FunctionKey(PATH, "f", 1), calls=1, time_ns=2 * 10**10, self_ns=sum(times))
    function.lines = {n: Line(2, 2, time, time) for n, time in enumerate(times, 2)}
    function.lines |= {n + 20: Line(1, 1, n * 12_500_000, 0) for n in range(1, 8)}
    source = from_text("def f():\n" + "    pass\n" * 40)
    profile = Profile({function.key: function}, {PATH: source})
    dom = shown(browser, tmp_path, profile)
    text = listing.render(profile, listing.Layout(everything=True), top=False)
    for number in function.lines:
        row = re.search(rf'<tr id="f0l{number}".*?</tr>', dom)
        assert row is not None
        cells = re.findall(r"<td[^>]*>(.*?)</td>", row[0])[:6]
        table = re.search(rf"^ +{number} .*$", text, re.M)
        assert table is not None
        assert cells == table[0].split()[:6]


def test_keys_and_filter(browser: str, tmp_path: Path) -> None:
    script = """
    const press = (key) => document.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
    const at = () => document.querySelector("tr.at")?.id;
    const seen = [];
    press("n"); seen.push(at());
    press("n"); seen.push(at());
    press("p"); seen.push(at());
    seen.push(document.activeElement.id);
    press("/"); seen.push(document.activeElement.id);
    const box = document.getElementById("filter");
    box.value = "never"; box.dispatchEvent(new Event("input"));
    seen.push([...document.querySelectorAll("details")].map((d) => d.hidden).join());
    seen.push(document.getElementById("count").textContent);
    document.getElementById("close").click();
    seen.push([...document.querySelectorAll("details")].some((d) => d.open));
    const out = document.createElement("pre"); out.id = "seen"; out.textContent = seen.join("|");
    document.body.append(out);
    """
    dom = shown(browser, tmp_path, example(), script)
    found = re.search(r'<pre id="seen">(.*?)</pre>', dom)
    assert found is not None
    assert found[1] == "f0l4|f0l2|f0l4|f0l4|filter|true,false|1 of 2 functions|false"


def test_large_and_empty_profiles(browser: str, tmp_path: Path) -> None:
    many = Profile(sources={PATH: from_text("".join(f"def f{n}():\n    return {n}\n" for n in range(3000)))})
    for n in range(3000):
        function = Function(FunctionKey(PATH, f"f{n}", 2 * n + 1), 1, 1000, 1000)
        function.lines = {2 * n + 2: Line(1, 1, 1000, 1000)}
        many.functions[function.key] = function
    dom = shown(browser, tmp_path, many)
    assert dom.count("<details") == 3000
    # A function's table is made when it is opened.
    assert dom.count("<table") < 20
    empty = shown(browser, tmp_path, Profile())
    assert "No line of the profiled code was executed." in empty
