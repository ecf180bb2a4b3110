#!/usr/bin/env python3
"""Makes the quality tables of README.md and docs/ from evidence/results, and their plots.

  evidence/tables.py            writes the tables between their markers
  evidence/tables.py --check    fails if a table is not what the CSV files say
  evidence/tables.py --plots    the plots too (needs matplotlib)

A table stands between <!-- evidence:NAME --> and <!-- /evidence:NAME -->. Names are the functions of TABLES.
"""
import argparse
import pathlib
import sys

import plan
import records

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "bench"))  # after this folder: both have plots.py
import documents  # noqa: E402

DOCUMENTS = ["README.md", "docs/results.md", "docs/results-tables.md"]
TEXT_NAMES = {"wikitext2": "WikiText-2", "code": "code", "gsm8k": "GSM8K", "man7": "man pages, section 7"}
SOURCES = {"": "", "development": " (dev)", "in-domain": " (in)", "task": " (task)"}
ORDER = ["full", "pop+", "wina", "teal", "cats", "pop", "fixed", "griffin", "probe", "tyr", "flap", "wanda_sp", "task-fixed", "random", "magnitude"]


def pick(lines, **wanted):
    return [line for line in lines if all(line[name] == str(value) for name, value in wanted.items())]


def ratio_of(line):
    return float(line["ratio"])


def digits(value):
    """Three figures that matter, and no exponent."""
    value = float(value)
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}" if abs(value) >= 0.01 else f"{value:.4f}"


def with_interval(line, name, form=digits):
    return f"{form(line[name])} [{form(line[name + '_low'])}, {form(line[name + '_high'])}]"


def better(lines):
    """Of runs that differ in the calibration text alone, the one with the least KL, per method, text and ratio."""
    best = {}
    for line in lines:
        name = (line["text"], line["method"], line["ratio"])
        if name not in best or float(line["kl"]) < float(best[name]["kl"]):
            best[name] = line
    return list(best.values())


def methods_of(lines):
    return [method for method in ORDER if pick(lines, method=method)]


def name_of(line):
    return f"`{line['method']}`{SOURCES[line['calibration']]}"


def main_table(lines, text):
    some = better(pick(lines, set="main", text=text))
    if not some:
        return None
    table = [["method", "used, 0.2", "read, 0.2", *(f"KL, {ratio:g}" for ratio in plan.RATIOS), "same top, 0.2", "0.4"]]
    for method in methods_of(some):
        mine = {ratio_of(line): line for line in pick(some, method=method)}
        at = mine.get(0.2)
        sources = {line["calibration"] for line in mine.values()}
        label = name_of(next(iter(mine.values()))) if len(sources) == 1 else f"`{method}`"
        cells = [label, f"{float(at['selected_share']):.3f}" if at else "-", f"{float(at['block_weights_read_share']):.3f}" if at else "-"]
        for ratio in plan.RATIOS:
            mark = SOURCES[mine[ratio]["calibration"]] if ratio in mine and len(sources) > 1 else ""
            cells.append(with_interval(mine[ratio], "kl") + mark if ratio in mine else "-")
        cells += [f"{100 * float(mine[ratio]['same_top']):.0f} %" if ratio in mine else "-" for ratio in (0.2, 0.4)]
        table.append(cells)
    return table


def every_figure(lines):
    """All rows of the main set, both calibrations."""
    some = pick(lines, set="main")
    if not some:
        return None
    table = [["text", "method", "ratio", "used", "read", "KL", "same top, %", "ln PPL ratio"]]
    percent = lambda value: f"{100 * float(value):.1f}"
    for text in plan.TEXTS:
        for method in methods_of(some):
            for line in pick(some, text=text, method=method):
                table.append([TEXT_NAMES[text], name_of(line), line["ratio"], f"{float(line['selected_share']):.3f}",
                              f"{float(line['block_weights_read_share']):.3f}", with_interval(line, "kl"),
                              with_interval(line, "same_top", percent), with_interval(line, "ln_ppl_ratio")])
    return table


EQUAL_RATIO = {0.2: 0.2, 0.4: 0.4, **dict(zip(plan.AS_MANY, (0.2, 0.4))), **dict(zip(plan.WIDE, (0.2, 0.4)))}


def pooled(lines, name):
    """Mean over texts of equally many windows."""
    return sum(float(line[name]) for line in lines) / len(lines)


def equal_lines(lines):
    """{(method, label, text): line} for each ratio of pop."""
    out = {0.2: {}, 0.4: {}}
    for line in pick(lines, set="equal"):
        gamma = f", gamma {line['options'].split()[1]}" if line["options"].startswith("--gamma") else ""
        out[EQUAL_RATIO[ratio_of(line)]][line["method"], name_of(line) + gamma, line["text"]] = line
    for line in pick(lines, set="main"):
        if line["method"] in ("pop", "full") and ratio_of(line) in out:
            out[ratio_of(line)][line["method"], name_of(line), line["text"]] = line
    return out


WIDE_POP = "`pop`, gamma 0.8"


def paired(one, other):
    """Differences of KL by window over the texts that both have: other - one."""
    out = []
    for a, b in zip(one, other):
        values_a, values_b = records.values(a), records.values(b)
        n = min(len(values_a), len(values_b))
        out += [y - x for x, y in zip(values_a[:n], values_b[:n])]
    return out


def equal_table(lines, ratio):
    """A row per method and calibration text; the last columns pair windows with those of pop at its default gamma and at a wide one."""
    found = equal_lines(lines)[ratio]
    if not any(label == "`pop`" for _, label, _ in found):
        return None
    table = [["method", "used", "read", *(f"KL, {TEXT_NAMES[text]}" for text in plan.TEXTS), "KL less pop's", "less that of gamma 0.8"]]
    names = sorted({(method, label) for method, label, _ in found}, key=lambda name: (ORDER.index(name[0]), name[1]))
    for method, label in names:
        texts = [text for text in plan.TEXTS if (method, label, text) in found and ("pop", "`pop`", text) in found]
        mine = [found[method, label, text] for text in texts]
        cells = [label] + [f"{pooled(mine, name):.3f}" for name in ("selected_share", "block_weights_read_share")]
        cells += [digits(found[method, label, text]["kl"]) if text in texts else "-" for text in plan.TEXTS]
        for other in ("`pop`", WIDE_POP):
            both = [text for text in texts if ("pop", other, text) in found]
            differences = paired([found["pop", other, text] for text in both], [found[method, label, text] for text in both])
            cells.append("{:+.3f} [{:+.3f}, {:+.3f}]".format(*records.interval(differences)) if differences and label != other else "-")
        table.append(cells)
    return table


README_METHODS = ["full", "pop+", "teal", "wina", "pop", "fixed", "probe", "flap", "wanda_sp", "random"]


def readme_table(lines):
    """The methods of the paper, ours, and baselines, over all texts together."""
    some = better(pick(lines, set="main"))
    table = [["method", "0.2: used", "KL", "same top", "0.4: used", "KL", "same top"]]
    for method in README_METHODS:
        cells = [f"`{method}`"]
        for ratio in (0.2, 0.4):
            mine = [line for line in pick(some, method=method) if ratio_of(line) == ratio]
            if len(mine) == len(plan.TEXTS):
                windows_ = [value for line in mine for value in records.values(line)]
                cells += [f"{pooled(mine, 'selected_share'):.3f}", "{} [{}, {}]".format(*map(digits, records.interval(windows_))),
                          f"{100 * pooled(mine, 'same_top'):.0f} %"]
        if len(cells) == len(table[0]):
            table.append(cells)
    return table if len(table) > 1 else None


def readme_words(lines):
    """What pop+ loses of what pop loses, over all texts."""
    some = pick(lines, set="main")
    shares, reads = [], []
    for ratio in (0.2, 0.4):
        plus, pop = ([line for line in pick(some, method=method) if ratio_of(line) == ratio] for method in ("pop+", "pop"))
        if len(plus) != len(plan.TEXTS) or len(pop) != len(plan.TEXTS):
            return None
        shares.append(f"1/{pooled(pop, 'kl') / pooled(plus, 'kl'):.0f}")
        read = pooled(plus, "block_weights_read_share") / pooled(pop, "block_weights_read_share") - 1
        reads.append(f"{abs(100 * read):.1f} % {'more' if read > 0 else 'fewer'}")
    return (f"At ratio 0.2 `pop+` loses {shares[0]} of what `pop` loses, at 0.4 {shares[1]}. It uses fewer weights, and reads {reads[0]} and "
            f"{reads[1]} bytes of this file's blocks, whose scales cannot be skipped.")


def by_option(lines, name, label):
    """A row per setting of `pop` on the development text."""
    some = pick(lines, set=name)
    if not some:
        return None
    table = [[label, "0.2: used", "read", "KL", "0.4: used", "read", "KL"]]
    for method, options in sorted({(line["method"], line["options"]) for line in some}, key=lambda row: (row[0] != "pop", row[1])):
        cells = [options.replace("--", "") if options else f"`{method}`"]
        for ratio in (0.2, 0.4):
            line = next((line for line in pick(some, method=method, options=options) if ratio_of(line) == ratio), None)
            cells += [f"{float(line['selected_share']):.3f}", f"{float(line['block_weights_read_share']):.3f}", with_interval(line, "kl")] if line else ["-"] * 3
        table.append(cells)
    return table


def gamma_equal_table(lines):
    """Widths of the candidate region at equal weights; differences to gamma 0.1, windows paired."""
    some = pick(lines, set="gamma-equal")
    if not some:
        return None
    table = [["gamma", *(cell for ratio in (0.2, 0.4) for cell in ("used", "read", "KL", f"less that of 0.1, {ratio:g}"))]]
    columns = {gamma: sorted(pick(some, options=f"--gamma {gamma:g}"), key=ratio_of) for gamma in sorted(plan.EQUAL_GAMMAS)}
    for gamma, mine in columns.items():
        if not mine:
            continue
        cells = [f"{gamma:g}"]
        for line, base in zip(mine, columns[0.1]):
            cells += [f"{float(line['selected_share']):.3f}", f"{float(line['block_weights_read_share']):.3f}", with_interval(line, "kl"),
                      "-" if gamma == 0.1 else "{:+.3f} [{:+.3f}, {:+.3f}]".format(*records.interval(paired([base], [line])))]
        table.append(cells)
    return table


def prompt_table(lines):
    some = pick(lines, set="prompt")
    if not some:
        return None
    table = [["prompt tokens", "`pop`: used", "KL", "`pop+`: used", "KL"]]
    for length in plan.PROMPTS:
        cells = [str(length)]
        for method in ("pop", "pop+"):
            found = pick(some, method=method, context=length)
            cells += [f"{float(found[0]['selected_share']):.3f}", with_interval(found[0], "kl")] if found else ["-", "-"]
        table.append(cells)
    return table


def position_table(lines):
    some = pick(lines, set="long")
    if not some:
        return None
    ranges = [part.split(":")[0] for part in some[0]["positions"].split()]
    table = [["method", "ratio", *(f"KL, tokens {name}" for name in ranges), "equal tokens: median", "quartiles"]]
    for method in methods_of(some):
        for line in pick(some, method=method):
            parts = dict(part.split(":") for part in line["positions"].split())
            median, low, high, never, generated = line["equal_tokens"].split()
            table.append([f"`{method}`", line["ratio"], *(digits(parts[name]) for name in ranges), f"{median} of {generated}",
                          f"{low}, {high}" + (f"; {never} never" if never != "0" else "")])
    return table


def refresh_table(lines):
    """Long answers: KL by decode position, and all windows paired with the same method that never decides anew."""
    some = pick(lines, set="refresh")
    if not some:
        return None
    ranges = [part.split(":")[0] for part in some[0]["positions"].split()]
    table = [["method", "ratio", "every", "last", "KL", *(f"tokens {name}" for name in ranges), "less than never"]]
    for method in methods_of(some):
        for ratio in (0.2, 0.4):
            mine = [line for line in pick(some, method=method) if ratio_of(line) == ratio]
            for line in mine:
                words, never = line["options"].split(), pick(mine, options="")
                parts = dict(part.split(":") for part in line["positions"].split())
                less = "{:+.3f} [{:+.3f}, {:+.3f}]".format(*records.interval(paired(never, [line]))) if words and never else "-"
                table.append([f"`{method}`", line["ratio"], *((words[1], words[3]) if words else ("never", "-")), with_interval(line, "kl"),
                              *(digits(parts[name]) for name in ranges), less])
    return table


def bits_table(lines):
    some = pick(lines, set="bits") + [line for line in pick(lines, set="main", text="wikitext2") if line["method"] in ("pop", "pop+")]
    if not pick(some, set="bits"):
        return None
    table = [["weights", "method", "ratio", "MB per token", "KL", "same top"]]
    for line in sorted(some, key=lambda line: float(line["weight_bytes_per_token"])):
        table.append([line["bits"] or "q4_1 (the file)", f"`{line['method']}`", line["ratio"] or "0",
                      f"{float(line['weight_bytes_per_token']) / 1e6:.1f}", with_interval(line, "kl"), f"{100 * float(line['same_top']):.0f} %"])
    return table


def tasks_table(lines):
    some = pick(lines, set="tasks")
    tasks = [task for task in plan.TASKS if pick(some, text=task)]
    if not tasks:
        return None
    table = [["method", "ratio", *tasks]]
    for ratio in ("", "0.2", "0.4"):
        for method in ["dense", *ORDER]:
            cells = []
            for task in tasks:
                found = pick(some, text=task, method=method, ratio=ratio)
                cells.append("-" if not found else f"{100 * float(found[0]['acc']):.1f}" if not found[0]["difference"] else
                             "{:.1f} ({:+.1f} [{:+.1f}, {:+.1f}])".format(*(100 * float(found[0][name]) for name in
                                                                           ("acc", "difference", "difference_low", "difference_high"))))
            if set(cells) != {"-"}:
                table.append([f"`{method}`", ratio or "-", *cells])
    return table


def windows(lines):
    """How much was measured, in a sentence."""
    some = pick(lines, set="main")
    if not some:
        return None
    counts = sorted({int(line["windows"]) for line in some})
    isas = " or ".join(sorted({line["isa"] for line in some}))
    return (f"{' or '.join(map(str, counts))} windows of {plan.CONTEXT} + {plan.DECODE} tokens of each text, {isas}, activations "
            f"{some[0]['activations']}, [95 % interval over windows]; made again by `scripts/reproduce`.")


TABLES = {**{f"main_{text}": (lambda lines, text=text: main_table(lines, text)) for text in plan.TEXTS},
          "equal_0.2": lambda lines: equal_table(lines, 0.2), "equal_0.4": lambda lines: equal_table(lines, 0.4),
          "every_figure": every_figure, "readme": readme_table, "readme_words": readme_words, "gamma": lambda lines: by_option(lines, "gamma", "gamma"),
          "gamma_equal": gamma_equal_table, "metric": lambda lines: by_option(lines, "metric", "metric and norm"), "prompt": prompt_table, "long": position_table,
          "refresh": refresh_table, "bits": bits_table, "tasks": tasks_table, "windows": windows}


PLOTS = {"kl_methods": "KL over the weights read, all methods", "kl_positions": "KL by decode position", "kl_bits": "fewer bits or fewer weights"}


def plot_line(name):
    """What stands at the marker of a plot that was drawn."""
    return f"![{PLOTS[name]}](plots/{name}.svg)" if (ROOT / "docs" / "plots" / f"{name}.svg").exists() else None


TABLES.update({f"plot_{name}": lambda lines, name=name: plot_line(name) for name in PLOTS})


def all_of_it(lines):
    return {name: make(lines) for name, make in TABLES.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--plots", action="store_true")
    chosen = parser.parse_args()
    lines = records.read(records.FOLDER)
    if chosen.plots:
        import plots
        plots.draw_all(ROOT / "docs" / "plots", lines)
    documents.update([ROOT / name for name in DOCUMENTS], "evidence", all_of_it(lines), chosen.check)


if __name__ == "__main__":
    main()
