"""A stand-in for NVIDIA's library, built for a test (nvml_standin.c). Fixture `library` of tests/conftest.py."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from lptest import ROOT


@dataclass
class Library:
    folder: Path  # for LD_LIBRARY_PATH
    control: Path

    def says(self, *lines: str) -> None:
        """From now on, whoever asks; the lines are those of the C file's head."""
        fresh = self.control.with_suffix(".new")
        fresh.write_text("".join(line + "\n" for line in lines))
        fresh.rename(self.control)


def build(folder: Path) -> Library:
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    assert compiler, "a C compiler built this package"
    made = Library(folder / "lib", folder / "control")
    made.folder.mkdir()
    source = ROOT / "tests/support/nvml_standin.c"
    target = made.folder / "libnvidia-ml.so.1"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-D_GNU_SOURCE", f'-DCONTROL="{made.control}"', "-o", str(target), str(source)],
        check=True,
    )
    made.says()
    return made
