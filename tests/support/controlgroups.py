"""Control groups of version 1, made for a test and removed behind it. Only root can."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from lpstage import wait_for

V1_ROOT = Path("/sys/fs/cgroup")


def are_there(*files: str) -> bool:
    """Files of the controllers' roots, as "cpu/cpu.cfs_quota_us"."""
    return os.geteuid() == 0 and all((V1_ROOT / name).exists() for name in files)


@contextlib.contextmanager
def control_groups(*controllers: str) -> Iterator[list[Path]]:
    """One group of each. Who is in them is to end soon: without a limit, so that it can."""
    groups = [V1_ROOT / name / f"lptest-{os.getpid()}" for name in controllers]
    for group in groups:
        group.mkdir(exist_ok=True)
    try:
        yield groups
    finally:
        for group in groups:
            if (group / "cpu.cfs_quota_us").exists():
                (group / "cpu.cfs_quota_us").write_text("-1")
        for group in groups:
            wait_for(lambda: is_removed(group), f"{group} becomes empty")  # noqa: B023 (called at once)


def is_removed(group: Path) -> bool:
    """Whoever has ended leaves its group a little later than /proc."""
    with contextlib.suppress(OSError):
        group.rmdir()
    return not group.exists()
