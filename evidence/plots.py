"""Plots of docs/results.md from evidence/results: small SVG and PNG files, one idea each. Called by tables.py --plots."""
import plan
import records
import tables
from figures import figure, save

COLORS = {"pop": "#c0392b", "pop+": "#8e44ad", "full": "#444444", "fixed": "#e08e79", "random": "#aaaaaa"}


def methods(folder, lines):
    """KL over the weights read, mean of the texts."""
    some = tables.better(tables.pick(lines, set="main"))
    if not some:
        return
    plot, axes = figure("KL from dense over the weights that are read, mean of four texts", "share of the blocks' weight bytes read", "KL, nats per token", height=3.8)
    for method in tables.methods_of(some):
        points = []
        for ratio in plan.RATIOS:
            mine = [line for line in tables.pick(some, method=method) if float(line["ratio"]) == ratio]
            if len(mine) == len(plan.TEXTS):
                points.append([sum(float(line[name]) for line in mine) / len(mine) for name in ("block_weights_read_share", "kl")])
        if points:
            axes.plot(*zip(*sorted(points)), marker="o", markersize=3, linewidth=1.4 if method in COLORS else 0.8, label=method, color=COLORS.get(method))
    axes.set_yscale("log")
    axes.legend(fontsize=7, ncol=3)
    save(plot, folder, "kl_methods", png=True)


def positions(folder, lines):
    some = [line for line in tables.pick(lines, set="long") if float(line["ratio"]) == 0.2]
    if not some:
        return
    plot, axes = figure("KL by decode position, ratio 0.2", "decoded token", "KL, nats per token", height=3.8)
    for line in some:
        parts = [part.split(":") for part in line["positions"].split()]
        places = [sum(map(int, name.split("-"))) / 2 for name, _ in parts]
        axes.plot(places, [float(value) for _, value in parts], marker="o", markersize=3, label=line["method"], color=COLORS.get(line["method"]))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.legend(fontsize=8)
    save(plot, folder, "kl_positions", png=True)


def bits(folder, lines):
    some = tables.pick(lines, set="bits")
    if not some:
        return
    some += [line for line in tables.pick(lines, set="main", text="wikitext2") if line["method"] in ("pop", "pop+")]
    plot, axes = figure("Fewer bits or fewer weights: KL from the Q4_1 file", "MB of weights per token", "KL, nats per token", height=3.8)
    for method in ("dense", "pop", "pop+"):
        mine = tables.pick(some, method=method)
        points = [(float(line["weight_bytes_per_token"]) / 1e6, float(line["kl"]), line["bits"] or line["ratio"]) for line in mine]
        axes.scatter([x for x, _, _ in points], [y for _, y, _ in points], s=12, label=method, color=COLORS.get(method, "#2c6fbb"))
        for x, y, name in points:
            axes.annotate(name, (x, y), fontsize=6, xytext=(3, 2), textcoords="offset points")
    axes.set_yscale("log")
    axes.legend(fontsize=8)
    save(plot, folder, "kl_bits", png=True)


def draw_all(folder, lines=None):
    lines = records.read(records.FOLDER) if lines is None else lines
    for draw in (methods, positions, bits):
        draw(folder, lines)
