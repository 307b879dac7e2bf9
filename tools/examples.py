"""`make examples`: real programs under the recorder, in an environment of their own: pytest with xdist, PyTorch,
Dask, MPI, uvicorn, Jupyter. Each checks its own figures, which are known before; its report is printed.

Heavy (PyTorch alone is some hundred megabytes to install), so no part of `make test`. The closing line stands alone.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import envs
from envs import ROOT, SetupError, say

CLIENTS = ROOT / "examples" / "clients"
REQUIREMENTS = ROOT / "examples" / "requirements.txt"
# Far above what an example takes (seconds; half a minute on a loaded machine).
LIMIT_S = 600


def names() -> list[str]:
    return sorted(path.stem for path in CLIENTS.glob("*.py"))


def prepare() -> Path:
    if shutil.which("mpirun.openmpi") is None and shutil.which("mpirun") is None:
        envs.debian_install("openmpi-bin")
    interpreter = envs.main_interpreter(envs.find_interpreters())
    venv = envs.environment(interpreter, "examples", [envs.BUILD_REQUIREMENTS, REQUIREMENTS])
    envs.install_wheel(venv, envs.build_wheel(venv, "examples"))
    return venv


def play(venv: Path, name: str, run_dir: Path) -> bool:
    """Runs an example and prints its report; whether both went well."""
    env = envs.clean_environment(PATH=envs.tool_path(venv))
    script = CLIENTS / f"{name}.py"
    steps = [
        [str(envs.python_of(venv)), str(script), str(run_dir)],
        [str(venv / "bin" / "lineprofiler"), "report", str(run_dir)],
    ]
    for step in steps:
        say("\n$ " + " ".join(s.replace(f"{venv}/bin/", "").replace(f"{ROOT}/", "") for s in step))
        try:
            status = subprocess.run(step, env=env, stdin=subprocess.DEVNULL, timeout=LIMIT_S, check=False).returncode
        except subprocess.TimeoutExpired:
            say(f"{name}: not done after {LIMIT_S} s")
            return False
        if status != 0:
            say(f"{name}: ended with {status}")
            return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(prog="make examples", description=__doc__.split("\n\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"only these of {', '.join(names())}")
    parser.add_argument(
        "--into", type=Path, help="keep the run directories here (default: a temporary folder, kept too)"
    )
    args = parser.parse_args()
    if unknown := [name for name in args.names if name not in names()]:
        print(f"no example is called {', '.join(unknown)}; there are {', '.join(names())}", file=sys.stderr)
        return 2
    started = time.monotonic()
    try:
        envs.require_compiler()
        venv = prepare()
    except SetupError as error:
        print(error, file=sys.stderr)
        return 1
    top = args.into or Path(tempfile.mkdtemp(prefix="lineprofiler-examples-"))
    failed = [name for name in args.names or names() if not play(venv, name, top / name)]
    ran = len(args.names or names())
    say(f"\nThe run directories stay in {top}; {time.monotonic() - started:.0f} s.")
    if failed:
        say("failed: " + ", ".join(failed))
    print(f"examples: {ran - len(failed)} passed, {len(failed)} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
