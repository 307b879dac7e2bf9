"""Moving 4,000 records of 4 KiB: one file each, or in shards of 250. The bytes are the same; only the calls differ.

    python examples/copy_pipeline.py RUN_DIR        then: lineprofiler report RUN_DIR

The main process writes the records; two copier processes then move a half each, in both ways. `io=True` reads the
process's byte counters at both ends of a phase, so that its bytes are its own.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import tempfile
import time
from pathlib import Path

from lineprofiler import accounting
from lineprofiler.accounting import Profiler

RECORDS = 4000
RECORD_BYTES = 4096
COPIERS = 2


def write_records(src_dir: Path, first: int, count: int) -> None:
    """`count` files of RECORD_BYTES, each with other bytes."""
    src_dir.mkdir()
    for number in range(first, first + count):
        (src_dir / f"record_{number:05d}").write_bytes(number.to_bytes(8, "little") * (RECORD_BYTES // 8))
        accounting.count("records", 1)


def write_per_item(src_dir: Path, dst_dir: Path) -> None:
    """The obvious version: copy each record as its own file."""
    for path in sorted(src_dir.iterdir()):
        with accounting.phase("copy_one", io=True):
            shutil.copyfile(path, dst_dir / path.name)
        accounting.count("records", 1)


def write_batched(src_dir: Path, dst_dir: Path, batch: int = 250) -> None:
    """The batched version: concatenate into shards, one write per shard."""
    paths = sorted(src_dir.iterdir())
    for shard_no in range(0, len(paths), batch):
        chunk = paths[shard_no : shard_no + batch]
        with accounting.phase("read_batch", io=True):
            blob = b"".join(p.read_bytes() for p in chunk)
        with accounting.phase("write_batch", io=True):
            (dst_dir / f"shard_{shard_no:05d}.bin").write_bytes(blob)
        accounting.count("records", len(chunk))


def copier(run_dir: str, run_id: str, src_dir: Path, dst_dir: Path) -> None:
    items, shards = dst_dir / "items", dst_dir / "shards"
    items.mkdir(parents=True)
    shards.mkdir()
    with Profiler(run_dir=run_dir, role="copier", run_id=run_id, install=True):
        with accounting.phase("per_item"):
            write_per_item(src_dir, items)
        with accounting.phase("batched"):
            write_batched(src_dir, shards)


def content(folder: Path) -> bytes:
    return b"".join(p.read_bytes() for p in sorted(folder.iterdir()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run_dir", nargs="?", default="profile")
    parser.add_argument("--records", type=int, default=RECORDS)
    args = parser.parse_args()

    run_id = time.strftime("copy-%Y%m%dT%H%M%S")
    share = args.records // COPIERS
    with tempfile.TemporaryDirectory(prefix="copy-pipeline-") as name:
        top = Path(name)
        sources = [top / f"src_{n}" for n in range(COPIERS)]
        with Profiler(run_dir=args.run_dir, role="producer", run_id=run_id, install=True):
            with accounting.phase("write_records", io=True):
                for n, source in enumerate(sources):
                    write_records(source, n * share, share)
        context = multiprocessing.get_context("spawn")
        processes = [
            context.Process(target=copier, args=(args.run_dir, run_id, source, top / f"dst_{n}"))
            for n, source in enumerate(sources)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        for n, source in enumerate(sources):
            if not content(source) == content(top / f"dst_{n}" / "items") == content(top / f"dst_{n}" / "shards"):
                raise SystemExit("the copies differ")
    print(f"copied {share * COPIERS} records twice; all copies are equal")


if __name__ == "__main__":
    main()
