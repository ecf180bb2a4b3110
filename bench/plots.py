"""Plots of docs/performance.md from bench/results/*.csv: small SVG files, one idea each. Called by tables.py --plots."""
import os

import rows
import tables
from figures import figure, save

COLORS = {"pop": "#c0392b", "llama.cpp": "#2c6fbb", "ik_llama.cpp": "#6aa84f", "dense": "#444444", "pop+": "#8e44ad"}


def number(line, key):
    return float(line[key]) if line.get(key) not in ("", None) else None


def decode(folder):
    lines = [line for line in tables.read("types-*.csv")]
    if not lines:
        return
    plot, axes = figure("Dense decode against the memory's own rate", "", "share of the roof, %")
    kinds = list(dict.fromkeys(line["file"].rsplit("-", 1)[-1] for line in lines))
    for i, threads in enumerate(("1", "2")):
        shares = [next((100 * number(line, "share_of_roof") for line in lines if line["threads"] == threads and
                        line["file"].endswith("-" + kind)), 0) for kind in kinds]
        axes.bar([k + 0.4 * i - 0.2 for k in range(len(kinds))], shares, 0.38, label=f"{threads} thread{'s' if i else ''}")
    axes.set_xticks(range(len(kinds)), kinds, fontsize=8)
    axes.axhline(100, color="black", linewidth=0.8)
    axes.legend(fontsize=8)
    save(plot, folder, "decode")


def peers(folder):
    lines = [line for line in tables.read("peers*.csv") if "systems" not in line["file"]]
    lines = [line for line in lines if line["batch"] == "1" and line["threads"] == "2"]
    for kind, title in (("tg", "Decode"), ("pp", "Prefill")):
        groups = rows.group([line for line in lines if line["test"].startswith(kind)], ["model", "type", "test"])
        if not groups:
            continue
        plot, axes = figure(f"{title}, 2 threads, the same files: speed over llama.cpp's", "", "times llama.cpp")
        names = []
        for at, ((model, weights, test), some) in enumerate(groups.items()):
            names.append(f"{'SmolLM2' if model.startswith('SmolLM2') else model}\n{weights} {test}")
            rate = {}
            for engine in ("pop", "llama.cpp", "ik_llama.cpp"):
                found = [float(line["tokens_per_s"]) for line in some if line["engine"] == engine]
                if found:
                    rate[engine] = rows.spread(found)[0]
            if "llama.cpp" not in rate:
                continue
            for i, engine in enumerate(("llama.cpp", "ik_llama.cpp", "pop")):
                if engine in rate:
                    axes.bar(at + 0.27 * (i - 1), rate[engine] / rate["llama.cpp"], 0.25, color=COLORS[engine],
                             label=engine if at == 0 else None)
        axes.set_xticks(range(len(names)), names, fontsize=6, rotation=45, ha="right")
        axes.axhline(1, color="black", linewidth=0.8)
        axes.legend(fontsize=8)
        save(plot, folder, f"peers_{title.lower()}", png=True)


def lines_over(folder, pattern, name, title, x, key, y, value, keys):
    """One curve per group of `keys`."""
    lines = tables.read(pattern)
    if not lines:
        return
    plot, axes = figure(title, x, y)
    for group, some in rows.group(lines, keys).items():
        points = sorted((float(line[key]), value(line)) for line in some if value(line) is not None)
        axes.plot(*zip(*points), marker="o", markersize=3, label=" ".join(str(part) for part in group))
    axes.legend(fontsize=7)
    save(plot, folder, name)


def draw_all(folder):
    decode(folder)
    peers(folder)
    lines_over(folder, "context-*.csv", "context", "Decode at long contexts", "positions in the cache", "context", "share of the roof, %",
               lambda line: 100 * number(line, "share_of_roof"), ["file", "threads", "method"])
    lines_over(folder, "batch-*.csv", "batch", "Several sequences at once", "sequences", "batch", "tokens/s of all together",
               lambda line: number(line, "decode_tokens_per_s"), ["file", "method", "ratio"])
    for line_key, name, title in (("speedup", "ratio", "What pruning gains over dense"), ):
        lines_over(folder, "ratio-*.csv", name, title, "ratio", "ratio", "times dense",
                   lambda line: 1.0 if line["method"] == "dense" else number(line, line_key), ["file", "method", "threads"])
    for path in folder.glob("*"):
        if os.path.getsize(path) > 200_000:
            raise SystemExit(f"{path}: {os.path.getsize(path)} bytes, expected at most 200000")
