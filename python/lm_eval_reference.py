#!/usr/bin/env python3
"""Multiple choice by lm-eval's own client code over the NumPy reference, as a samples file that `pop eval compare` reads.

Usage: lm_eval_reference.py MODEL.gguf TASK.jsonl OUT.jsonl [--limit N] [--first N]

lm_eval encodes the pairs (TemplateLM.loglikelihood); the likelihoods are the reference's, float32 on the file's dequantised
weights; the decisions are numpy's argmax, as in lm_eval's process_results. Compare with

    pop eval mc -f TASK.jsonl --limit N --mode prefill --activations f32 --kv f32 --per-item OURS.jsonl
    pop eval compare OUT.jsonl OURS.jsonl

Needs numpy, gguf, tokenizers and lm_eval; neither torch nor a data set from the hub.
"""

import argparse
import hashlib
import json
import sys
from pathlib import Path

import numpy as np
from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))
sys.path.insert(0, str(ROOT / "python" / "reference"))
import pop_reference as pr  # noqa: E402
import vocabulary  # noqa: E402

BOS = 1


def nothing(*_):
    """Dense: no mask."""


class Reference(TemplateLM):
    def __init__(self, path):
        super().__init__()
        self.model = pr.Llama(path)
        self.bpe = vocabulary.tokenizer(path)
        self.seen = (None, None, None)                 # the last context: its ids, cache and last row

    @property
    def eot_token_id(self):
        return BOS

    @property
    def prefix_token_id(self):
        return BOS

    def tok_encode(self, string, add_special_tokens=None, **kwargs):
        return self.bpe.encode(string).ids

    def context(self, ids):
        if self.seen[0] != ids:
            cache = pr.Cache()
            row = pr.log_softmax(self.model.forward(ids, cache, nothing)[-1:])
            self.seen = (ids, cache, row)
        return self.seen[1].branch(), self.seen[2]

    def _loglikelihood_tokens(self, requests, disable_tqdm=False, **kwargs):
        out = []
        for _, context, continuation in requests:
            cache, rows = self.context(list(context))
            if len(continuation) > 1:
                rows = np.concatenate([rows, pr.log_softmax(self.model.forward(continuation[:-1], cache, nothing))])
            greedy = bool((rows.argmax(axis=1) == continuation).all())
            out.append((float(rows[np.arange(len(continuation)), continuation].sum()), greedy))
        return out

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        raise NotImplementedError

    def generate_until(self, requests, disable_tqdm=False):
        raise NotImplementedError


def pairs_of(header, item):
    """Requests and choices of an item of docs/data.md."""
    preamble, delimiter = header.get("preamble", ""), header.get("delimiter", " ")
    if "contexts" in item:
        return [(preamble + c, delimiter + item["ending"]) for c in item["contexts"]], None
    return [(preamble + item["context"], delimiter + c) for c in item["choices"]], item["choices"]


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


def sample(lm, number, header, item):
    pairs, choices = pairs_of(header, item)
    requests = [Instance("loglikelihood", item, pair, i) for i, pair in enumerate(pairs)]
    results = lm.loglikelihood(requests, disable_tqdm=True)
    sums = np.array([r[0] for r in results])
    scores = {"acc": float(np.argmax(sums) == item["gold"])}
    if choices:
        scores["acc_norm"] = float(np.argmax(sums / np.array([float(len(c)) for c in choices])) == item["gold"])
    return {"doc_id": number, "doc": item, "target": str(item["gold"]), "filter": "none", "metrics": list(scores),
            "resps": [[[str(a), str(b)]] for a, b in results], "filtered_resps": [[str(a), str(b)] for a, b in results],
            "prompt_hash": sha256(pairs[0][0]), **scores}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("task")
    parser.add_argument("out")
    parser.add_argument("--limit", type=int, help="items at most")
    parser.add_argument("--first", type=int, default=0, help="the first item; later ones are appended to OUT")
    args = parser.parse_args()
    lines = [json.loads(line) for line in open(args.task, encoding="utf-8") if line.strip()]
    header, items = (lines[0], lines[1:]) if "task" in lines[0] else ({}, lines)
    lm = Reference(args.model)
    with open(args.out, "a" if args.first else "w", encoding="utf-8") as out:
        for number, item in list(enumerate(items))[args.first:][:args.limit]:
            out.write(json.dumps(sample(lm, number, header, item), ensure_ascii=False) + "\n")
            out.flush()


if __name__ == "__main__":
    main()
