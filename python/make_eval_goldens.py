#!/usr/bin/env python3
"""Makes tests/goldens/eval-tiny.json: what `pop eval ppl` and `pop eval mc` must find, by the NumPy reference.

Perplexities are computed from the reference's logits by the formulas of docs/results.md, multiple choice by lm-eval's rule for
where a context ends (its TemplateLM._encode_pair is asked too, if lm_eval is installed). Needs numpy and gguf; tokenizers for
the pairs of the default model.
"""

import json
import math
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))
sys.path.insert(0, str(ROOT / "python" / "reference"))
import pop_reference as pr  # noqa: E402

TINY = ROOT / "tests/goldens/tiny-q4_1.gguf"
DEFAULT = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
BOS = 256
TEXT = ("It was a grey morning, and the harbour smelled of tar. Two boats had come in during the night; a third was still out, beyond "
        "the  breakwater,\nwaiting for the tide. Nobody spoke. The caf\u00e9 by the steps had opened early, as it did on such days.\n")

# (context, continuation); the splitting rule shows in the blanks at the context's end, and with merges in what they join.
PAIRS = [("Question: why?\nAnswer:", " no"), ("The cat sat on the ", "mat."), ("Ends with a line\n", "next"), ("two  ", " three"),
         ("", " It rained."), ("caf\u00e9\u00a0", "cr\u00e8me"), ("12", "34 apples"), ("un", "believable"), ("tabs\t \t", "x"),
         ("Only\u3000", " wide"), (" lead", " ing"), ("wat", "ermelon juice"), ("inter", "nationally")]

ITEMS = [
    {"context": "Question: is water wet?\nAnswer:", "choices": ["no", "yes"], "gold": 1},
    {"context": "The boat came in ", "choices": ["at night", "before the tide", "late"], "gold": 0},
    {"context": "", "choices": ["It rained all day.", "All rained it day."], "gold": 0},
    {"contexts": ["The cup fell on the stone because the cup", "The cup fell on the stone because the stone"], "ending": "slipped.",
     "gold": 0},
    {"context": "A tie:", "choices": ["same", "same", "other words here"], "gold": 0},
    {"context": "A tie:", "choices": ["same", "same", "other words here"], "gold": 1},
    {"context": "caf\u00e9\u00a0", "choices": ["cr\u00e8me br\u00fbl\u00e9e", "noir"], "gold": 1, "cluster": "menu"},
    {"context": "menu:\n", "choices": ["th\u00e9", "caf\u00e9", "eau", "vin"], "gold": 2, "cluster": "menu"},
]


def logprobs(model, ids):
    """[T, vocabulary]: row t predicts the token after ids[t]."""
    return pr.log_softmax(model.forward(list(ids), pr.Cache(), lambda *_: None))


def split_text(context, continuation):
    """Blanks at the context's end belong to the continuation."""
    bare = context.rstrip()
    return bare, context[len(bare):] + continuation


def split_ids(encode, context, continuation, prefix):
    if not context:
        return [prefix], encode(continuation)
    context, continuation = split_text(context, continuation)
    whole, left = encode(context + continuation), encode(context)
    return left, whole[len(left):]


def perplexity(nll):
    nll = np.array(nll)
    ppl = math.exp(nll.mean())
    return {"scored": len(nll), "ppl": ppl, "se": ppl * math.sqrt(((nll ** 2).mean() - nll.mean() ** 2) / (len(nll) - 1))}


def window_nll(model, inputs, targets, first):
    rows = logprobs(model, inputs)
    return [-rows[t, targets[t]] for t in range(first, len(inputs))]


def llama(model, ids, n):
    out = []
    for i in range(len(ids) // n):
        chunk = ids[i * n:(i + 1) * n]
        out += window_nll(model, chunk[:-1], chunk[1:], n // 2)
    return perplexity(out)


def hf_chunk(model, ids, n):
    out = []
    for i in range(len(ids) // n):
        chunk = ids[i * n:(i + 1) * n]
        out += window_nll(model, chunk[:-1], chunk[1:], 0)
    return perplexity(out)


def rolling(model, ids, n, text):
    """Every token once; a window sees n tokens, of the prefix and the text."""
    out, done = [], 0
    while done < len(ids):
        count = min(n, len(ids) - done)
        end = done + count
        seen = ([BOS] + ids)[max(0, end - n):end]
        targets = ids[max(0, end - n):end]
        out += window_nll(model, seen, targets, len(seen) - count)
        done = end
    result = perplexity(out)
    assert result["scored"] == len(ids)
    import re
    result["word_ppl"] = math.exp(sum(out) / len(re.split(r"\s+", text)))
    result["byte_ppl"] = math.exp(sum(out) / len(text.encode()))
    return result


def score_item(model, item):
    encode = lambda text: list(text.encode())
    if "contexts" in item:
        pairs, lengths = [(c, " " + item["ending"]) for c in item["contexts"]], None
    else:
        pairs, lengths = [(item["context"], " " + c) for c in item["choices"]], [len(c) for c in item["choices"]]
    sums, greedy, tokens = [], [], []
    for context, continuation in pairs:
        left, right = split_ids(encode, context, continuation, BOS)
        rows = logprobs(model, (left + right)[:-1])[len(left) - 1:]
        sums.append(float(rows[np.arange(len(right)), right].sum()))
        greedy.append(bool((rows.argmax(axis=1) == right).all()))
        tokens.append(len(right))
    out = {"sums": sums, "greedy": greedy, "tokens": tokens, "acc": float(np.argmax(sums) == item["gold"])}
    if lengths:
        out["acc_norm"] = float(np.argmax(np.array(sums) / np.array(lengths)) == item["gold"])
    return out


def default_pairs():
    import vocabulary
    bpe = vocabulary.tokenizer(DEFAULT)
    encode = lambda text: bpe.encode(text).ids
    pairs = [split_ids(encode, *pair, prefix=1) for pair in PAIRS]
    try:
        from lm_eval.api.model import TemplateLM
    except ImportError:
        print("lm_eval is not installed: its own rule was not asked")
        return pairs

    class Asked:
        backend = "causal"
        tok_encode = staticmethod(lambda text, **_: encode(text))

    for (context, continuation), ours in zip(PAIRS, pairs):
        theirs = TemplateLM._encode_pair(Asked(), context, continuation) if context else ([1], encode(continuation))
        assert tuple(map(list, theirs)) == tuple(ours), (context, continuation, theirs, ours)
    return pairs


def main():
    model = pr.Llama(TINY)
    ids = list(TEXT.encode())
    body = ids[:-1]                                    # llama-perplexity leaves the last newline out
    golden = {
        "about": "python/make_eval_goldens.py; tiny-q4_1.gguf, whose ids are bytes",
        "text": TEXT,
        "llama_64": llama(model, body, 64),
        "hf_chunk_50": hf_chunk(model, ids, 50),
        "rolling_60": rolling(model, ids, 60, TEXT),
        "items": ITEMS,
        "results": [score_item(model, item) for item in ITEMS],
        "pairs": [{"context": c, "continuation": t, "context_ids": a, "continuation_ids": b}
                  for (c, t), (a, b) in zip(PAIRS, default_pairs())],
    }
    (ROOT / "tests/goldens/eval-tiny.json").write_text(json.dumps(golden, indent=1, ensure_ascii=True) + "\n")


if __name__ == "__main__":
    main()
