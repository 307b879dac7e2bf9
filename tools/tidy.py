"""clang-tidy over every C file of src/, two at a time; what to look for stands in .clang-tidy, with reasons.

Its analyzer takes a second or two a file, so a file that was clean is looked at again only when the text that the
preprocessor makes of it, clang-tidy or its settings have changed: build/tidy has an empty file for each.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import envs
from envs import BUILD, ROOT, SetupError

CLEAN = BUILD / "tidy"


def preprocessed(entry: dict[str, str]) -> bytes:
    """What the compiler sees of a file of compile_commands.json."""
    words = [w for w in shlex.split(entry["command"]) if w not in ("-c", "-MD")]
    for option in ("-o", "-MF", "-MQ"):
        at = words.index(option)
        del words[at : at + 2]
    done = subprocess.run([*words, "-E"], cwd=entry["directory"], capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else os.urandom(16)


def look(entry: dict[str, str], build: Path, tool: bytes) -> str:
    """What is wrong with a file, "" if nothing is."""
    stamp = CLEAN / hashlib.sha256(tool + preprocessed(entry)).hexdigest()
    if stamp.exists():
        return ""
    path = Path(entry["directory"], entry["file"]).resolve()
    done = subprocess.run(
        ["clang-tidy", "--quiet", "-p", build, path], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        stamp.touch()
        return ""
    return done.stdout or done.stderr


def tidy(build: Path) -> tuple[int, list[str]]:
    """How many files were looked at or known to be clean, and what is wrong; `build` was configured with clang."""
    if shutil.which("clang-tidy") is None:
        envs.debian_install("clang-tidy")
        if shutil.which("clang-tidy") is None:
            raise SetupError("clang-tidy was not found; on Debian: apt-get install clang-tidy")
    CLEAN.mkdir(parents=True, exist_ok=True)
    entries = json.loads((build / "compile_commands.json").read_text())
    ours = {e["file"]: e for e in entries if (ROOT / "src") in Path(e["directory"], e["file"]).resolve().parents}
    version = subprocess.run(["clang-tidy", "--version"], capture_output=True, check=True).stdout
    tool = version + (ROOT / ".clang-tidy").read_bytes()
    with ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        said = list(pool.map(lambda entry: look(entry, build, tool), ours.values()))
    return len(said), [text for text in said if text]
