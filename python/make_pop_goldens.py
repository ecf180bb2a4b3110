#!/usr/bin/env python3
"""Makes the goldens of pruning (tests/goldens/pop-*.json) with the NumPy reference: partitions, thresholds, log-probabilities.

Needs numpy and gguf, and tokenizers for the default model's prompts (python/requirements-goldens.txt).
"""

import argparse
import sys

import numpy as np

import golden_file
import pop_cases
from pop_cases import DECODED, GOLDENS, PROMPTS, pr

NEAR_CHOICE = 1e-4        # relative

# Written for this purpose; what is decoded is its own continuation.
TEXT = """The old library stood at the corner of the market square, between the baker and a shop that sold nothing but clocks. Its \
doors were made of dark oak, and on winter mornings the children of the village would press their hands against the wood to feel whether \
the stove inside had been lit. Nobody remembered who had built it. Some said that a merchant, returning rich from the southern islands, had \
wanted to be remembered for something other than pepper; others said that it had been a chapel first, and that the shelves had come later, \
one by one, as the pews were carried away for firewood in the hungry years. What everybody agreed on was that the librarian, Mrs. Harrow, \
knew every book in it. In 1987 she counted them: 14,302 volumes, of which 611 were about the sea. She kept a list in a green notebook, and \
whenever a book was lent she drew a thin line under its title; when it came back, she drew a second one. "A book with two lines," she used to \
say, "has seen the world and returned to tell us about it." The children found this funny until they were old enough to understand it. One \
evening in March, after the rain had stopped, a stranger came in with a parcel under his arm. He did not ask for a book. He put the parcel on \
the table, took off his hat, and said that he had come to return something which his grandfather had borrowed. Mrs. Harrow opened the green \
notebook, turned to the very first page, and found a title with a single line beneath it. She looked at the stranger for a long time, and then \
she smiled and went to fetch the ink. The book was small and heavy, bound in red leather, and smelled faintly of salt."""


def classes(part):
    """Two bits per channel: 0 P, 1 C, 2 R, 3 so near a border that either side is right; four channels to a byte, low bits first."""
    f = len(part.scores)
    kind = np.full(f, 0, dtype=np.uint8)
    kind[part.candidate], kind[part.retained] = 1, 2
    kind[pop_cases.near_borders(part)] = 3
    kind = np.concatenate([kind, np.zeros(-f % 4, dtype=np.uint8)]).reshape(-1, 4)
    return kind[:, 0] | kind[:, 1] << 2 | kind[:, 2] << 4 | kind[:, 3] << 6


def undecided(method, layer, site, t):
    """Whether another rounding could have chosen otherwise for decoded token t."""
    rows = method.rows[layer, site]
    if rows is not None:                              # of an expert: those of its rows
        if t not in rows:
            return False
        t = int(np.flatnonzero(rows == t)[0])
    scores, keep = method.scores[layer, site][t], method.chosen[layer, site][t]
    if isinstance(method, pr.PopPlus):
        tau = method.tau[pr.layer_of(layer), site]
        return bool((np.abs(scores - tau) <= NEAR_CHOICE * tau).any())
    candidate = method.partitions[layer].candidate
    lead = pop_cases.lead_of_outsiders(scores, candidate[keep[candidate]], candidate[~keep[candidate]])
    both = keep[candidate].any() and not keep[candidate].all()
    return bool(both and lead >= -NEAR_CHOICE)


def sure_tokens(method):
    """How many decoded tokens run before the first that is undecided."""
    gap = method.model.gap                            # of the routers, in the decode that was just run
    return next((t for t in range(DECODED) if gap[t] < NEAR_CHOICE or any(undecided(method, *key, t) for key in method.scores)),
                DECODED)


def make(name, prompts):
    model = pr.Llama(pop_cases.model_path(name))
    arrays, cases = {}, []
    for n, ids in prompts.items():
        arrays[f"{n}/ids"] = ("i32", ids)
        prompt = pop_cases.Prefilled(model, ids[:n])

        def logprobs(method):
            logits = np.concatenate([prompt.logits[-1:], prompt.decode(ids[n:], method)])[:DECODED]
            return pr.log_softmax(logits)[np.arange(DECODED), ids[n:]]

        arrays[f"{n}/dense/logprobs"] = ("f32", logprobs(pr.Dense(model)))
        for case in pop_cases.grid([n]):
            method = prompt.show(case.reference(model))
            arrays[f"{case.name}/logprobs"] = ("f32", logprobs(method))
            about = {"name": case.name, "prompt": n, "method": case.method, "ratio": case.ratio}
            layers = range(len(model.layers))
            places = [place for i in layers for place in model.places(i)]
            if case.method == "pop":
                arrays[f"{case.name}/classes"] = ("u8", np.stack([classes(method.partition_of(i)) for i in places]))
                part = method.partition_of(places[0])
                about |= {"gamma": case.gamma, "metric": case.metric, "norm": case.full_norm, "ffn_sparsity": part.p,
                          "kept": part.kept, "retained": len(part.retained), "candidate": len(part.candidate),
                          "pruned": len(part.pruned)}
            else:
                prompt.show(pr.Dense(model))          # the model knows again which of its rows went where
                low_high = pop_cases.tau_range(model, prompt.seen, method.levels)
                arrays[f"{case.name}/tau"] = ("f32", [[method.tau[i, s] for s in pr.SITES] for i in layers])
                arrays[f"{case.name}/tau_range"] = ("f32", [[low_high[i, s] for s in pr.SITES] for i in layers])
                about["selected_share"] = float(np.average(
                    [keep.mean() for keep in method.chosen.values()],
                    weights=[len(keep) * sum(model.matrices(i)[w].size for w in pr.SITE_WEIGHTS[s])
                             for (i, s), keep in method.chosen.items()]))
            about["sure_tokens"] = sure_tokens(method)
            cases.append(about)
            print(about, file=sys.stderr)
    about = {"model": name, "decoded": DECODED, "prompts": list(prompts), "layers": len(model.layers), "inner": model.inner,
             "sites": list(pr.SITES), "cases": cases}
    golden_file.write(GOLDENS / pop_cases.golden_name(name), about, arrays)


def prompts_of(name):
    """Ids of each prompt with its 32 decoded tokens; the shorter ones start elsewhere in the text."""
    start = {1: 40, 7: 100, 64: 200, 300: 0}
    if name == pop_cases.DEFAULT_MODEL:
        import vocabulary

        ids = vocabulary.tokenizer(pop_cases.model_path(name)).encode(TEXT).ids
    else:
        ids = list(TEXT.encode())                     # a tiny model's token is a byte
    assert len(ids) >= 300 + DECODED, len(ids)
    return {n: ids[start[n]:start[n] + n + DECODED] for n in PROMPTS}


def main():
    names = [*pop_cases.TINY_MODELS, *pop_cases.EXPERT_MODELS, pop_cases.DEFAULT_MODEL]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=names, action="append")
    for name in parser.parse_args().only or names:
        make(name, prompts_of(name))


if __name__ == "__main__":
    main()
