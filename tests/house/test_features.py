"""docs/features.md names a test for every promised row, and each of them exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROWS = [
    *(f"A{n}" for n in range(1, 18)),
    *(f"B{n}" for n in range(1, 7)),
    *(f"C{n}" for n in range(1, 7)),
    *(f"E{n}" for n in range(1, 9)),
    "E10",
    "E11",
    "F2",
]


def table() -> dict[str, list[str]]:
    rows = {}
    for line in (ROOT / "docs/features.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and re.fullmatch(r"[A-H]\d+", cells[0]):
            rows[cells[0]] = re.findall(r"`(test_\w+)`", cells[2])
    return rows


def test_every_row_names_tests_that_exist() -> None:
    text = "\n".join(p.read_text(encoding="utf-8") for p in (ROOT / "tests").rglob("test_*.py"))
    defined = set(re.findall(r"def (test_\w+)\(", text))
    rows = table()
    assert list(rows) == ROWS
    for row, tests in rows.items():
        assert tests, row
        missing = [test for test in tests if test not in defined]
        assert not missing, f"{row}: {missing}"
