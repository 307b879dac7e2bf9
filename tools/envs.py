"""Interpreters, virtual environments and wheels for the make targets. Standard library only: it runs first.

Everything is made below the work tree: `.venv/<tag>` for environments (tag: 3.11.7, 3.13.0t), `build/<tag>` for
object files, `dist/<tag>` for the wheel. An environment is made again when its requirements or its interpreter
change; a wheel is built incrementally each time.
"""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import re
import shutil
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENVS = ROOT / ".venv"
BUILD = ROOT / "build"
BUILD_REQUIREMENTS = ROOT / "tools" / "requirements-build.txt"
CHECK_REQUIREMENTS = ROOT / "tools" / "requirements-check.txt"
TEST_REQUIREMENTS = ROOT / "tests" / "requirements.txt"
CLIENT_REQUIREMENTS = ROOT / "tests" / "requirements-clients.txt"
HEAVY_REQUIREMENTS = ROOT / "tests" / "requirements-clients-heavy.txt"
# Commands that tests of real clients start, and the Debian packages that have them.
CLIENT_COMMANDS = {
    "mpirun.openmpi": "openmpi-bin",
    "mpiexec.hydra": "mpich",
    "chromium": "chromium",
    "tmux": "tmux",
    "zsh": "zsh",
    "fish": "fish",
}

OLDEST = (3, 10)
NEWEST = (3, 15)
# Every client has a wheel here, so one that does not install is a broken test run, not an early interpreter.
CLIENTS_REQUIRED = ((3, 10), (3, 11), (3, 12), (3, 13))
# The one for what is the same on all: C tests, house rules, heavy clients.
MAIN_VERSION = (3, 11)

PROBE = """
import json, os, platform, sys, sysconfig
print(json.dumps({
    "version": list(sys.version_info[:3]),
    "cpython": platform.python_implementation() == "CPython",
    "threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    "headers": os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")),
    "final": sys.version_info.releaselevel == "final",
    "base": getattr(sys, "_base_executable", sys.executable) or sys.executable,
}))
"""


class SetupError(Exception):
    """Something outside the project is missing; the message says what and how to get it."""


@dataclass(frozen=True)
class Interpreter:
    path: Path
    version: tuple[int, int, int]
    free_threaded: bool
    headers: bool

    @property
    def minor(self) -> tuple[int, int]:
        return self.version[:2]

    def __str__(self) -> str:
        return ".".join(map(str, self.version)) + ("t" if self.free_threaded else "")


_print_lock = threading.Lock()


def say(text: str) -> None:
    with _print_lock:
        print(text, flush=True)


def clean_environment(**extra: str) -> dict[str, str]:
    """The caller's environment without what would steer Python or the product."""
    drop = ("PYTHON", "LINEPROFILER_", "VIRTUAL_ENV", "PYENV_VERSION")
    env = {k: v for k, v in os.environ.items() if not k.startswith(drop)}
    env.update(PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_NO_INPUT="1", PIP_ROOT_USER_ACTION="ignore")
    env.update(extra)
    return env


def captured(
    command: list[object], cwd: Path = ROOT, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end; what it wrote, to either stream, is its `stdout`."""
    return subprocess.run(
        [str(c) for c in command],
        cwd=cwd,
        env=env or clean_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )


def run(command: list[object], what: str, cwd: Path = ROOT, env: dict[str, str] | None = None) -> str:
    """Runs a step of a build; its output appears only when it fails."""
    done = captured(command, cwd, env)
    if done.returncode != 0:
        raise SetupError(f"{what} failed ({' '.join(done.args)}, exit {done.returncode}):\n{done.stdout[-8000:]}")
    return done.stdout


# --- interpreters ---


def pyenv_roots() -> list[Path]:
    """Where pyenv keeps versions. Its shims on PATH are not interpreters, but they say where the root is,
    also when HOME is empty."""
    homes = [Path.home(), Path(pwd.getpwuid(os.getuid()).pw_dir)]
    roots = [Path(os.environ["PYENV_ROOT"])] if os.environ.get("PYENV_ROOT") else []
    roots += [p.parent for p in map(Path, os.get_exec_path()) if p.name == "shims"]
    roots += [home / ".pyenv" for home in homes]
    return [r for r in dict.fromkeys(roots) if (r / "versions").is_dir()]


def candidates() -> list[Path]:
    found = [Path(p) for p in os.environ.get("TEST_PYTHONS", "").split(os.pathsep) if p]
    for root in pyenv_roots():
        versions = [v for v in (root / "versions").iterdir() if re.match(r"\d+\.\d+", v.name)]
        versions.sort(key=lambda v: [int(n) for n in re.findall(r"\d+", v.name)], reverse=True)
        found += [v / "bin" / "python3" for v in versions]
    names = [f"python3.{minor}{t}" for minor in range(OLDEST[1], NEWEST[1] + 1) for t in ("", "t")]
    for directory in map(Path, os.get_exec_path()):
        if directory.name != "shims":
            found += [directory / name for name in [*names, "python3"]]
    found.append(Path(sys.executable))
    return [p for p in dict.fromkeys(found) if os.access(p, os.X_OK)]


def probe(path: Path) -> Interpreter | None:
    """What an executable is, or None if it is no CPython that we support. A virtual environment counts as its base."""
    try:
        done = subprocess.run(
            [str(path), "-I", "-c", PROBE],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=120,
            env=clean_environment(),
            check=True,
        )
        info = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    version = tuple(info["version"])
    if not info["cpython"] or not OLDEST <= version[:2] <= NEWEST:
        return None
    return Interpreter(Path(info["base"]), version, info["threaded"], info["headers"])


def find_interpreters(everything: bool = False) -> list[Interpreter]:
    """One interpreter for each minor version, oldest first; with `everything` each distinct one, also
    free-threaded builds. One without headers is taken only if no other has its version: see `with_headers`."""
    chosen: dict[object, Interpreter] = {}
    for path in candidates():
        found = probe(path)
        if found is None or (found.free_threaded and not everything):
            continue
        key = (found.version, found.free_threaded) if everything else found.minor
        if key not in chosen or (found.headers and not chosen[key].headers):
            chosen[key] = found
    usable = [with_headers(i) for i in chosen.values()]
    result = sorted((i for i in usable if i is not None), key=lambda i: (i.version, i.free_threaded))
    if not result:
        raise SetupError(
            "no CPython 3.10 or newer with its headers was found; on Debian: apt-get install python3-dev python3-venv"
        )
    return result


def main_interpreter(interpreters: list[Interpreter]) -> Interpreter:
    plain = [i for i in interpreters if not i.free_threaded] or interpreters
    return next((i for i in plain if i.minor == MAIN_VERSION), plain[-1])


def debian_install(*packages: str) -> bool:
    """Installs Debian packages by name where we may; says what to install where we may not."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        say(f"    missing: {' '.join(packages)} (on Debian: apt-get install {' '.join(packages)})")
        return False
    env = clean_environment(DEBIAN_FRONTEND="noninteractive")
    for command in (["apt-get", "update", "-q"], ["apt-get", "install", "-qy", "--no-install-recommends", *packages]):
        done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False)
    return done.returncode == 0


def require_client_commands() -> None:
    """Installs what is missing where we may; a test of a client that is not there says so."""
    missing = [package for command, package in CLIENT_COMMANDS.items() if shutil.which(command) is None]
    if missing:
        debian_install(*missing)


def with_headers(interpreter: Interpreter) -> Interpreter | None:
    if interpreter.headers:
        return interpreter
    if interpreter.path.parent == Path("/usr/bin"):
        debian_install(f"python{interpreter.version[0]}.{interpreter.version[1]}-dev")
        again = probe(interpreter.path)
        if again is not None and again.headers:
            return again
    say(f"    left out: {interpreter.path} ({interpreter}) has no Python.h")
    return None


# --- environments ---


def python_of(venv: Path) -> Path:
    return venv / "bin" / "python"


def requirement_lines(path: Path) -> list[str]:
    lines = (line.split("#")[0].strip() for line in path.read_text().splitlines())
    return [line for line in lines if line]


def create_venv(interpreter: Interpreter, venv: Path) -> None:
    shutil.rmtree(venv, ignore_errors=True)
    venv.parent.mkdir(parents=True, exist_ok=True)
    command: list[object] = [interpreter.path, "-m", "venv", venv]
    try:
        run(command, "python -m venv")
    except SetupError:
        # Debian splits ensurepip off.
        version = f"python{interpreter.version[0]}.{interpreter.version[1]}-venv"
        if interpreter.path.parent != Path("/usr/bin") or not debian_install(version):
            raise
        shutil.rmtree(venv, ignore_errors=True)
        run(command, "python -m venv")


def environment(interpreter: Interpreter, tag: str, requirements: list[Path], clients: Path | None = None) -> Path:
    """A virtual environment with these pinned requirements; made only if it is not there yet as wanted."""
    venv = VENVS / tag
    wanted = hashlib.sha256(f"{interpreter.path} {interpreter}".encode())
    for path in [*requirements, *([clients] if clients else [])]:
        wanted.update("\n".join(requirement_lines(path)).encode())
    stamp = venv / "lineprofiler-environment"
    if stamp.exists() and stamp.read_text() == wanted.hexdigest():
        return venv
    say(f"    {tag}: making an environment of Python {interpreter}")
    create_venv(interpreter, venv)
    pip: list[object] = [python_of(venv), "-m", "pip", "install", "-q"]
    must = [a for path in requirements for a in ("-r", path)]
    if clients is not None and interpreter.minor in CLIENTS_REQUIRED and not interpreter.free_threaded:
        run([*pip, "--prefer-binary", *must, "-r", clients], f"{tag}: pip install")
    else:
        if must:
            run([*pip, "--prefer-binary", *must], f"{tag}: pip install")
        for line in requirement_lines(clients) if clients else []:
            try:
                run([*pip, "--only-binary", ":all:", line], f"{tag}: pip install {line}")
            except SetupError:
                say(f"    {tag}: no wheel of {line}, left out")
    stamp.write_text(wanted.hexdigest())
    return venv


def tool_path(venv: Path) -> str:
    return os.pathsep.join([str(venv / "bin"), os.environ.get("PATH", os.defpath)])


def build_wheel(
    venv: Path, tag: str, setup_args: list[str] | None = None, compiler: dict[str, str] | None = None
) -> Path:
    """Builds this work tree's wheel with the environment's interpreter. Calls the backend as pip does, without
    pip's copy of build tools into a fresh environment for each build. `compiler`: CC and AR, if not the system's."""
    out = ROOT / "dist" / tag
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    settings: dict[str, object] = {"build-dir": str(BUILD / tag)}
    if setup_args:
        settings["setup-args"] = setup_args
    code = f"import mesonpy; mesonpy.build_wheel({str(out)!r}, {settings!r})"
    env = clean_environment(PATH=tool_path(venv), **(compiler or {}))
    try:
        run([python_of(venv), "-c", code], f"{tag}: building the wheel", env=env)
    except SetupError:
        # A build directory made by another Meson or for a removed interpreter cannot be configured again.
        if not (BUILD / tag).exists():
            raise
        shutil.rmtree(BUILD / tag)
        run([python_of(venv), "-c", code], f"{tag}: building the wheel", env=env)
    return next(out.glob("*.whl"))


def install_wheel(venv: Path, wheel: Path) -> None:
    run(
        [python_of(venv), "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--force-reinstall", wheel],
        f"installing {wheel.name}",
    )


def require_compiler() -> None:
    if not any(shutil.which(name) for name in (os.environ.get("CC", "cc"), "gcc", "clang")):
        debian_install("gcc", "libc6-dev")
    if not any(shutil.which(name) for name in (os.environ.get("CC", "cc"), "gcc", "clang")):
        raise SetupError("no C compiler was found; on Debian: apt-get install gcc libc6-dev")


# Asked for by name where the point is that either can build us; their Debian packages, sanitizers included.
COMPILERS = {"gcc": ("gcc", "libc6-dev"), "clang": ("clang", "libclang-rt-dev")}


def builds(compiler: str, *flags: str) -> bool:
    """A program, as gcc or clang is asked to."""
    if shutil.which(compiler) is None:
        return False
    command = [compiler, "-x", "c", "-", *flags, "-o", os.devnull]
    program = b"int main(void) { return 0; }"
    return subprocess.run(command, input=program, stderr=subprocess.DEVNULL, check=False).returncode == 0


def require_named_compiler(compiler: str, *flags: str) -> None:
    """One of COMPILERS, installed where we may; `flags` that it must know what to do with."""
    if not builds(compiler, *flags):
        debian_install(*COMPILERS[compiler])
    if not builds(compiler, *flags):
        what = " ".join([compiler, *flags])
        raise SetupError(f"{what}: not found; on Debian: apt-get install {' '.join(COMPILERS[compiler])}")


def c_build(venv: Path, build: Path, *options: str, env: dict[str, str] | None = None) -> Path:
    """Configures (or configures again) and builds everything that needs no Python."""
    env = {**clean_environment(PATH=tool_path(venv)), **(env or {})}
    meson = venv / "bin" / "meson"
    fresh = not (build / "build.ninja").exists()
    how = ["setup", build, *options] if fresh else ["setup", "--reconfigure", build, *options]
    try:
        run([meson, *how], f"{build.name}: meson setup", env=env)
    except SetupError:
        if fresh:
            raise
        shutil.rmtree(build)
        run([meson, "setup", build, *options], f"{build.name}: meson setup", env=env)
    run([venv / "bin" / "ninja", "-C", build], f"{build.name}: compiling", env=env)
    return build
