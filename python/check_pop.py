#!/usr/bin/env python3
"""Compares the program `pop` with the NumPy reference of the method, decision by decision. Needs numpy and gguf.

  python/check_pop.py build/pop                          the tiny models, and a third of the default model's cases
  python/check_pop.py build/pop --all                    every case
  python/check_pop.py build/pop --model tiny-tied.gguf --only pop+

Of each case, with --activations f32 --kv f32:
  partition  R, C and P equal in every layer, but for members that score within 1e-5 (relative) of a border;
             of pop+: counted scores equal, tau within 5e-4 (of all that scores rounded within 1e-5 could give)
  replay     the reference applies the sets that the engine chose: all log-probabilities within 1e-3, and its own ranking
             agrees with each choice but for pairs within 1e-4 (columns: scores within 1e-4 of tau)
  free run   the reference chooses for itself: as the engine did up to the first such pair; from there on a mean KL <= 1e-3.
             Of pop+ and full that KL is only printed: what is chosen among all moves with every change before it, and two
             runs that differ in rounding alone end up apart (this reference in float32 and in float64 on the default
             model: pop+ 0.002 at ratio 0.2, 0.08 at 0.4; full 0.01 at 0.4). Up to the first such pair they must agree
  share      the engine's selected_share is what its dumped lists amount to
The last line counts what passed and failed; the exit code is 1 if anything failed.
"""

import argparse
import functools
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Before NumPy is loaded: on a busy machine the threads of its matrix product wait for each other by spinning.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import golden_file
import pop_cases
from pop_cases import DECODED, lead_of_outsiders, pr

BORDER, PAIR, TAU, LOGPROB, MEAN_KL, SAME_KL, SHARE = 1e-5, 1e-4, 5e-4, 1e-3, 1e-3, 1e-6, 1e-6


class Failure(Exception):
    """What was expected, and what the engine did."""


def require(holds, text):
    if not holds:
        raise Failure(text)


# ---------------------------------------------------------------------------------------------------------------------
# The engine's side
# ---------------------------------------------------------------------------------------------------------------------
class Engine:
    """One run of `pop score`: its JSON, its logits [tokens, vocabulary], and what it dumped."""

    def __init__(self, command, model, ids, case, extra):
        with tempfile.TemporaryDirectory() as folder:
            dump, logits = Path(folder) / "dump.jsonl", Path(folder) / "logits.npy"
            words = [*command, "score", "-m", str(model), "--ids", ",".join(map(str, ids)), "--split", str(case.prompt),
                     *case.arguments(), "--activations", "f32", "--kv", "f32", "--bos", "never", "--json",
                     "--dump-partition", str(dump), "--dump-logits", str(logits), *extra]
            done = subprocess.run(words, capture_output=True, text=True)
            require(done.returncode == 0, f"exit code {done.returncode}: {done.stderr.strip()[-400:]}")
            self.result = json.loads(done.stdout)
            self.logits = np.load(logits)
            lines = [json.loads(line) for line in dump.read_text().splitlines()]
        require(len({line["seq"] for line in lines}) == 1, "the dump of one sequence names several")
        self.partitions = {line["layer"]: line for line in lines if "R" in line}
        self.thresholds = {(line["layer"], line["site"]): line for line in lines if "tau" in line}
        chosen = [line for line in lines if "chosen" in line]
        self.tokens = sorted({line["token"] for line in chosen})
        self.chosen = {}
        for line in chosen:
            key = line["layer"], line.get("site", "down")
            rows = self.chosen.setdefault(key, {})
            require(line["token"] not in rows, f"layer {key}: token {line['token']} was chosen for twice")
            rows[line["token"]] = line["chosen"]

    def masks(self, widths):
        """chosen[layer, site]: bool [decoded tokens, width]. Of `pop` the K channels: R and what was chosen of C."""
        require(len(self.tokens) == DECODED, f"expected choices for {DECODED} tokens, found {len(self.tokens)}")
        masks = {}
        for (layer, site), rows in self.chosen.items():
            keep = np.zeros((DECODED, widths[site]), dtype=bool)
            for t, token in enumerate(self.tokens):
                require(token in rows, f"layer {layer}, {site}: no choice for token {token}")
                require(rows[token] == sorted(set(rows[token])), f"layer {layer}, {site}: chosen indices do not ascend")
                keep[t, rows[token]] = True
            masks[layer, site] = keep
        return masks


# ---------------------------------------------------------------------------------------------------------------------
# The comparisons
# ---------------------------------------------------------------------------------------------------------------------
def compare_partition(dumped, part, layer):
    """Returns how many members differ, all of them near a border."""
    near = pop_cases.near_borders(part, BORDER)
    differing = 0
    require(abs(dumped["p"] - part.p) <= 1e-6 and abs(dumped["gamma"] - part.gamma) <= 1e-6,
            f"layer {layer}: expected p {part.p}, gamma {part.gamma}, found {dumped['p']}, {dumped['gamma']}")
    for name, ours in {"R": part.retained, "C": part.candidate, "P": part.pruned}.items():
        theirs = np.asarray(dumped[name], dtype=np.int64)
        require(len(theirs) == len(ours), f"layer {layer}: expected {len(ours)} channels in {name}, found {len(theirs)}")
        difference = np.setxor1d(ours, theirs)
        require(near[difference].all(), f"layer {layer}: {name} differs in channels {difference[~near[difference]][:5]}, "
                                        f"which score farther than {BORDER} from a border")
        differing += len(difference)
    return differing


def adopt_partition(method, dumped):
    """The reference goes on with the engine's sets."""
    for layer, part in method.partitions.items():
        part.retained, part.candidate, part.pruned = (np.asarray(dumped[layer][k], dtype=np.int64) for k in "RCP")


def compare_choice(case, method, layer, site, keep, scores, tau):
    """One choice of the engine (bool [width]) under the reference's scores; returns by how much it was a matter of rounding."""
    where = f"layer {layer}, {site}"
    if case.method != "pop+":
        part = method.partitions[layer]
        require(keep.sum() == part.kept, f"{where}: expected {part.kept} channels chosen, found {keep.sum()}")
        require(keep[part.retained].all(), f"{where}: a channel of R was not used")
        require(not keep[part.pruned].any(), f"{where}: a channel of P was used")
        lead = lead_of_outsiders(scores, part.candidate[keep[part.candidate]], part.candidate[~keep[part.candidate]])
        require(lead <= PAIR, f"{where}: a channel left out scores {lead:.2e} more than one that was chosen")
        return max(lead, 0.0)
    wanted = pr.choose_columns(scores, tau, method.levels[site])
    wrong = wanted != keep
    if not wrong.any():
        return 0.0
    passing = int((scores >= tau).sum())
    least = pr.least_columns(method.levels[site], len(scores))
    if passing <= least:                               # the m best were kept: a ranking, no threshold
        lead = lead_of_outsiders(scores, np.flatnonzero(keep), np.flatnonzero(~keep))
        require(keep.sum() >= least and lead <= PAIR, f"{where}: the {least} best columns were not kept")
        return max(lead, 0.0)
    distance = float((np.abs(scores[wrong] - tau) / tau).max())
    require(distance <= PAIR, f"{where}: a column that scores {distance:.2e} (relative) from tau was "
                              f"{'kept' if keep[wrong].any() else 'skipped'}")
    return distance


def mean_kl(ours, theirs):
    """KL(reference || engine) of each row, in nats."""
    p, q = pr.log_softmax(ours), pr.log_softmax(theirs)
    return (np.exp(p) * (p - q)).sum(axis=-1)


def logprob_error(engine, logits, ids):
    expected = pr.log_softmax(logits[:-1])[np.arange(len(ids) - 1), ids[1:]]
    found = np.array(engine.result["logprobs"][1:], dtype=np.float64)
    require(len(found) == len(expected), f"expected {len(ids)} log-probabilities, found {len(found) + 1}")
    return float(np.abs(expected - found).max())


def selected_share(model, case, masks, engine):
    """Block weights used per decoded token over all, by element."""
    sizes = {site: sum(model.layers[0][w].size for w in names) for site, names in pr.SITE_WEIGHTS.items()}
    if case.method == "pop+":
        used = sum(sizes[site] * keep.mean() for (_, site), keep in masks.items()) / len(model.layers)
    else:
        rows = np.mean([len(line["R"]) + len(line["C"]) for line in engine.partitions.values()]) / model.inner
        kept = np.mean([keep.mean() for keep in masks.values()])
        used = sizes["qkv"] + sizes["o"] + sizes["gate_up"] * rows + sizes["down"] * kept
    return used / sum(sizes.values())


def first_difference(ours, theirs):
    """The first decoded token, then layer and site, at which two runs chose differently; None if nowhere."""
    for t in range(DECODED):
        for key in sorted(theirs, key=lambda k: (k[0], pr.SITES.index(k[1]))):
            if not np.array_equal(ours[key][t], theirs[key][t]):
                return t, key
    return None


def compare_free_run(case, free, masks, kl, seen):
    """`free` chose for itself; `kl` [decoded tokens] is what that made of the distributions."""
    parted = first_difference(free.chosen, masks)
    t = parted[0] if parted else DECODED
    seen["parted"] = str(t) if parted else "-"
    together, apart = kl[:t], kl[t:]
    seen["kl"] = float(apart.mean()) if parted else float(together.mean())
    worst = float(together.max(initial=0.0))
    require(worst <= SAME_KL, f"free run: KL {worst:.2e} before any choice differed")
    if not parted or case.method in ("pop+", "full"):
        return
    _, (layer, site) = parted
    if not seen["border"]:                             # with a member of another side, the pair is that of the border
        compare_choice(case, free, layer, site, masks[layer, site][t], free.scores[layer, site][t], None)
    require(seen["kl"] <= MEAN_KL, f"free run: mean KL {seen['kl']:.2e} from token {t} on")


class Reference:
    """A model and its prompts, each run once."""

    def __init__(self, path, ids):
        self.model, self.ids = pr.Llama(path), ids
        self.prefilled = functools.lru_cache(maxsize=1)(lambda n: pop_cases.Prefilled(self.model, self.ids[n][:n]))

    def run(self, case, method, adopt=None):
        """All logits [tokens, vocabulary] of the case under the method."""
        ids, n = self.ids[case.prompt], case.prompt
        if case.prefill == "pruned":
            cache = pr.Cache()
            logits = self.model.forward(ids[:n], cache, method.observe)
            decode = lambda: self.model.forward(ids[n:], cache, method.select)
        else:
            prompt = self.prefilled(n)
            prompt.show(method)
            logits, decode = prompt.logits, lambda: prompt.decode(ids[n:], method)
        if adopt:
            adopt()
        return np.concatenate([logits, decode()])


def check(reference, case, engine):
    """Raises Failure, or returns what was measured."""
    model, ids = reference.model, reference.ids[case.prompt]
    require(engine.result["method"] == case.method, f"expected method {case.method}, found {engine.result['method']}")
    require(engine.logits.shape == (len(ids), model.embedding.shape[0]),
            f"expected logits of all {len(ids)} positions, found shape {engine.logits.shape}")
    columns = case.method == "pop+"
    widths = {"qkv": model.width, "o": model.heads * model.head_width, "gate_up": model.width, "down": model.inner}
    masks = engine.masks(widths)
    layers = range(len(model.layers))
    expected = {(i, s) for i in layers for s in (pr.SITES if columns else ("down",))}
    require(set(masks) == expected, f"choices were dumped for {len(masks)} layers and sites, expected {len(expected)}")

    free = case.reference(model)
    free_logits = reference.run(case, free)
    seen = {"border": 0, "tau": 0.0}
    tau_range = pop_cases.tau_range(model, reference.prefilled(case.prompt).seen, free.levels) if columns else {}
    for layer in layers:
        if not columns:
            require(layer in engine.partitions, f"layer {layer}: no partition was dumped")
            seen["border"] += compare_partition(engine.partitions[layer], free.partitions[layer], layer)
        for site in pr.SITES if columns else ():
            require((layer, site) in engine.thresholds, f"layer {layer}, {site}: no threshold was dumped")
            line, tau = engine.thresholds[layer, site], free.tau[layer, site]
            counted = int(free.counts[layer, site].sum())
            require(line["counted"] == counted and abs(line["v"] - free.levels[site]) <= 1e-6,
                    f"layer {layer}, {site}: expected {counted} scores at level {free.levels[site]}, found {line['counted']}, {line['v']}")
            low, high = tau_range[layer, site]
            require(low * (1 - TAU) <= line["tau"] <= high * (1 + TAU),
                    f"layer {layer}, {site}: expected tau {tau}, found {line['tau']}")
            seen["tau"] = max(seen["tau"], abs(line["tau"] - tau) / tau if tau else 0.0)

    scorer = case.reference(model)
    adopt = None if columns else lambda: adopt_partition(scorer, engine.partitions)
    replay_logits = reference.run(case, pr.Replay(scorer, masks), adopt)
    seen["logprob"] = logprob_error(engine, replay_logits, ids)
    require(seen["logprob"] <= LOGPROB, f"replay: a log-probability differs by {seen['logprob']:.2e}")
    seen["pair"] = 0.0
    for (layer, site), keep in masks.items():
        tau = engine.thresholds[layer, site]["tau"] if columns else None
        for t in range(DECODED):
            rounding = compare_choice(case, scorer, layer, site, keep[t], scorer.scores[layer, site][t], tau)
            seen["pair"] = max(seen["pair"], rounding)

    compare_free_run(case, free, masks, mean_kl(free_logits[case.prompt:], engine.logits[case.prompt:]), seen)
    share = selected_share(model, case, masks, engine)
    require(abs(engine.result["selected_share"] - share) <= SHARE,
            f"selected_share: the dumped lists amount to {share:.6f}, reported is {engine.result['selected_share']}")
    return seen


# ---------------------------------------------------------------------------------------------------------------------
def check_model(name, cases, command, extra):
    """Returns how many cases passed and failed."""
    path = pop_cases.model_path(name)
    _, arrays = golden_file.read(pop_cases.GOLDENS / pop_cases.golden_name(name))
    reference = Reference(path, {n: arrays[f"{n}/ids"].tolist() for n in pop_cases.PROMPTS})
    passed = failed = 0
    for case in sorted(cases, key=lambda c: c.prompt):
        start = time.monotonic()
        try:
            engine = Engine(command, path, reference.ids[case.prompt], case, extra)
            middle = time.monotonic()
            seen = check(reference, case, engine)
            passed += 1
            print(f"ok    {name} {case.name}: near borders {seen['border']}, tau {seen['tau']:.1e}, logprob {seen['logprob']:.1e}, "
                  f"pair {seen['pair']:.1e}, parted at {seen['parted']}, KL {seen['kl']:.1e} "
                  f"({middle - start:.1f} + {time.monotonic() - middle:.1f} s)", flush=True)
        except Failure as failure:
            failed += 1
            print(f"FAIL  {name} {case.name}: {failure}", flush=True)
    return passed, failed


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pop", help="the program (a command with its arguments, as a shell would split it)")
    parser.add_argument("--model", action="append", help="a file of tests/goldens or models/; default: all that are there")
    parser.add_argument("--all", action="store_true", help="every case, not a third of them")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--extra", default="", help="further options for `pop score`")
    chosen = parser.parse_args(arguments)
    passed = failed = 0
    for name in chosen.model or [*pop_cases.TINY_MODELS, pop_cases.DEFAULT_MODEL]:
        if pop_cases.model_path(name) is None:
            if chosen.model:
                parser.error(f"{name}: expected in tests/goldens or models, found in neither")
            print(f"skip  {name}: not there")
            continue
        every = chosen.all or name in pop_cases.TINY_MODELS
        cases = pop_cases.grid() + pop_cases.extras() if every else pop_cases.subset()
        good, bad = check_model(name, [c for c in cases if chosen.only in c.name], shlex.split(chosen.pop),
                                shlex.split(chosen.extra))
        passed, failed = passed + good, failed + bad
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
