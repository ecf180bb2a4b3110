#!/usr/bin/env python3
"""Makes the tables of README.md and docs/performance.md, and the plots of docs/, from the CSV files in bench/results/.

  bench/tables.py            writes the tables between their markers
  bench/tables.py --check    fails if a table is not what the CSV files say
  bench/tables.py --plots    the plots too (needs matplotlib)

A table stands between <!-- bench:NAME --> and <!-- /bench:NAME -->. Names are the functions of TABLES.
"""
import argparse
import glob
import os
import pathlib
import statistics

import documents
import rows

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
DOCUMENTS = ["README.md", "docs/performance.md"]


def read(pattern, folder=RESULTS):
    """Lines of all CSV files of that pattern; `file` says which."""
    lines = []
    for path in sorted(glob.glob(str(folder / pattern))):
        lines += [dict(line, file=os.path.basename(path).removesuffix(".csv")) for line in rows.read_csv(path)]
    return lines


def number(line, key, form, factor=1.0):
    value = line.get(key, "")
    return form.format(factor * float(value)) if value not in ("", None) else "-"


def model_name(line):
    """'synthetic llama-2-7b q4_0, 8 layers, seed 1' without what every line says."""
    name = line["model"].removeprefix("synthetic ").split(", seed")[0]
    return name if name else line["type"]


def method_name(line):
    return "dense" if line["method"] == "dense" else f"`{line['method']}` {float(line['ratio']):g}"


def peers(folder=RESULTS):
    lines = [line for line in read("peers*.csv", folder) if "systems" not in line["file"]]
    return rows.peers_table([line for line in lines if line["batch"] == "1" and int(line["prompt"]) <= 512]) if lines else None


def peers_batch(folder=RESULTS):
    lines = [line for line in read("peers*.csv", folder) if "systems" not in line["file"]]
    lines = [line for line in lines if line["batch"] != "1" or int(line["prompt"]) > 512]
    return rows.peers_table(lines) if lines else None


def systems(folder=RESULTS):
    lines = read("peers_systems*.csv", folder)
    if not lines:
        return None
    last = {line["engine"]: line for line in lines if line["version"]}
    return [["engine", "version", "its own line about the system"]] + [
        [line["engine"], line["version"], line["system"].replace("|", ",")] for line in last.values()]


def moe_peers(folder=RESULTS):
    lines = read("moe_peers.csv", folder)
    return rows.peers_table(lines) if lines else None


def machine(folder=RESULTS, peers="peers", pop="pop"):
    """When, on what, with which commands."""
    lines = read(f"{peers}.csv", folder)
    if not lines:
        return None
    isa = next((line["isa"] for line in read(f"{pop}-*.csv", folder)), "")
    lacking = [line for line in read(f"{peers}_systems*.csv", folder) if line["engine"] == "llama.cpp" and line["system"]]
    note = " llama.cpp was compiled without AMX, which would make it faster (docs/performance.md)." if lacking and "amx" in isa and "AMX" not in lacking[-1]["system"] else ""
    days = sorted({line["date"].split()[0] for line in lines})
    return (f"Measured {' and '.join(dict.fromkeys((days[0], days[-1])))} on two cores of a virtual machine ({lines[0]['cpu']}{', ' + isa if isa else ''}) by "
            "`bench/compare_peers.py` and `pop bench` (all of it: `scripts/bench`); medians of interleaved rounds, ratios with their extremes." + note)


def speed_rows(lines):
    table = [["model", "method", "layout", "threads", "tokens/s", "spread", "MB/token", "GB/s", "of roof", "gain", "byte-ideal", "reached",
              "without candidates", "over the faster dense", ""]]
    for line in lines:
        dense = max((float(other["decode_tokens_per_s"]) for other in lines if other["method"] == "dense" and
                     (other["model"], other["threads"]) == (line["model"], line["threads"])), default=0)
        over = f"{float(line['decode_tokens_per_s']) / dense:.2f}x" if dense and line["method"] != "dense" else "-"
        bytes_read = float(line["weight_bytes_per_token"]) + float(line["kv_bytes_per_token"])
        table.append([model_name(line), method_name(line), line["layout"], line["threads"], number(line, "decode_tokens_per_s", "{:.1f}"),
                      number(line, "spread", "{:.0f}%", 100), f"{bytes_read / 1e6:.0f}", number(line, "read_gbps", "{:.1f}"),
                      number(line, "share_of_roof", "{:.0f}%", 100), number(line, "speedup", "{:.2f}x"),
                      number(line, "byte_ideal", "{:.2f}x"), number(line, "share_of_ideal", "{:.2f}"),
                      number(line, "share_of_ideal_without_candidates", "{:.2f}"), over, line["mark"]])
    return table


def decode(folder=RESULTS):
    lines = read("types-*.csv", folder)
    if not lines:
        return None
    table = [["weights", "model", "1 thread: tokens/s", "GB/s", "of roof", "2 threads: tokens/s", "GB/s", "of roof"]]
    for (model, kind), some in rows.group(lines, ["model", "file"]).items():
        by_threads = {line["threads"]: line for line in some}
        cells = [kind.rsplit("-", 1)[-1], model_name(some[0])]
        for threads in ("1", "2"):
            line = by_threads.get(threads, {})
            cells += [number(line, "decode_tokens_per_s", "{:.1f}"), number(line, "read_gbps", "{:.1f}"),
                      number(line, "share_of_roof", "{:.0f}%", 100) + (f" ({line['mark']})" if line.get("mark") else "")]
        table.append(cells)
    return table


def pop(folder=RESULTS):
    lines = read("pop-*.csv", folder)
    return speed_rows(lines) if lines else None


def moe(folder=RESULTS):
    """As `pop`, and what the ratio comes to for a token's experts and for all."""
    lines = read("moe-*.csv", folder)
    if not lines:
        return None
    table = speed_rows(lines)
    realised = [["left out of a token's blocks", "of all"]] + [
        ["-", "-"] if line["method"] == "dense" else [number(line, f"realised_ratio_{of}", "{:.3f}") for of in ("active", "blocks")]
        for line in lines]
    return [row[:3] + more + row[3:] for row, more in zip(table, realised)]


def kernels(folder=RESULTS):
    """What a token's and a prompt's products reach, a row for each type of weights and of activations."""
    lines = read("kernels.csv", folder)
    if not lines:
        return None
    found = {}
    for line in lines:
        kernel, weights, activations = line["kernel"].split("/")[:3]
        rate = "GB/s" if line["of"] == "roof" else "Gop/s"
        found.setdefault((weights, activations), {})[kernel] = f"{float(line[rate]):.0f} ({line['share']})" + ("*" if line[""] else "")
    names = ["dot", "axpy", "gemm", "gemm_columns"]
    return [["weights", "activations", "`dot`: GB/s (of roof)", "`axpy`", "`gemm`: Gop/s (of peak)", "`gemm_columns`"],
            *([*key, *(cells.get(name, "-") for name in names)] for key, cells in found.items())]


def paper(folder=RESULTS):
    lines = read("paper-*.csv", folder)
    if not lines:
        return None
    table = [["model", "batch", "partition", "method", "prefill s", "partition s", "of it packing", "decode s", "all s", "gain, all", "gain, decode",
              "byte-ideal"]]
    for line in lines:
        whose = "-" if line["method"] == "dense" else "shared" if line["file"].endswith("-shared") else "own"
        table.append([model_name(line), line["batch"], whose, method_name(line), number(line, "prefill_s", "{:.2f}"),
                      number(line, "partition_s", "{:.3f}"), number(line, "pack_s", "{:.3f}"), number(line, "decode_s", "{:.2f}"),
                      number(line, "total_s", "{:.2f}"), number(line, "total_speedup", "{:.2f}x"), number(line, "speedup", "{:.2f}x"),
                      number(line, "byte_ideal", "{:.2f}x")])
    return table


def context(folder=RESULTS):
    lines = read("context-*.csv", folder)
    if not lines:
        return None
    table = [["model", "positions", "tokens/s", "MB/token weights", "cache", "GB/s", "of roof", "time added", "over cache bytes / roof"]]
    for some in rows.group(lines, ["model", "method", "ratio"]).values():
        first = min(some, key=lambda line: int(line["context"]))
        for line in some:
            added = 1 / float(line["decode_tokens_per_s"]) - 1 / float(first["decode_tokens_per_s"])
            bare = (float(line["kv_bytes_per_token"]) - float(first["kv_bytes_per_token"])) / (float(line["roof_gbps"]) * 1e9)
            table.append([model_name(line), line["context"], number(line, "decode_tokens_per_s", "{:.1f}"),
                          number(line, "weight_bytes_per_token", "{:.0f}", 1e-6), number(line, "kv_bytes_per_token", "{:.1f}", 1e-6),
                          number(line, "read_gbps", "{:.1f}"), number(line, "share_of_roof", "{:.0f}%", 100),
                          f"{1e3 * added:.2f} ms", f"{added / bare:.2f}" if bare > 0 else "-"])
    return table


def batch(folder=RESULTS):
    lines = read("batch-*.csv", folder)
    if not lines:
        return None
    sizes = sorted({int(line["batch"]) for line in lines})
    table = [["model", "method", *(f"N = {n}" for n in sizes)]]
    for some in rows.group(lines, ["model", "method", "ratio"]).values():
        rates = {int(line["batch"]): float(line["decode_tokens_per_s"]) for line in some}
        gains = {int(line["batch"]): line["speedup"] for line in some}
        cells = [model_name(some[0]), method_name(some[0])]
        for n in sizes:
            gain = f", {float(gains[n]):.2f}x of dense" if gains.get(n) else ""
            cells.append(f"{rates[n]:.0f} ({rates[n] / rates[1]:.1f}x{gain})" if n in rates and 1 in rates else "-")
        table.append(cells)
    return table


def line_fit(points):
    """Least squares: (slope, intercept) of y over x."""
    mean_x, mean_y = statistics.mean(x for x, _ in points), statistics.mean(y for _, y in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
    return slope, mean_y - slope * mean_x


def bandwidth_model(lines):
    """Per number of threads: a token takes fixed + bytes / rate; fitted over the ratios of `pop`. {threads: (rate, fixed)}"""
    found = {}
    for (threads,), some in rows.group(lines, ["threads"]).items():
        points = [(float(line["weight_bytes_per_token"]) + float(line["kv_bytes_per_token"]), 1 / float(line["decode_tokens_per_s"]))
                  for line in some if line["method"] in ("dense", "pop")]
        if len(points) >= 3:
            slope, fixed = line_fit(points)
            found[int(threads)] = (1 / slope, fixed)
    return found


def model(folder=RESULTS):
    lines = read("ratio-*.csv", folder)
    table = [["model", "threads", "rate of the fit, GB/s", "roof, GB/s", "fixed part, ms", "dense, tokens/s", "predicted from 1 thread",
              "8x bandwidth: dense", "`pop` 0.4 gain now", "there"]]
    for some in rows.group(lines, ["file"]).values():
        fits = bandwidth_model(some)
        for threads, (rate, fixed) in sorted(fits.items()):
            mine = [line for line in some if int(line["threads"]) == threads]
            dense = next(line for line in mine if line["method"] == "dense")
            roof = statistics.median(float(line["roof_gbps"]) for line in mine)
            size = float(dense["weight_bytes_per_token"]) + float(dense["kv_bytes_per_token"])
            predicted = "-"
            if threads != 1 and 1 in fits:
                # The one thread's share of its roof and fixed part, at this number of threads' roof.
                one_roof = statistics.median(float(line["roof_gbps"]) for line in some if line["threads"] == "1")
                share = fits[1][0] / (one_roof * 1e9)
                predicted = f"{1 / (size / (share * roof * 1e9) + fits[1][1]):.1f}"
            later = lambda b: b / (8 * rate) + fixed
            pruned = [line for line in mine if line["method"] == "pop" and abs(float(line["ratio"]) - 0.4) < 1e-6]
            gains = ["-", "-"]
            if pruned:
                small = float(pruned[0]["weight_bytes_per_token"]) + float(pruned[0]["kv_bytes_per_token"])
                gains = [number(pruned[0], "speedup", "{:.2f}x"), f"{later(size) / later(small):.2f}x"]
            table.append([model_name(dense), str(threads), f"{rate / 1e9:.1f}", f"{roof:.1f}", f"{1e3 * fixed:.2f}",
                          number(dense, "decode_tokens_per_s", "{:.1f}"), predicted, f"{1 / later(size):.0f}", *gains])
    return table if len(table) > 1 else None


PLOTS = {"peers_decode": "decode beside the peers", "peers_prefill": "prefill beside the peers", "decode": "share of the roof",
         "ratio": "gain over the ratio", "context": "share of the roof over the context", "batch": "tokens per second over the sequences"}


def plot_lines():
    """What stands at the marker of each plot that was drawn."""
    return {f"plot_{name}": f"![{text}](plots/{name}.svg)" for name, text in PLOTS.items()
            if (ROOT / "docs" / "plots" / f"{name}.svg").exists()}


TABLES = {"peers": peers, "peers_batch": peers_batch, "systems": systems, "machine": machine, "decode": decode, "pop": pop, "moe_peers": moe_peers,
          "moe": moe, "moe_machine": lambda folder=RESULTS: machine(folder, "moe_peers", "moe"), "paper": paper,
          "kernels": kernels, "context": context, "batch": batch, "model": model}


def all_of_it():
    return {**{name: make() for name, make in TABLES.items()}, **plot_lines()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--plots", action="store_true")
    chosen = parser.parse_args()
    if chosen.plots:
        import plots
        plots.draw_all(ROOT / "docs" / "plots")
    documents.update([ROOT / name for name in DOCUMENTS], "bench", all_of_it(), chosen.check)


if __name__ == "__main__":
    main()
