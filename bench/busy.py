#!/usr/bin/env python3
"""Decode speed beside endless loops: how much a busy machine takes away.

Usage: bench/busy.py [--pop build/pop] [-m MODEL] [--threads 1,2] [--loops 0,1,2] [--rounds 3] [-n 128] [--csv FILE] [-- MORE]

Rounds are interleaved. Each row gives the median tokens/s, its share of the quiet speed (no loops) with as many threads,
and the median ratio to one thread beside as many loops. With L loops and T threads on C cores a fair scheduler leaves the
threads min(1, C / (L + T)) of the cores they would have alone. MORE goes to `pop run`.
"""
import argparse
import csv
import json
import statistics
import subprocess
import sys
import time

PROMPT = "The weather was fine, so they walked along the river and talked about the summer. " * 6


def speed(args, threads):
    command = [args.pop, "run", "-t", str(threads), "-p", PROMPT, "-n", str(args.n), "--temp", "0", "--ignore-eos",
               "--json", *args.more]
    if args.model:
        command += ["-m", args.model]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(out)["timing"]["decode_tokens_per_s"]


def beside(loops, measure):
    """measure() while `loops` endless loops run."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    try:
        time.sleep(0.3 if loops else 0)
        return measure()
    finally:
        for loop in running:
            loop.kill()
            loop.wait()


def main():
    numbers = lambda text: [int(n) for n in text.split(",")]  # noqa: E731
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pop", default="build/pop")
    parser.add_argument("-m", "--model")
    parser.add_argument("--threads", type=numbers, default=[1, 2])
    parser.add_argument("--loops", type=numbers, default=[0, 1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-n", type=int, default=128)
    parser.add_argument("--csv")
    parser.add_argument("more", nargs="*")
    args = parser.parse_args()

    speeds = {}  # (loops, threads) -> one per round
    for _ in range(args.rounds):
        for loops in args.loops:
            for threads in args.threads:
                speeds.setdefault((loops, threads), []).append(beside(loops, lambda: speed(args, threads)))

    def ratio(of, to):
        return statistics.median(a / b for a, b in zip(speeds[of], speeds[to])) if to in speeds else float("nan")

    rows = [("loops", "threads", "tokens_per_s", "of_quiet", "to_one_thread", "rounds")]
    for (loops, threads), values in speeds.items():
        rows.append((loops, threads, f"{statistics.median(values):.1f}", f"{ratio((loops, threads), (0, threads)):.3f}",
                     f"{ratio((loops, threads), (loops, 1)):.3f}", " ".join(f"{v:.1f}" for v in values)))
    for row in rows:
        print("  ".join(f"{cell!s:>13}" for cell in row))
    if args.csv:
        with open(args.csv, "w", newline="") as file:
            csv.writer(file).writerows(rows)


if __name__ == "__main__":
    main()
