#!/usr/bin/env python3
"""How fast a model file is loaded, beside the disk's own speed, and how much memory that takes.

    bench/load.py build/pop model.gguf [--rounds 3] [--csv FILE]

Each round, interleaved: the file is read from a cold page cache (posix_fadvise DONTNEED before it), loaded from a cold one,
loaded from a warm one, and loaded through a cache file of the re-laid weights, cold and warm. Medians of the rounds. The peak
of the memory is that of a run that answers a few tokens at --ctx 512.
"""
import argparse
import csv
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time


def make_cold(path: pathlib.Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def read_seconds(path: pathlib.Path) -> float:
    block = bytearray(8 << 20)
    start = time.perf_counter()
    with open(path, "rb", buffering=0) as file:
        while file.readinto(block):
            pass
    return time.perf_counter() - start


def run(pop: str, model: pathlib.Path, *more: str) -> tuple[dict, int]:
    """The result of a short run, and the peak of its memory in bytes."""
    command = [pop, "run", "-m", str(model), "--ids", "1,2,3", "-n", "4", "--ctx", "512", "--temp", "0", "--ignore-eos", "--json", "-q"]
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen(command + list(more), stdout=out)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            sys.exit(f"load.py: {' '.join(command)}: ended with {child.returncode}")
        out.seek(0)
        return json.load(out), usage.ru_maxrss * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pop")
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--csv", type=pathlib.Path)
    args = parser.parse_args()
    size = args.model.stat().st_size
    seconds: dict[str, list[float]] = {}
    peaks: dict[str, int] = {}
    info = json.loads(subprocess.check_output([args.pop, "info", "-m", str(args.model), "--ctx", "512", "--json", "-q"]))
    with tempfile.TemporaryDirectory(dir=args.model.parent) as folder:
        run(args.pop, args.model, "--cache", folder)  # writes it
        cache = next(pathlib.Path(folder).iterdir())
        for _ in range(args.rounds):
            make_cold(args.model)
            seconds.setdefault("read, cold", []).append(read_seconds(args.model))
            for name, more, path in (("load", (), args.model), ("load by cache file", ("--cache", folder), cache)):
                make_cold(path)
                for state in ("cold", "warm"):
                    result, peak = run(args.pop, args.model, *more)
                    seconds.setdefault(f"{name}, {state}", []).append(result["timing"]["load_s"])
                    peaks[f"{name}, {state}"] = max(peak, peaks.get(f"{name}, {state}", 0))
    rows = []
    cold = statistics.median(seconds["read, cold"])
    for name, values in seconds.items():
        median = statistics.median(values)
        rows.append({"what": name, "seconds": round(median, 3), "least": round(min(values), 3), "most": round(max(values), 3),
                     "GB/s": round(size / median / 1e9, 2), "of cold read": round(median / cold, 2),
                     "peak / file": round(peaks[name] / size, 3) if name in peaks else ""})
    print(f"{args.model.name}: {size / 1e9:.3f} GB, {info['weight_bytes'] / 1e9:.3f} GB of weights in memory, "
          f"{info['threads']} threads; key-value cache of 512 tokens {info['memory']['kv_cache'] / 1e6:.0f} MB")
    for row in rows:
        print("  {what:<26}{seconds:>8.3f} s  [{least:.3f}, {most:.3f}]  {GB/s:>6.2f} GB/s  {of cold read:>5.2f} of reading  {peak / file}".format(**row))
    if args.csv:
        with open(args.csv, "w", newline="", encoding="utf-8") as out:
            writer = csv.DictWriter(out, fieldnames=["model", "bytes", *rows[0]])
            writer.writeheader()
            writer.writerows({"model": args.model.name, "bytes": size, **row} for row in rows)


if __name__ == "__main__":
    main()
