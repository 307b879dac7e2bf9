"""Jupyter: a notebook with both tools, phases of its cells and the lines of one function.

    python examples/clients/notebook.py RUN_DIR        then: lineprofiler report RUN_DIR

`notebook.ipynb`, beside this file, is the example: open it in Jupyter. This program executes it in a kernel, as
`jupyter execute` does, prints what `%lprun` printed, and checks hits and figures.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from lineprofiler.accounting import merge_run

NOTEBOOK = Path(__file__).with_suffix(".ipynb")


def main(run_dir: str) -> None:
    os.environ["LINEPROFILER_RUN_DIR"] = os.path.abspath(run_dir)
    os.environ["COLUMNS"] = "120"  # a kernel has no terminal whose width could be asked
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    printed = "".join(
        output.get("text", "") or output.get("data", {}).get("text/plain", "")
        for cell in notebook.cells
        for output in cell.get("outputs", [])
    )
    print(printed)

    hits = {source.strip(): int(count.replace(",", "")) for count, source in re.findall(LINE, printed, re.M)}
    assert hits["for candidate in range(2, limit):"] == 499  # of 498 items: the end of the loop is a hit
    assert hits["if all(candidate % p for p in found):"] == 498
    assert hits["found.append(candidate)"] == 95  # there are 95 primes below 500
    run = merge_run(run_dir)
    assert run.tree_of("notebook")[("primes",)].calls == 5
    assert run.tree_of("notebook")[("primes",)].counters == {"found": 5 * 95}


# Of the table of a function: line, hits, time, self, per hit, %, bar, source.
LINE = r"^ *\d+ +([\d,]+) +[\d.]+\w+ +[\d.]+\w+ +[\d.]+\w+ +[\d.]+ [█▉▊▋▌▍▎▏]* +(\S.*)$"

if __name__ == "__main__":
    main(sys.argv[1])
