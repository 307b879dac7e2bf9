"""`make check`: what must hold before a commit. `--format` puts C and Python into the project's format instead."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

import envs
import instructions
import tidy
from envs import BUILD, ROOT, SetupError, say

# What cppcheck 2.10 says wrongly of all such code, and who looks at it instead:
CPPCHECK_OFF = [
    "internalAstError",  # its parser knows no compound literal within ?:
    "uninitvar",  # takes a list of functions for a variable without a value; gcc and clang warn of real ones
    "ctuuninitvar",  # and a buffer that snprintf fills; the address sanitizer and libFuzzer run that code
    "memleak",  # does not follow a pointer that is stored by assigning a struct; the leak sanitizer runs the C tests
    "missingIncludeSystem",  # it is not given the system's headers
]
PYTHON_FOLDERS = ["python", "tests", "tools", "benchmarks", "examples"]


def c_files() -> list[Path]:
    folders = [ROOT / f for f in ("src", "include", "tests/c", "tests/fuzz", "benchmarks") if (ROOT / f).is_dir()]
    return sorted(p for folder in folders for p in folder.rglob("*") if p.suffix in (".c", ".h"))


def step(name: str, command: list[object], env: dict[str, str]) -> bool:
    """Runs one check; output only if it fails."""
    done = envs.captured(command, env=env)
    say(f"  {'ok    ' if done.returncode == 0 else 'FAILED'} {name}")
    if done.returncode != 0:
        say("\n".join("    | " + line for line in done.stdout.splitlines()[-200:]))
    return done.returncode == 0


def strict_build(compiler: str, venv: Path) -> bool:
    """Everything, the extension and the C tests too, with warnings as errors."""
    build = BUILD / f"check-{compiler}"
    shutil.rmtree(build, ignore_errors=True)
    env = {**envs.clean_environment(PATH=envs.tool_path(venv)), "CC": compiler}
    args: list[object] = [venv / "bin" / "meson", "setup", build, "-Dwerror=true", "-Dpython=true"]
    if not step(f"{compiler}: configure", args, env):
        return False
    # With the wheel's options the stand-alone command and the C tests are not built by default.
    ninja: list[object] = [venv / "bin" / "ninja", "-C", build, "-k", "0", "all", "meson-test-prereq"]
    return step(f"{compiler}: build without a warning", ninja, env)


def cppcheck(env: dict[str, str]) -> bool:
    """All layers but the extension, whose macros are CPython's."""
    if shutil.which("cppcheck") is None:
        envs.debian_install("cppcheck")
        if shutil.which("cppcheck") is None:
            raise SetupError("cppcheck was not found; on Debian: apt-get install cppcheck")
    command: list[object] = ["cppcheck", "-q", "--std=c11", "--error-exitcode=1"]
    command += ["--enable=warning,portability,performance", *(f"--suppress={name}" for name in CPPCHECK_OFF)]
    command += ["-D_GNU_SOURCE", '-DLP_VERSION="0"', "-D__x86_64__", "-Isrc"]
    layers = ["core", "store", "sample", "collector", "analysis", "render", "cli"]
    return step("cppcheck", [*command, *(f"src/{layer}" for layer in layers)], env)


def clang_tidy(build: Path) -> bool:
    """All of src; needs the build directory of clang's strict build."""
    files, wrong = tidy.tidy(build)
    say(f"  {'FAILED' if wrong else 'ok    '} clang-tidy: {files} files")
    for text in wrong:
        say("\n".join("    | " + line for line in text.splitlines()[:60]))
    return not wrong


def no_more_instructions() -> bool:
    """The hot paths against the kept counts; what cannot be compared here is named and is no failure."""
    try:
        said, good = instructions.closing(instructions.measure())
    except instructions.UnavailableError as error:
        said, good = [f"left out: {error}"], True
    say(f"  {'ok    ' if good else 'FAILED'} instructions of the hot paths")
    say("\n".join(f"    | {line}" for line in said))
    return good


def main() -> int:
    parser = argparse.ArgumentParser(prog="make check", description=__doc__)
    parser.add_argument("--format", action="store_true")
    args = parser.parse_args()
    try:
        envs.require_compiler()
        interpreter = envs.main_interpreter(envs.find_interpreters())
        venv = envs.environment(
            interpreter, "check", [envs.BUILD_REQUIREMENTS, envs.CHECK_REQUIREMENTS, envs.TEST_REQUIREMENTS]
        )
        env = envs.clean_environment(PATH=envs.tool_path(venv))
        tool = venv / "bin"
        if args.format:
            envs.run([tool / "clang-format", "-i", *c_files()], "clang-format")
            envs.run([tool / "ruff", "check", "--fix-only", "-q", *PYTHON_FOLDERS], "ruff")
            envs.run([tool / "ruff", "format", "-q", *PYTHON_FOLDERS], "ruff")
            return 0

        for compiler in envs.COMPILERS:
            envs.require_named_compiler(compiler)
        good = [strict_build(compiler, venv) for compiler in envs.COMPILERS]
        good.append(cppcheck(env))
        good.append(clang_tidy(BUILD / "check-clang"))
        good.append(no_more_instructions())
        good.append(step("clang-format", [tool / "clang-format", "--dry-run", "-Werror", *c_files()], env))
        good.append(step("ruff", [tool / "ruff", "check", *PYTHON_FOLDERS], env))
        good.append(step("ruff format", [tool / "ruff", "format", "--check", "--diff", *PYTHON_FOLDERS], env))
        good.append(step("mypy --strict", [tool / "mypy"], env))
        envs.install_wheel(venv, envs.build_wheel(venv, "check"))
        good.append(
            step(
                "house rules",
                [envs.python_of(venv), "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/house"],
                {**env, "PYTHONDONTWRITEBYTECODE": "1"},
            )
        )
    except SetupError as error:
        print(error, file=sys.stderr)
        return 1
    say("all checks passed" if all(good) else "some checks failed")
    return 0 if all(good) else 1


if __name__ == "__main__":
    os.environ.setdefault("LC_ALL", "C.UTF-8")
    sys.exit(main())
