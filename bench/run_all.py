#!/usr/bin/env python3
"""Makes every measurement of README.md and docs/performance.md again, then their tables and plots. Called by scripts/bench.

Sets, in the order they run; each replaces its own files in bench/results/:
  peers    pop, llama.cpp (and ik_llama.cpp with --ik) on the same files
  types    dense decode of an 8B shape in every weight type, 1 and 2 threads
  pop      what pruning gains over dense
  context  128 to 8192 positions
  batch    1 to 16 sequences
  ratio    0 to 0.6, 1 and 2 threads: the model of other bandwidths is fitted to it
  paper    Llama-2-7B, 128 tokens in, 128 out, batch 1 (all 32 layers in q4_0) and 10
  moe      mixtures of experts: beside llama.cpp, and what pruning gains over dense
  kernels  every weight product alone
"""
import argparse
import datetime
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS = HERE / "results"
SETS = ["peers", "types", "pop", "context", "batch", "ratio", "paper", "moe", "kernels"]
DEFAULT_MODEL = ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
TYPES = ["f16", "bf16", "q8_0", "q4_0", "q4_1", "q4_k", "q5_k", "q6_k", "iq4_nl"]
MIXTURES = [("qwen3-30b-a3b", 8), ("qwen1.5-moe-a2.7b", 8)]  # shape, layers; 3.2 and 2.9 GB
BESIDE_MIXTURES = [("qwen2.5-7b", 8)]  # a dense model of the size, without llama.cpp beside it
PAPER_METHODS = "dense,pop:0.2,pop:0.4,fixed:0.2,fixed:0.4,full:0.2,full:0.4"
PAPER_PLUS = "dense,pop+:0.2,pop+:0.4"


class Runner:
    def __init__(self, options):
        self.options, self.start, self.failed = options, time.time(), []

    def say(self, text):
        print(f"[{datetime.datetime.now():%H:%M:%S}, {time.time() - self.start:5.0f} s] {text}", file=sys.stderr, flush=True)

    def run(self, command, measured=True):
        command = [str(part) for part in command]
        self.say(" ".join(command))
        before = time.time()
        done = subprocess.run([*(self.options.wrap if measured else []), *command], stdout=sys.stderr)
        if done.returncode != 0:
            self.failed.append(" ".join(command))
            self.say(f"FAILED with exit code {done.returncode}")
        return time.time() - before

    def decode(self, name, model, *arguments):
        """model: a path, or (shape, type, layers)."""
        source = ["-m", model] if not isinstance(model, tuple) else ["--shape", model[0], "--type", model[1], "--layers", model[2]]
        self.run([self.options.pop, "bench", "decode", *source, *arguments, "--csv", RESULTS / f"{name}.csv"])

    def compare(self, csv, systems):
        return [sys.executable, HERE / "compare_peers.py", "--pop", self.options.pop, "--csv", csv, "--systems", systems, "--venv",
                self.options.venv, "--scratch", self.options.scratch, *(["--ik", self.options.ik] if self.options.ik else []),
                *(["--wrap", shlex.join(self.options.wrap)] if self.options.wrap else [])]

    def peers(self):
        quick = self.options.quick
        csv, systems = RESULTS / "peers.csv", RESULTS / "peers_systems.csv"
        for path in (csv, systems):
            path.unlink(missing_ok=True)
        base = self.compare(csv, systems)
        rounds = 1 if quick else 3
        self.run([*base, "-m", DEFAULT_MODEL, "-p", "128,512", "-n", 64, "-r", rounds], measured=False)
        self.run([*base, "-m", DEFAULT_MODEL, "-p", "32", "-n", 32, "--batch", "8", "-t", 2, "-r", rounds], measured=False)
        kinds = ["q4_0"] if quick else ["q4_0", "q8_0", "bf16", "q4_k", "q6_k"]
        self.run([*base, "--shapes", ",".join(f"llama-3-8b:{kind}:4" for kind in kinds), "-n", 16, "-r", min(rounds, 2)], measured=False)
        if not quick:
            self.run([*base, "-m", DEFAULT_MODEL, "-p", "8192", "-n", 32, "-t", 2, "-r", 1], measured=False)

    def types(self):
        for kind in ["q4_0"] if self.options.quick else TYPES:
            self.decode(f"types-{kind}", ("llama-3-8b", kind, 4), "--methods", "dense", "-t", "1,2", "-p", 16, "-n", 16)

    def pop(self):
        # `pop` and `pop+` want other layouts of the weights, so they run apart, each beside dense in that layout.
        for name, method in (("rows", "pop"), ("columns", "pop+")):
            methods = f"dense,{method}:0.2,{method}:0.4"
            self.decode(f"pop-default-{name}", DEFAULT_MODEL, "--methods", methods, "-t", 2, "-n", 64)
            for kind in ["q4_0"] if self.options.quick else ["bf16", "q8_0", "q4_0", "q4_k"]:
                self.decode(f"pop-llama-2-7b-{kind}-{name}", ("llama-2-7b", kind, 4), "--methods", methods, "-t", 2, "-p", 32, "-n", 48,
                            "--rounds", 1 if self.options.quick else 3)

    def context(self):
        lengths = "128,1024,4096,8192"
        self.decode("context-default", DEFAULT_MODEL, "--methods", "dense", "-t", 2, "--context", lengths, "-n", 32)
        if not self.options.quick:
            self.decode("context-llama-3-8b-q4_0", ("llama-3-8b", "q4_0", 4), "--methods", "dense", "-t", 2, "--context", lengths, "-n", 16)

    def batch(self):
        sizes = "1,8" if self.options.quick else "1,2,4,8,10,16"
        self.decode("batch-default", DEFAULT_MODEL, "--methods", "dense,pop:0.2,pop:0.4", "-t", 2, "--batch", sizes, "-p", 32, "-n", 32,
                    "--rounds", 2)

    def ratio(self):
        ratios = "0.2,0.4" if self.options.quick else "0.1,0.2,0.3,0.4,0.5,0.6"
        self.decode("ratio-llama-2-7b-q4_0", ("llama-2-7b", "q4_0", 4), "--methods", "dense,pop", "--ratios", ratios, "-t", "1,2",
                    "-p", 16, "-n", 32, "--rounds", 2)

    def paper(self):
        """The paper's run. `pop+` runs on the columns of the weights, apart, beside dense in that layout. A batch of 10 on 8 of the 32
        layers; its partitions one per sequence, then shared."""
        quick, run = self.options.quick, ["-t", 2, "-p", 128, "-n", 128]
        whole, part, rounds = ("llama-2-7b", "q4_0", 2 if quick else 32), ("llama-2-7b", "q4_0", 2 if quick else 8), 1 if quick else 3
        few = "dense,pop:0.2,pop:0.4"
        self.decode("paper-q4_0", whole, "--methods", few if quick else PAPER_METHODS, *run, "--rounds", rounds)
        self.decode("paper-q4_0-batch10", part, "--methods", few, *run, "--batch", 10, "--rounds", 1)
        self.decode("paper-q4_0-batch10-shared", part, "--methods", few, *run, "--batch", 10, "--partition", "shared", "--rounds", 1)
        if not quick:
            self.decode("paper-q4_0-plus", whole, "--methods", PAPER_PLUS, *run, "--rounds", rounds)
            self.decode("paper-bf16", ("llama-2-7b", "bf16", 8), "--methods", few, *run, "--rounds", rounds)
            self.decode("paper-bf16-plus", ("llama-2-7b", "bf16", 8), "--methods", PAPER_PLUS, *run, "--rounds", rounds)

    def moe(self):
        csv, systems = RESULTS / "moe_peers.csv", RESULTS / "moe_peers_systems.csv"
        for path in (csv, systems):
            path.unlink(missing_ok=True)
        mixtures, rounds = MIXTURES[:1] if self.options.quick else MIXTURES, 1 if self.options.quick else 3
        for shape, layers in mixtures:
            self.run([*self.compare(csv, systems), "--shapes", f"{shape}:q4_0:{layers}", "-t", 2, "-n", 32, "-r", rounds], measured=False)
        for shape, layers in [*mixtures, *([] if self.options.quick else BESIDE_MIXTURES)]:
            for name, method in (("rows", "pop"), ("columns", "pop+")):
                self.decode(f"moe-{shape}-{name}", (shape, "q4_0", layers), "--methods", f"dense,{method}:0.2,{method}:0.4", "-t", 2,
                            "-p", 128, "-n", 48, "--rounds", rounds)

    def kernels(self):
        filters = ["dot/q4_0"] if self.options.quick else [""]
        for text in filters:
            self.run([self.options.pop, "bench", "kernels", "--filter", text or "4096", "--csv", RESULTS / "kernels.csv"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few types and rounds: some minutes, to see that all of it works")
    parser.add_argument("--only", default=",".join(SETS), help=f"sets, separated by commas: {','.join(SETS)}")
    parser.add_argument("--pop", default=str(ROOT / "build" / "pop"))
    parser.add_argument("--ik", help="llama-bench of ik_llama.cpp")
    parser.add_argument("--venv", type=pathlib.Path, default=ROOT / "build" / "venv-peers", help="Python environment of llama.cpp")
    parser.add_argument("--scratch", default=tempfile.gettempdir(), help="folder for model files, 5 GB")
    parser.add_argument("--wrap", type=shlex.split, default=[], help="command put before each measured process")
    options = parser.parse_args()
    unknown = [name for name in options.only.split(",") if name not in SETS]
    if unknown:
        parser.error(f"--only: expected {', '.join(SETS)}; found {', '.join(unknown)}")
    if shutil.disk_usage(options.scratch).free < 8e9:
        parser.error(f"--scratch: {options.scratch} has less than 8 GB free")
    RESULTS.mkdir(exist_ok=True)
    runner = Runner(options)
    for name in options.only.split(","):
        runner.say(f"== {name}")
        before = time.time()
        getattr(runner, name)()
        runner.say(f"== {name}: {time.time() - before:.0f} s")
    python = options.venv / "bin" / "python"
    runner.run([python if python.exists() else sys.executable, HERE / "tables.py", *(["--plots"] if python.exists() else [])], measured=False)
    if runner.failed:
        sys.exit("failed:\n  " + "\n  ".join(runner.failed))


if __name__ == "__main__":
    main()
