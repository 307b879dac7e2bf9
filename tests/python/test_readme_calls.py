"""Every call, argument and attribute that the documented examples use, used in the same way, with its result checked.

Where the documents themselves lie beside the checkout, tests/spec runs their text. These programs are ours.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from lptest import environment, lineprofiler, phases_of, report_json, run_python


def test_two_roles_in_one_run(tmp_path: Path) -> None:
    program = """
        import os
        from lineprofiler.accounting import Profiler

        actor = Profiler(run_dir="profile", role="actor")
        with actor:
            for _ in range(20):
                with actor.phase("iteration"), actor.phase("self_play"):
                    with actor.phase("mcts"):
                        actor.count("mcts_simulations", 64)

        learner = Profiler(run_dir="profile", role="learner")
        with learner.phase("checkpoint", io=True):
            with open("model.bin", "wb") as out:
                out.write(bytes(1_000_000))
                out.flush()
                os.fsync(out.fileno())
        """
    run_python(program, cwd=tmp_path, env=environment(LINEPROFILER_RUN_ID="both")).expect()
    document = report_json(tmp_path / "profile")
    assert document["run"]["run_id"] == "both"
    actor = phases_of(document, "actor")
    assert actor["iteration/self_play/mcts"]["calls"] == actor["iteration"]["calls"] == 20
    assert actor["iteration/self_play/mcts"]["counters"] == {"mcts_simulations": 20 * 64}
    # The learner never closed: what it recorded is written at exit.
    assert phases_of(document, "learner")["checkpoint"]["counters"]["io_write_chars"] == 1_000_000


def test_module_functions_follow_the_installed_profiler(tmp_path: Path) -> None:
    program = """
        from lineprofiler import accounting
        from lineprofiler.accounting import Profiler

        assert accounting.installed_profiler() is None
        with accounting.phase("nobody"):
            accounting.count("nothing", 3)
            assert accounting.current() == ""

        profiler = Profiler(run_dir="profile", role="actor", install=True)
        assert accounting.installed_profiler() is profiler
        for _ in range(3):
            with accounting.phase("search"):
                with accounting.phase("mcts", io=False, sync=False):
                    accounting.count("simulations", 64)
                    assert accounting.current() == profiler.current_phase() == "search/mcts"
        tree = profiler.merged_tree()
        assert ("nobody",) not in tree
        profiler.close()
        assert accounting.installed_profiler() is None
        with accounting.phase("afterwards"):
            accounting.count("simulations", 64)
        """
    run_python(program, cwd=tmp_path).expect()
    phases = phases_of(report_json(tmp_path / "profile"), "actor")
    assert set(phases) == {"search", "search/mcts"}
    assert phases["search/mcts"]["counters"] == {"simulations": 192}


def test_start_and_stop(tmp_path: Path) -> None:
    program = """
        from lineprofiler import accounting
        from lineprofiler.accounting import start, stop

        start(role="actor")
        with accounting.phase("work"):
            pass
        stop()
        stop()
        """
    off = run_python(program, cwd=tmp_path).expect()
    assert not (tmp_path / "profile").exists()
    assert "LINEPROFILER_PROFILE" in off.stderr, "a run that records nothing must say what to set"
    run_python(program, cwd=tmp_path, env=environment(LINEPROFILER_PROFILE="1")).expect()
    assert phases_of(report_json(tmp_path / "profile"), "actor")["work"]["calls"] == 1


def test_role_from_the_environment(tmp_path: Path) -> None:
    program = """
        from lineprofiler.accounting import Profiler
        with Profiler(run_dir="profile") as profiler, profiler.phase("work"):
            pass
        """
    run_python(program, cwd=tmp_path, env=environment(LINEPROFILER_ROLE="evaluator")).expect()
    assert report_json(tmp_path / "profile")["run"]["roles"] == ["evaluator"]


def test_synchronised_phase_without_torch(tmp_path: Path) -> None:
    from lineprofiler.accounting import Profiler

    profiler = Profiler(run_dir=tmp_path, role="learner", snapshot_interval_s=None, sample_interval_s=None)
    with profiler.phase("forward", sync=True):
        answer = sum([1, 2])
    tree = profiler.merged_tree()
    profiler.close()
    assert answer == 3
    assert tree[("forward",)].calls == 1


def test_sampled_phase(tmp_path: Path) -> None:
    from lineprofiler.accounting import Profiler

    profiler = Profiler(run_dir=tmp_path, role="actor", snapshot_interval_s=None, sample_interval_s=None)
    for _ in range(250):
        with profiler.phase("select", sample=0.01):
            with profiler.phase("inner"):
                pass
    tree = profiler.merged_tree()
    profiler.close()
    assert tree[("select",)].sample_stride == 100
    # Entries 1, 101 and 201 were measured; each stands for a hundred.
    assert tree[("select",)].calls == 300
    assert tree[("select", "inner")].calls == 300
    text = lineprofiler("report", tmp_path).expect().stdout
    assert "~" in text
    assert "1 entry in 100" in text


@pytest.mark.parametrize("strict", [False, True])
def test_names_from_data(tmp_path: Path, strict: bool) -> None:
    from lineprofiler.accounting import Profiler

    profiler = Profiler(
        run_dir=tmp_path, role="actor", strict_names=strict, snapshot_interval_s=None, sample_interval_s=None
    )
    try:
        if strict:
            with profiler.phase("episode_1"):
                pass
            with pytest.raises(ValueError, match="episode_#"), profiler.phase("episode_2"):
                pass
        else:

            def episodes() -> None:
                for number in range(200):
                    with profiler.phase(f"episode_{number}"):
                        pass

            with pytest.warns(RuntimeWarning, match="episode_#") as seen:
                episodes()
            shape_warnings = [w for w in seen if "episode_#" in str(w.message)]
            assert len(shape_warnings) == 1
            assert "128" in str(shape_warnings[0].message)
            assert "4096" in str(shape_warnings[0].message)
    finally:
        profiler.close()


def test_thread_names(tmp_path: Path) -> None:
    program = """
        import threading
        from lineprofiler.accounting import Profiler

        profiler = Profiler(run_dir="profile", role="learner", thread_names=True)

        def drain():
            threading.current_thread().name = "collector"
            for _ in range(3):
                with profiler.phase("drain_queue"):
                    pass

        worker = threading.Thread(target=drain)
        worker.start()
        worker.join()
        with profiler.phase("train_step"):
            pass
        profiler.close()
        """
    run_python(program, cwd=tmp_path).expect()
    phases = phases_of(report_json(tmp_path / "profile"), "learner")
    assert phases["collector/drain_queue"]["calls"] == 3
    assert phases["MainThread/train_step"]["calls"] == 1


def test_exporter_on_snapshots(tmp_path: Path) -> None:
    from lineprofiler.accounting import Profiler

    published: list[dict[str, float]] = []
    profiler = Profiler(run_dir=tmp_path, role="learner", snapshot_interval_s=0.1, sample_interval_s=None)

    @profiler.on_snapshot
    def export(_tree: object) -> None:
        for path, stats in profiler.deltas().items():
            name = "/".join(path)
            published.append(
                {
                    f"{name}/wall_s": stats.wall_ns / 1e9,
                    f"{name}/wait": stats.wait_ns / stats.wall_ns,
                    f"{name}/p50_ms": stats.hist.quantile(0.5) / 1e6,
                    f"{name}/calls": stats.calls,
                }
            )

    for _ in range(5):
        with profiler.phase("train"):
            time.sleep(0.01)
    deadline = time.monotonic() + 20
    while sum(p.get("train/calls", 0) for p in published) < 5 and time.monotonic() < deadline:
        time.sleep(0.02)
    quiet = len(published)
    time.sleep(0.3)
    profiler.close()
    assert sum(p["train/calls"] for p in published) == 5
    assert len(published) == quiet, "an interval in which nothing was entered is absent, not zero"
    # sleep(0.01) sleeps at least that; above, a loaded machine may add what it likes.
    assert min(p["train/p50_ms"] for p in published) >= 10 * (1 - 0.016)
    assert all(0.5 < p["train/wait"] <= 1 for p in published)
    assert sum(p["train/wall_s"] for p in published) >= 0.05


def test_merged_run_as_an_assertion_target(tmp_path: Path) -> None:
    from lineprofiler.accounting import Profiler, merge_run

    before = dict(os.environ)
    profiler = Profiler(
        run_dir=tmp_path / "profile", role="evaluator", enabled=True, snapshot_interval_s=None, sample_interval_s=None
    )
    try:
        with profiler.phase("iteration"), profiler.phase("mcts"):
            profiler.count("simulations", 64)
    finally:
        profiler.close()
    assert dict(os.environ) == before

    run = merge_run(tmp_path / "profile", with_samples=False)
    assert "evaluator" in run.roles
    assert run.tree[("iteration", "mcts")].calls > 0
    assert run.tree[("iteration", "mcts")].counters == {"simulations": 64}
    assert run.unreadable == []
    latest = max(w.written_at for w in run.workers)
    assert all(latest - w.written_at < 300 for w in run.workers)
    assert abs(latest - time.time()) < 300


def test_closing_before_os_exit(tmp_path: Path) -> None:
    program = """
        import os
        from lineprofiler.accounting import Profiler
        profiler = Profiler(run_dir="profile", role="actor")
        with profiler.phase("work"):
            pass
        profiler.close()
        os._exit(0)
        """
    run_python(program, cwd=tmp_path).expect()
    assert phases_of(report_json(tmp_path / "profile"), "actor")["work"]["calls"] == 1


@pytest.mark.parametrize(
    "arguments",
    [
        "backend='torch', backend_window=(100, 110), window_phase='iteration'",
        "backend='viztracer', backend_window=(100, 110), window_phase='iteration'",
        "annotate=True",
        "trace=True",
    ],
)
def test_what_arrives_later_is_accepted_and_said(tmp_path: Path, arguments: str) -> None:
    program = f"""
        from lineprofiler.accounting import Profiler
        profiler = Profiler(run_dir="profile", role="actor", {arguments})
        for _ in range(120):
            with profiler.phase("iteration"):
                pass
        profiler.close()
        """
    done = run_python(program, cwd=tmp_path, options=("-W", "always")).expect()
    name = arguments.split("=")[0]
    assert done.stderr.count("Warning") == 1, done.stderr
    assert name in done.stderr
    assert phases_of(report_json(tmp_path / "profile"), "actor")["iteration"]["calls"] == 120
    text = lineprofiler("report", "profile", cwd=tmp_path).expect().stdout
    assert "asked for, not recorded" in text[text.index("CAVEATS") :]


def test_documented_commands(tmp_path: Path) -> None:
    program = """
        import sys
        from lineprofiler.accounting import Profiler
        with Profiler(run_dir=sys.argv[1], role="actor") as profiler:
            for _ in range(40):
                with profiler.phase("env_step"):
                    sum(range(int(sys.argv[2])))
        """
    run_python(program, "profile_a", 1000, cwd=tmp_path).expect()
    run_python(program, "profile_b", 9000, cwd=tmp_path).expect()
    for options in ([], ["--no-samples"]):
        text = lineprofiler("report", "profile_a/", *options, cwd=tmp_path).expect().stdout
        assert "ACTOR" in text
        assert "env_step" in text
    text = lineprofiler("compare", "profile_a/", "profile_b/", cwd=tmp_path).expect().stdout
    assert "env_step" in text
    compared = lineprofiler("compare", "profile_a/", "profile_b/", "--json", cwd=tmp_path).expect().stdout
    assert '"calls_a": 40' in compared or '"calls_a":40' in compared
