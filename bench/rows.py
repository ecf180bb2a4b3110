"""Rows of measurements: CSV files, medians of ratios, Markdown. Nothing here measures."""
import csv
import os
import statistics


def append_csv(path, fields, lines):
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    fresh = not os.path.exists(path) or os.path.getsize(path) == 0
    with open(path, "a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fields, restval="", lineterminator="\n")
        if fresh:
            writer.writeheader()
        writer.writerows(lines)


def read_csv(path):
    if not os.path.exists(path):
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def ratios(ours, theirs):
    """Round by round, ours over theirs: what one moment of the machine does to both cancels. Arguments: {round: rate}."""
    return [ours[n] / theirs[n] for n in sorted(ours) if n in theirs and theirs[n] > 0]


def spread(values):
    """Median, least, greatest."""
    return statistics.median(values), min(values), max(values)


def group(lines, keys):
    found = {}
    for line in lines:
        found.setdefault(tuple(str(line[k]) for k in keys), []).append(line)
    return found


PEERS = ["llama.cpp", "ik_llama.cpp"]


def peers_table(lines):
    """Header and rows: per model and test the median speed of each engine and pop's ratio to each peer with its extremes."""
    engines = ["pop"] + [p for p in PEERS if any(line["engine"] == p for line in lines)]
    table = [["model", "weights", "threads", "test", "batch", *engines, *(f"pop / {p}" for p in engines[1:]), "of roof"]]
    for (model, kind, layers, threads, test, batch), some in group(lines, ["model", "type", "layers", "threads", "test", "batch"]).items():
        rates = {e: {str(line["round"]): float(line["tokens_per_s"]) for line in some if line["engine"] == e} for e in engines}
        cells = [model if layers in ("", "all") else f"{model}, {layers} layers", kind, threads, test, batch]
        cells += [f"{statistics.median(rates[e].values()):.1f}" if rates[e] else "-" for e in engines]
        for peer in engines[1:]:
            found = ratios(rates["pop"], rates[peer])
            cells.append("{:.2f} ({:.2f}-{:.2f})".format(*spread(found)) if found else "-")
        shares = [float(line["share_of_roof"]) for line in some if line.get("share_of_roof")]
        cells.append(f"{100 * statistics.median(shares):.0f}%" if shares else "")
        table.append(cells)
    return table


def markdown(table):
    yield "| " + " | ".join(table[0]) + " |"
    yield "|" + "|".join("---" if i < 2 else "---:" for i in range(len(table[0]))) + "|"
    for row in table[1:]:
        yield "| " + " | ".join(row) + " |"
