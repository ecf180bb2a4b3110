#!/usr/bin/env python3
"""Stands in for `pop score` so that check_pop.py can be tested: the reference itself, in float64, dumping in the engine's format.

`--sabotage KIND` makes one small mistake; check_pop.py must see each of them.
"""

import argparse
import json
import sys

import numpy as np

from pop_cases import Case, pr

SABOTAGE = ("score-metric", "p-returns", "swap-choice", "swap-partition", "no-sqrt", "tau", "count-position-0", "one-column", "logits",
            "share", "drop-token")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["score"])
    parser.add_argument("-m", dest="model")
    parser.add_argument("--ids")
    parser.add_argument("--split", type=int)
    parser.add_argument("--prune")
    parser.add_argument("--ratio", type=float)
    parser.add_argument("--gamma", type=float, default=0.1)
    parser.add_argument("--metric", default="down")
    parser.add_argument("--norm", default="")
    parser.add_argument("--prefill", default="dense")
    parser.add_argument("--sabotage", choices=SABOTAGE)
    for name in ("--activations", "--kv", "--bos", "--dump-partition", "--dump-logits"):
        parser.add_argument(name)
    parser.add_argument("--json", action="store_true")
    o = parser.parse_args()
    model = pr.Llama(o.model, np.float64)
    ids = [int(i) for i in o.ids.split(",")]
    case = Case(o.split, o.prune, o.ratio, o.gamma, o.metric, o.norm, o.prefill)
    method = case.reference(model)
    columns = o.prune == "pop+"
    if o.sabotage == "score-metric":
        method.norm = "1" if method.norm != "1" else "2"
    if o.sabotage == "count-position-0":
        plain = method.observe
        method.observe = lambda site, layer, x: plain(site, layer, np.concatenate([x[:1], x]) if len(x) > 1 else x)
    logits = run(model, ids, o, method)
    lines, share = dump(model, o, method, columns)
    if o.sabotage == "logits":
        logits[-2] += np.linspace(0, 0.01, logits.shape[1])
    if o.sabotage == "drop-token":
        lines = [line for line in lines if line.get("token") != len(ids) - 1]
    logprobs = pr.log_softmax(logits[:-1])[np.arange(len(ids) - 1), ids[1:]]
    with open(o.dump_partition, "w") as out:
        out.writelines(json.dumps(line) + "\n" for line in lines)
    np.save(o.dump_logits, logits.astype(np.float32))
    json.dump({"method": o.prune, "logprobs": [None, *logprobs], "selected_share": share + (1e-3 if o.sabotage == "share" else 0)},
              sys.stdout)


def run(model, ids, o, method):
    """Logits of all positions: most sabotage happens between prompt and decode."""
    cache = pr.Cache()
    logits = [model.forward(ids[:o.split], cache, method.observe)]
    if o.sabotage == "tau":
        key = len(model.layers) - 1, "down"
        method.tau[key] *= 1 + 2e-3
    if o.sabotage in ("swap-partition", "no-sqrt"):
        part = method.partitions[0]
        if o.sabotage == "no-sqrt":                    # ranks by the wrong score
            part = pr.partition(part.scores ** 2 * np.linspace(1, 1.5, len(part.scores)), method.p, method.gamma)
        else:
            part.retained[0], part.pruned[0] = part.pruned[0], part.retained[0]
            part.retained.sort(), part.pruned.sort()
        method.partitions[0] = part
    plain = method.select

    def select(site, layer, x):
        keep = plain(site, layer, x)
        if keep is None or layer != 0 or site != "down":
            return keep
        if o.sabotage == "one-column":
            keep[3, np.flatnonzero(keep[3])[0]] = False
        if o.sabotage == "p-returns":
            keep[3, method.partitions[0].pruned[0]] = True
            keep[3, method.partitions[0].retained[0]] = False
        if o.sabotage == "swap-choice":
            candidate = method.partitions[0].candidate
            inside, outside = candidate[keep[3, candidate]], candidate[~keep[3, candidate]]
            scores = method.scores[0, "down"][3]
            keep[3, inside[scores[inside].argmax()]], keep[3, outside[scores[outside].argmin()]] = False, True
        return keep

    method.select = select
    logits.append(model.forward(ids[o.split:], cache, method.select))
    return np.concatenate(logits)


def dump(model, o, method, columns):
    """The lines of --dump-partition, and selected_share."""
    lines, used, total = [], 0.0, 0.0
    for layer, weights in enumerate(model.layers):
        if columns:
            for site in pr.SITES:
                lines.append({"seq": 0, "layer": layer, "site": site, "v": method.levels[site], "tau": method.tau[layer, site],
                              "counted": int(method.counts[layer, site].sum())})
        else:
            part = method.partitions[layer]
            lines.append({"seq": 0, "layer": layer, "expert": 0, "p": part.p, "gamma": part.gamma, "R": part.retained.tolist(),
                          "C": part.candidate.tolist(), "P": part.pruned.tolist(), "scores": part.scores.tolist()})
        for site, names in pr.SITE_WEIGHTS.items():
            size = sum(weights[n].size for n in names)
            kept = method.chosen[layer, site].mean() if (layer, site) in method.chosen else 1.0
            if site == "gate_up" and not columns:
                kept = (len(part.retained) + len(part.candidate)) / model.inner
            used, total = used + size * kept, total + size
            for t, row in enumerate(method.chosen.get((layer, site), [])):
                line = {"seq": 0, "token": o.split + t, "layer": layer, "chosen": np.flatnonzero(row).tolist()}
                lines.append(line | ({"site": site} if columns else {}))
    return lines, used / total


if __name__ == "__main__":
    main()
