"""`make demo`: builds the package, runs the worked examples into a fresh folder, prints their reports."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import envs
from envs import ROOT, SetupError, say

EXAMPLES = ("mcts", "copy_pipeline", "killed_worker")


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument(
        "--into", type=Path, help="keep the run directories here (default: a temporary folder, kept too)"
    )
    args = parser.parse_args()
    try:
        envs.require_compiler()
        interpreter = envs.main_interpreter(envs.find_interpreters())
        say(f"Building lineprofiler for Python {interpreter} …")
        venv = envs.environment(interpreter, "demo", [envs.BUILD_REQUIREMENTS])
        wheel = envs.build_wheel(venv, "demo")
        envs.install_wheel(venv, wheel)
    except SetupError as error:
        print(error, file=sys.stderr)
        return 1
    say(f"  {wheel.relative_to(ROOT)}")

    top = args.into or Path(tempfile.mkdtemp(prefix="lineprofiler-demo-"))
    # The caller's environment, cleaned of what would steer the runs, but with its terminal and its locale.
    env = envs.clean_environment()
    for step in steps(venv, top):
        shown = " ".join(s.replace(f"{venv}/bin/", "").replace(f"{ROOT}/", "") for s in step)
        say(f"\n$ {shown}")
        status = subprocess.run(step, env=env, stdin=subprocess.DEVNULL, check=False).returncode
        if status != 0:
            print(f"{step[0]} ended with {status}", file=sys.stderr)
            return 1
    say(f"\nThe annotated source of the last run: {top / 'mcts.html'}")
    command = venv / "bin" / "lineprofiler"
    say(f"The run directories stay in {top}; try: {command} report {top / EXAMPLES[0]} --format json")
    return 0


def steps(venv: Path, top: Path) -> list[list[str]]:
    """The commands of the demo, with the package that is installed in `venv`; what they write lies below `top`."""
    command = venv / "bin" / "lineprofiler"
    steps = []
    for name in EXAMPLES:
        steps.append([str(envs.python_of(venv)), str(ROOT / "examples" / f"{name}.py"), str(top / name)])
        steps.append([str(command), "report", str(top / name)])
    # The lines of the search as it was before it had phases; then those of all processes of the one that has.
    steps.append([str(envs.python_of(venv)), str(ROOT / "examples" / "mcts_loop.py")])
    page = ["--top", "10", "--html", str(top / "mcts.html")]
    steps.append([str(command), "run", *page, str(ROOT / "examples" / "mcts.py"), str(top / "mcts_lines")])
    return steps


if __name__ == "__main__":
    sys.exit(main())
