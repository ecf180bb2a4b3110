#!/usr/bin/env python3
"""pop beside llama.cpp, and ik_llama.cpp where its llama-bench is given: the same GGUF file, threads, prompts and contexts, in turns
(pop, llama.cpp, ik, pop, ...), one engine in memory at a time, loading not counted.

  bench/compare_peers.py -m models/SmolLM2-135M-Instruct.Q4_1.gguf
  bench/compare_peers.py --shapes llama-3-8b:q4_0:8,llama-3-8b:bf16:8 --ik ~/ik_llama.cpp/build/bin/llama-bench

Every round's figure goes to --csv (one line per engine, test and round), each engine's own line about the system to --systems, and
the table of medians of ratios to standard output. bench/tables.py makes tables and plots from the CSV.

The environment of llama.cpp (--venv, made at the first use) is apart from the project's: llama-cpp-python, compiled here from its
source with -DGGML_NATIVE=ON (or CMAKE_ARGS of the environment), AMX included where the CPU has it. Files of --shapes are written by `pop bench write` one at a time into --scratch and deleted.
"""
import argparse
import datetime
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

import rows

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
LLAMA_CPP_PYTHON = "0.3.36"
FIELDS = ["date", "cpu", "model", "type", "layers", "file_bytes", "engine", "version", "threads", "test", "prompt", "gen", "batch",
          "round", "tokens_per_s", "roof_gbps", "share_of_roof"]


def say(text):
    print(f"[{datetime.datetime.now():%H:%M:%S}] {text}", file=sys.stderr, flush=True)


# The one edit made to llama.cpp. g++ 12 declares 8 of the 64 bytes that _tile_loadconfig reads, so it drops the stores of the others
# and the first product on a CPU with AMX ends in a fault (SIGSEGV); a compiler barrier before the call keeps them.
TILE_SOURCE = "vendor/llama.cpp/ggml/src/ggml-cpu/amx/mmq.cpp"
TILE_CALL = "_tile_loadconfig(&tc);"
TILE_BARRIER = 'asm volatile("" ::: "memory"); '


def with_tile_barrier(text):
    """The text of TILE_SOURCE with the barrier before its one call."""
    found = text.count(TILE_CALL)
    if found != 1:
        raise ValueError(f"{TILE_SOURCE}: expected `{TILE_CALL}` once, found it {found} times: this version needs another look")
    return text.replace(TILE_CALL, TILE_BARRIER + TILE_CALL)


def unpack_source(archive, folder):
    """Unpacks the source archive of llama-cpp-python into the folder, puts the barrier in, returns the top of the source."""
    shutil.unpack_archive(archive, folder)
    source, = (path for path in pathlib.Path(folder).iterdir() if path.is_dir())
    edited = source / TILE_SOURCE
    edited.write_text(with_tile_barrier(edited.read_text(encoding="utf-8")), encoding="utf-8")
    return source


def make_environment(folder):
    """The Python that has llama_cpp; compiles it the first time (20 CPU minutes)."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    if subprocess.run([python, "-c", "import llama_cpp"], capture_output=True).returncode != 0:
        say(f"compiling llama-cpp-python {LLAMA_CPP_PYTHON} into {folder}")
        pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            subprocess.run([*pip, "download", "--no-deps", "--no-binary", "llama-cpp-python", "--dest", scratch,
                            f"llama-cpp-python=={LLAMA_CPP_PYTHON}"], check=True)
            archive, = pathlib.Path(scratch).glob("*.tar.gz")
            source = unpack_source(archive, pathlib.Path(scratch) / "source")
            subprocess.run([*pip, "install", source, "numpy", "matplotlib"], check=True,
                           env=dict(os.environ, CMAKE_ARGS=os.environ.get("CMAKE_ARGS", "-DGGML_NATIVE=ON")))
    return python


def run(wrap, command, text=None):
    done = subprocess.run([*wrap, *map(str, command)], input=text, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]}: exit code {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout


class Pop:
    name = "pop"

    def __init__(self, options):
        self.program, self.wrap, self.extra = options.pop, options.wrap, options.pop_options
        self.version = run([], [self.program, "--version"]).splitlines()[0].strip()
        self.system = ""

    def round(self, path, tests):
        """One process per prompt length and batch: threads in turns inside."""
        found = []
        for prompt, gen, batch in sorted({(t["prompt"], t["gen"], t["batch"]) for t in tests}):
            threads = sorted({t["threads"] for t in tests if (t["prompt"], t["gen"], t["batch"]) == (prompt, gen, batch)})
            length = ["-p", prompt] if prompt <= 512 else ["--context", prompt]
            out = json.loads(run(self.wrap, [self.program, "bench", "decode", "-m", path, *length, "-n", gen + 1, *(["--batch", batch] if batch > 1 else []),
                                             "-t", ",".join(map(str, threads)), "--methods", "dense", "--rounds", 1, "--json",
                                             *self.extra]))
            self.system = f"{out['machine']['cpu']}, {out['machine']['isa']}"
            for row in out["rows"]:
                found.append({"threads": row["threads"], "prompt": prompt, "gen": gen, "batch": batch, "decode": row["decode_tokens_per_s"],
                              "prefill": row["prefill_tokens_per_s"] if prompt <= 512 else None, "roof": row["roof_gbps"],
                              "share": row["share_of_roof"]})
        return found


class LlamaCpp:
    name = "llama.cpp"

    def __init__(self, options, python):
        self.python, self.wrap = python, options.wrap
        self.version = self.system = ""

    def round(self, path, tests):
        found = []
        for threads in sorted({t["threads"] for t in tests}):
            asked = {"model": path, "tests": [t for t in tests if t["threads"] == threads]}
            out = json.loads(run(self.wrap, [self.python, HERE / "peer_llama_cpp.py"], json.dumps(asked)))
            self.version, self.system = out["version"], out["system"]
            found += out["tests"]
        return found


class Ik:
    name = "ik_llama.cpp"

    def __init__(self, options):
        self.program, self.wrap = options.ik, options.wrap
        self.version = self.system = ""

    def round(self, path, tests):
        found = []
        for threads in sorted({t["threads"] for t in tests}):
            mine = [t for t in tests if t["threads"] == threads and t["batch"] == 1]
            if not mine:  # it has no batched decode in this program
                continue
            command = [self.program, "-m", path, "-t", threads, "-r", 1, "-fa", 1, "-rtr", 1, "-o", "json", "-n", 0,
                       "-p", ",".join(str(p) for p in sorted({t["prompt"] for t in mine if t["prompt"] <= 512}) or [0])]
            for test in mine:
                command += ["-gp", f"{test['prompt']},{test['gen']}"]
            text = run(self.wrap, command)
            out = json.loads(text[text.index("["):])
            self.version = f"commit {out[0]['build_commit']}"
            self.system = out[0].get("cpu_info", "")
            for test in mine:
                rate = {(row["n_prompt"], row["n_gen"]): row["avg_ts"] for row in out}
                found.append(dict(test, prefill=rate.get((test["prompt"], 0)), decode=rate[test["prompt"], test["gen"]]))
        return found


def lines_of(model, engine, tests, number):
    """CSV lines of one engine's round."""
    date = f"{datetime.datetime.now():%Y-%m-%d %H:%M}"
    for test in tests:
        common = dict(model, date=date, engine=engine.name, version=engine.version, threads=test["threads"], prompt=test["prompt"],
                      batch=test["batch"], round=number)
        if test["batch"] == 1 and test["prefill"] is not None:
            yield dict(common, test=f"pp{test['prompt']}", gen=0, tokens_per_s=round(test["prefill"], 3))
        yield dict(common, test=f"tg{test['gen']}@{test['prompt']}", gen=test["gen"], tokens_per_s=round(test["decode"], 3),
                   roof_gbps=test.get("roof", ""), share_of_roof=test.get("share", ""))


def models(options):
    """(path, fields) of the files, written and deleted one at a time."""
    for path in options.model:
        name = pathlib.Path(path).name.removesuffix(".gguf")
        kind = re.search(r"[.-]((?:i?q\d|bf|f)\w*)$", name, re.I)
        yield path, {"model": name, "type": kind.group(1).lower() if kind else "", "layers": "", "file_bytes": os.path.getsize(path)}
    for shape in filter(None, options.shapes.split(",")):
        name, kind, *layers = shape.split(":")
        with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
            path = os.path.join(folder, f"{name}-{kind}.gguf")
            say(f"writing {shape}")
            run([], [options.pop, "bench", "write", "--shape", name, "--type", kind, "-o", path,
                     *(["--layers", layers[0]] if layers else [])])
            yield path, {"model": name, "type": kind, "layers": layers[0] if layers else "all", "file_bytes": os.path.getsize(path)}


def tests_of(options):
    numbers = lambda text: [int(n) for n in text.split(",")]
    for threads in numbers(options.threads):
        for prompt in numbers(options.prompts):
            for batch in numbers(options.batch):
                yield {"threads": threads, "prompt": prompt, "gen": options.gen, "batch": batch}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", nargs="*", default=[], help="GGUF files")
    parser.add_argument("--shapes", default="", help="SHAPE:TYPE[:LAYERS],... of random weights")
    parser.add_argument("-t", "--threads", default="1,2")
    parser.add_argument("-p", "--prompts", default="128", help="prompt lengths; decode is measured after each (default 128)")
    parser.add_argument("-n", "--gen", type=int, default=32, help="tokens decoded (default 32)")
    parser.add_argument("--batch", default="1", help="sequences decoded together (llama.cpp and pop)")
    parser.add_argument("-r", "--rounds", type=int, default=3)
    parser.add_argument("--pop", default=str(ROOT / "build" / "pop"))
    parser.add_argument("--pop-options", type=shlex.split, default=[], help="more options for pop bench")
    parser.add_argument("--ik", help="llama-bench of ik_llama.cpp")
    parser.add_argument("--venv", type=pathlib.Path, default=ROOT / "build" / "venv-peers")
    parser.add_argument("--scratch", default=tempfile.gettempdir(), help="folder for the files of --shapes")
    parser.add_argument("--wrap", type=shlex.split, default=[], help="command put before each measured process")
    parser.add_argument("--csv", default=str(HERE / "results" / "peers.csv"))
    parser.add_argument("--systems", default=str(HERE / "results" / "peers_systems.csv"))
    parser.add_argument("--only", default="", help="engines to run, e.g. pop,llama.cpp")
    return parser.parse_args()


def main():
    options = parse()
    if not options.model and not options.shapes:
        options.model = [str(ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf")]
    engines = [Pop(options), LlamaCpp(options, make_environment(options.venv))]
    if options.ik:
        engines.append(Ik(options))
    else:
        say("ik_llama.cpp was skipped: no --ik PATH to its llama-bench")
    if options.only:
        engines = [e for e in engines if e.name in options.only.split(",")]
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo", encoding="utf-8") if line.startswith("model name")), "")
    tests, all_lines = list(tests_of(options)), []
    for path, model in models(options):
        for number in range(1, options.rounds + 1):
            for engine in engines:
                try:
                    found = engine.round(path, tests)
                except RuntimeError as error:
                    say(f"{engine.name} failed on {model['model']} {model['type']}: {error}")
                    continue
                lines = list(lines_of(dict(model, cpu=cpu), engine, found, number))
                rows.append_csv(options.csv, FIELDS, lines)
                all_lines += lines
                say(f"{model['model']} {model['type']} round {number}: {engine.name} " +
                    ", ".join(f"{line['test']} x{line['batch']} t{line['threads']} {line['tokens_per_s']:.1f}" for line in lines))
    rows.append_csv(options.systems, ["engine", "version", "system"],
                    [{"engine": e.name, "version": e.version, "system": e.system} for e in engines])
    for line in rows.markdown(rows.peers_table(all_lines)):
        print(line)


if __name__ == "__main__":
    main()
