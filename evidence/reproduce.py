#!/usr/bin/env python3
"""Makes every quality figure of README.md and docs/results.md again and says how far it is from the committed one (evidence/results).

A run whose result lies in the scratch folder is not repeated; one that was interrupted goes on with the window or item it was at.
Exit code 0: every figure is the committed one (to 1e-6 with the same instruction set; with another, within its interval);
1: one is not, or a run failed. Speeds are scripts/bench's.
"""
import argparse
import concurrent.futures
import dataclasses
import datetime
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import threading

import plan
import records

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = "models/SmolLM2-135M-Instruct.Q4_1.gguf"
TOKENS_PER_SECOND = 500  # per thread, about, of the default model where the committed results were made


def say(text):
    print(f"[{datetime.datetime.now():%H:%M:%S}] {text}", file=sys.stderr, flush=True)


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


class NotThere(Exception):
    """A result that --there does not make."""


class Once:
    """The value of a function of one argument, computed once even if several threads ask."""

    def __init__(self, make):
        self.make, self.values, self.guard, self.locks = make, {}, threading.Lock(), {}

    def __call__(self, key):
        with self.guard:
            lock = self.locks.setdefault(key, threading.Lock())
        with lock:
            if key not in self.values:
                self.values[key] = self.make(key)
            return self.values[key]


class Runner:
    def __init__(self, pop, scratch, root=ROOT, there=False):
        self.there = there  # nothing is run
        self.pop, self.scratch, self.root = str(pop), pathlib.Path(scratch).resolve(), pathlib.Path(root)
        for folder in ("results", "items", "files"):
            (self.scratch / folder).mkdir(parents=True, exist_ok=True)
        self.sha256 = Once(sha256)
        self.calibration = Once(self.calibrate)

    def call(self, words, output):
        """Runs pop and returns what it printed; `output` appears only when the command has ended well."""
        if self.there:
            raise NotThere
        done = subprocess.run([self.pop, *words], cwd=self.root, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"pop {' '.join(words)}: exit code {done.returncode}: {done.stderr.strip()[-400:]}")
        part = output.with_name(f"{output.name}.part-{os.getpid()}")
        part.write_text(done.stdout, encoding="utf-8")
        os.replace(part, output)
        return done.stdout

    def key(self, value):
        return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:24]

    def second_half(self, text):
        """In-domain calibration text: what no scored window reaches."""
        source, target = self.root / text, self.scratch / "files" / f"second-half-{pathlib.Path(text).name}"
        data = source.read_bytes()
        target.write_bytes(data[data.index(b"\n", len(data) // 2) + 1:])
        return target

    def task_prompt(self, text):
        """The words before every item of a generation task."""
        target = self.scratch / "files" / f"prompt-{text}.txt"
        with open(self.root / "data" / f"{text}.jsonl", encoding="utf-8") as file:
            target.write_text(json.loads(file.readline())["preamble"], encoding="utf-8")
        return target

    def calibrate(self, asked):
        """(kind, name of a text or task, model, ratio of method tyr) -> the calibration file."""
        kind, text, model, ratio = asked
        if kind == "development":
            source, options = self.root / plan.CALIBRATION, plan.CALIBRATE + plan.ALLOCATE
        elif kind == "in-domain":
            source, options = self.second_half(plan.TEXTS[text]), plan.CALIBRATE
        else:
            source, options = self.task_prompt(text), ["--length", "1024"]
        if ratio:
            options = [*plan.SEARCH, "--tyr", f"{ratio:g}"]
        name = self.key([options, self.sha256(source), self.sha256(model), self.sha256(self.pop)])
        target = self.scratch / "files" / f"{name}.calib"
        if not target.exists():
            say(f"calibrate {kind} {text}")
            part = target.with_suffix(f".part-{os.getpid()}")
            self.call(["calibrate", "-m", str(model), "-f", str(source), "-o", str(part), *options, "-t", "1", "--json"],
                      target.with_suffix(".json"))
            os.replace(part, target)
        return target

    def requantised(self, kind):
        """Made by python/requantize.py, which needs llama-cpp-python: not by this script."""
        path = self.scratch / "bits" / f"SmolLM2-135M-Instruct.{kind}.gguf"
        if not path.exists():
            raise RuntimeError(f"expected {path}; make it with: python/requantize.py {MODEL} {path.parent} {kind}")
        return path

    def files(self, run):
        """What stands for the names in a command."""
        model = self.root / MODEL
        out = {"{model}": model, "{text}": self.root / run.file()}
        if run.bits:
            out["{bits:" + run.bits + "}"] = self.requantised(run.bits)
        if run.calibration:
            out["{calibration}"] = self.calibration((run.calibration, "" if run.calibration == "development" else run.text, model,
                                                     run.file_ratio()))
        return out

    def result(self, run):
        """Rows of a run, from the scratch folder or computed."""
        files = self.files(run)
        hashes = {name: self.sha256(str(path)) for name, path in files.items()}
        same = dataclasses.replace(run, windows=0, ratios=())  # a file of items goes on when there are more of them
        items = self.scratch / "items" / (self.key([same.command(), hashes, self.sha256(self.pop)]) + ".jsonl")
        target = self.scratch / "results" / (self.key([run.command(), hashes, self.sha256(self.pop)]) + ".json")
        if run.kind == "mc" and run.ratios:  # of kl, pop itself names a file per ratio
            items = items.with_name(f"{items.name}.{run.ratios[0]:g}")
        if not target.exists():
            words = run.command()
            for name, path in files.items():
                words = [word.replace(name, str(path)) for word in words]
            self.call([*words, "-t", "1", "--json", "--quiet", "--per-item", str(items)], target)
        lines = [json.loads(line) for line in target.read_text(encoding="utf-8").splitlines()]
        rows = []
        for line, ratio in zip(lines, run.ratios or ("",), strict=True):
            path = items if run.kind == "mc" or ratio == "" or run.file_ratio() else items.with_name(f"{items.name}.{ratio:g}")
            rows.append(records.row(run, ratio, line, records.read_items(path), hashes))
        return rows

    def compared(self, run, ratio, rows):
        """Of a task: the paired difference to dense, by pop eval compare."""
        dense = dataclasses.replace(run, method="dense", ratios=(), calibration="")
        paths = []
        for one in (dense, run):
            hashes = {name: self.sha256(str(path)) for name, path in self.files(one).items()}
            same = dataclasses.replace(one, windows=0, ratios=())
            path = self.scratch / "items" / (self.key([same.command(), hashes, self.sha256(self.pop)]) + ".jsonl")
            paths.append(path if not one.ratios else path.with_name(f"{path.name}.{ratio:g}"))
        self.result(dense)
        target = self.scratch / "results" / (self.key([str(path) for path in paths] + [run.windows]) + ".compare.json")
        if not target.exists():
            self.call(["eval", "compare", *map(str, paths), "--metric", "acc", "--json"], target)
        rows[0].update(records.comparison(json.loads(target.read_text(encoding="utf-8"))))

    def rows(self, run):
        found = self.result(run)
        if run.kind == "mc" and run.method != "dense":
            self.compared(run, run.ratios[0], found)
        return found


def run_all(runner, runs, jobs, keep):
    """Rows of all runs in their order; `keep` is told after each. Failures are said and returned."""
    found, failed = {}, []
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        waiting = {pool.submit(runner.rows, run): i for i, run in enumerate(runs)}
        for future in concurrent.futures.as_completed(waiting):
            run = runs[waiting[future]]
            try:
                found[waiting[future]] = future.result()
                say(f"{len(found)} of {len(runs)}: {run.name()}")
                keep([row for i in sorted(found) for row in found[i]])
            except NotThere:
                pass
            except (RuntimeError, OSError, ValueError, KeyError) as error:
                failed.append(f"{run.name()}: {error}")
                say(f"FAILED {failed[-1]}")
    return [row for i in sorted(found) for row in found[i]], failed


def print_plan(runs, jobs):
    total = sum(run.tokens() for run in runs)
    for name in dict.fromkeys(run.set for run in runs):
        some = [run for run in runs if run.set == name]
        print(f"{name:8} {len(some):4} runs {sum(run.tokens() for run in some):>10,} tokens")
    print(f"{'all':8} {len(runs):4} runs {total:>10,} tokens, about {total / TOKENS_PER_SECOND / jobs / 3600:.1f} hours on {jobs} threads")


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="scripts/reproduce", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plan", action="store_true", help="say what would run, tokens and hours")
    parser.add_argument("--quick", action="store_true", help="one text, the methods without calibration: minutes")
    parser.add_argument("--only", default=",".join(plan.SETS), help=f"sets, separated by commas: {','.join(plan.SETS)}")
    parser.add_argument("--texts", help="of these sets only the runs on these texts or tasks, separated by commas")
    parser.add_argument("--methods", help="of these sets only the runs of these methods, separated by commas")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs at a time, of one thread each [the CPUs]")
    parser.add_argument("--scratch", default=ROOT / "build" / "evidence", help="where results, items and calibrations lie [build/evidence]")
    parser.add_argument("--pop", default=ROOT / "build" / "pop", help="the program [build/pop]")
    parser.add_argument("--there", action="store_true", help="only results that are there already: run nothing")
    parser.add_argument("--record", action="store_true", help="write evidence/results instead of comparing with it")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.only.split(",") if name not in plan.SETS]
    if unknown:
        parser.error(f"--only: expected some of {', '.join(plan.SETS)}; found {', '.join(unknown)}")
    runs = [run for name in options.only.split(",") for run in plan.SETS[name]()]
    if options.texts:
        runs = [run for run in runs if run.text in options.texts.split(",")]
    if options.methods:
        runs = [run for run in runs if run.method in options.methods.split(",")]
    if options.quick:
        runs = plan.quick(runs)
    if options.plan:
        print_plan(runs, options.jobs)
        return 0
    runner = Runner(options.pop, options.scratch, there=options.there)
    for path in [runner.pop, ROOT / MODEL, *{runner.root / run.file() for run in runs}]:
        if not pathlib.Path(path).exists():
            parser.error(f"expected {path}: scripts/quickstart makes the program and fetches the model, scripts/dev-set makes the texts")
    keep = (lambda rows: records.write(records.FOLDER, rows)) if options.record else (lambda rows: None)
    rows, failed = run_all(runner, runs, options.jobs, keep)
    committed = records.read(records.FOLDER)
    different = [] if options.record else records.differences(rows, committed)
    new = records.uncommitted(rows, committed)
    for line in different + failed:
        print(line)
    print(f"{len(rows)} figures made again, {len(different)} not as committed, {len(new)} with nothing committed to compare with, {len(failed)} runs failed")
    return 1 if different or failed else 0


if __name__ == "__main__":
    sys.exit(main())
