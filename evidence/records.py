"""Results as rows of CSV: made from what `pop eval` prints, kept in evidence/results, compared. Intervals over windows."""
import csv
import functools
import json
import pathlib
import random

FOLDER = pathlib.Path(__file__).resolve().parent / "results"

IDENTITY = ["set", "text", "method", "calibration", "bits", "options", "ratio", "context", "decode", "windows"]
READ = ["weights_read_share", "block_weights_read_share", "selected_share", "weight_bytes_per_token"]
SOURCE = ["isa", "activations", "layout", "version", "model_sha256", "text_sha256", "calibration_sha256", "command"]
KL = ["kl", "kl_low", "kl_high", "same_top", "same_top_low", "same_top_high", "ln_ppl_ratio", "ln_ppl_ratio_low", "ln_ppl_ratio_high",
      "ppl_dense", "ppl_pruned", "positions", "equal_tokens", "by_window"]
MC = ["acc", "acc_low", "acc_high", "acc_norm", "difference", "difference_low", "difference_high", "right_to_wrong", "wrong_to_right",
      "mcnemar_p", "by_item"]
FIELDS = {"kl": [*IDENTITY, *KL, *READ, *SOURCE], "tasks": [*IDENTITY, *MC, *READ, *SOURCE]}
TOLERANCE = 1e-6  # between runs with the same instruction set


def file_of(row):
    return "tasks" if row["set"] == "tasks" else "kl"


def key(row):
    return tuple(str(row[name]) for name in IDENTITY if name != "windows")


def number(value):
    """As text, all digits that matter."""
    return "" if value is None else f"{value:.9g}" if isinstance(value, float) else str(value)


def read_items(path):
    with open(path, encoding="utf-8") as file:
        return sorted((json.loads(line) for line in file), key=lambda line: line["doc_id"])


def row(run, ratio, result, items, hashes):
    """One result of a run as a row; `items` are the lines of its per-item file, `hashes` of the files that its command names."""
    out = {"set": run.set, "text": run.text, "method": run.method, "calibration": run.calibration, "bits": run.bits,
           "options": " ".join(run.options), "ratio": ratio, "context": run.context if run.kind == "kl" else "",
           "decode": run.decode if run.kind == "kl" else "", "windows": run.windows}
    items = items[:run.windows]
    if run.kind == "kl":
        for name in ("kl", "same_top", "ln_ppl_ratio"):
            out[name] = result[name]["mean"]
            out[f"{name}_low"], out[f"{name}_high"] = result[name]["ci95"]
        out["ppl_dense"], out["ppl_pruned"] = result["ppl_dense"], result["ppl_pruned"]
        out["positions"] = " ".join(f"{part['from']}-{part['to']}:{part['kl']:.6g}" for part in result["by_position"])
        if "first_divergence" in result:
            first = result["first_divergence"]
            out["equal_tokens"] = f"{first['median']:g} {first['quartiles'][0]:g} {first['quartiles'][1]:g} {first['never']} {first['generated']}"
        out["by_window"] = " ".join(f"{item['kl']:.9g}" for item in items)
    else:
        out["acc"], (out["acc_low"], out["acc_high"]) = result["acc"], result["ci95"]
        out["acc_norm"] = result["acc_norm"]
        out["by_item"] = "".join(str(int(item["acc"])) for item in items)
    out.update({name: result[name] for name in [*READ, "isa", "activations", "layout", "version", "model_sha256"]})
    out["text_sha256"], out["calibration_sha256"] = hashes["{text}"], hashes.get("{calibration}", "")
    out["command"] = "pop " + " ".join(run.command())
    return {name: number(value) for name, value in out.items()}


def comparison(result):
    low, high = result["ci95"]
    return {name: number(value) for name, value in {
        "difference": result["mean_difference"], "difference_low": low, "difference_high": high,
        "right_to_wrong": result["flips"]["right_to_wrong"], "wrong_to_right": result["flips"]["wrong_to_right"],
        "mcnemar_p": result["mcnemar_p"]}.items()}


def read(folder):
    rows = []
    for name in FIELDS:
        path = pathlib.Path(folder) / f"{name}.csv"
        if path.exists():
            with open(path, newline="", encoding="utf-8") as file:
                rows += csv.DictReader(file)
    return rows


def write(folder, rows):
    """Rows replace those of the same key; the others stay, in their order."""
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    merged = {key(line): line for line in read(folder)}
    merged.update((key(line), line) for line in rows)
    for name, fields in FIELDS.items():
        lines = [line for line in merged.values() if file_of(line) == name]
        if not lines:
            continue
        with open(pathlib.Path(folder) / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fields, restval="", lineterminator="\n", extrasaction="ignore")
            writer.writeheader()
            writer.writerows(lines)


def values(row):
    """What a row was the mean of: KL by window, or scores by item."""
    return [float(value) for value in (row["by_window"].split() if file_of(row) == "kl" else row["by_item"])]


def uncommitted(found, committed):
    """The rows that nothing committed stands beside: they are new, not wrong."""
    known = {key(row) for row in committed}
    return [row for row in found if key(row) not in known]


def differences(found, committed):
    """A line for every row that is not what was committed; compared over the windows (items) that both have."""
    known, out = {key(row): row for row in committed}, []
    for row in found:
        name = " ".join(part for part in key(row) if part)
        other = known.get(key(row))
        if other is None:
            continue
        ours, theirs = values(row), values(other)
        n = min(len(ours), len(theirs))
        if row["isa"] == other["isa"]:
            far = max(abs(a - b) / max(1.0, abs(b)) for a, b in zip(ours[:n], theirs[:n]))
            if far > TOLERANCE:
                out.append(f"{name}: differs by {far:.3g} from the committed result ({row['isa']}, {n} windows or items)")
            continue
        mean, theirs_mean = sum(ours[:n]) / n, sum(theirs[:n]) / n
        low, high = (float(other[f"{'kl' if file_of(row) == 'kl' else 'acc'}_{end}"]) for end in ("low", "high"))
        if abs(mean - theirs_mean) > (high - low) / 2:
            out.append(f"{name}: {mean:.6g} with {row['isa']}, {theirs_mean:.6g} with {other['isa']}: more than half the interval apart")
    return out


@functools.lru_cache(maxsize=None)
def draws(n, count=10000, seed=1):
    """Places of `count` samples of n out of n."""
    source = random.Random(seed)
    return [source.choices(range(n), k=n) for _ in range(count)]


def interval(differences_):
    """Mean of paired differences and its 95 % interval: windows drawn again, 10,000 times, fixed seed."""
    n = len(differences_)
    means = sorted(sum(differences_[i] for i in places) / n for places in draws(n))
    return sum(differences_) / n, means[round(0.025 * (len(means) - 1))], means[round(0.975 * (len(means) - 1))]
