#!/usr/bin/env python3
"""Writes tests/tokenizer/goldens/sentencepiece/: small models trained here, and what the `sentencepiece` library makes of the texts.

Usage: make_sentencepiece_goldens.py     needs: pip install sentencepiece
  NAME.model   a model of each kind (KINDS), trained on the texts of the goldens
  ids.json     per model and document: its ids, and the first 16 digits of the SHA-256 of what they decode to
"""
import hashlib
import json
import os

import sentencepiece

import texts
from make_goldens import compact

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "goldens", "sentencepiece")
# A charsmap of few rules, as precompiled as nmt_nfkc's: some make more characters, some fewer, some none.
RULES = {"\u00e9": "e\u0301", "\u0041": "a", "\u0042": "b", "\u3000": " ", "\u00a0": " ", "\u2126": "\u03c9", "\u0009": " ", "\u000a": " ",
         "\u0301\u0301": "\u0301", "\u0001": "", "\ufb01": "fi", "\u0022\u0022": "\u201c", "\uac00\u11a8": "\uac01"}
LOSSLESS = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}
KINDS = {
    "llama": LOSSLESS | {"model_type": "bpe", "byte_fallback": True, "control_symbols": ["[INST]", "[/INST]"],
                         "user_defined_symbols": ["<tool_call>", "</tool_call>", "im_end", "\u2581\u2581\u2581"]},
    "bpe_bare": LOSSLESS | {"model_type": "bpe", "add_dummy_prefix": False},
    "bpe_rules": {"model_type": "bpe", "user_defined_symbols": ["AB", "<tool_call>"], "rules": True},
    "unigram": {"model_type": "unigram", "user_defined_symbols": ["AB", "<tool_call>", "</tool_call>"], "rules": True},
    "unigram_bytes": LOSSLESS | {"model_type": "unigram", "byte_fallback": True},
}


def train(name, kind, documents):
    kind = dict(kind)
    prefix = os.path.join(FOLDER, name)
    if kind.pop("rules", False):
        with open(prefix + ".tsv", "w", encoding="utf-8") as file:
            for source, target in RULES.items():
                file.write(" ".join(f"{ord(c):X}" for c in source) + "\t" + " ".join(f"{ord(c):X}" for c in target) + "\n")
        kind["normalization_rule_tsv"] = prefix + ".tsv"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([t for t in documents if "\0" not in t]), model_prefix=prefix, vocab_size=1100, character_coverage=0.98,
        num_threads=1, minloglevel=2, hard_vocab_limit=False, self_test_sample_size=0, **kind)
    for ending in (".vocab", ".tsv"):
        if os.path.exists(prefix + ending):
            os.remove(prefix + ending)


def main():
    os.makedirs(FOLDER, exist_ok=True)
    documents, out = texts.documents(), {}
    for name, kind in KINDS.items():
        train(name, kind, documents)
        model = sentencepiece.SentencePieceProcessor(model_file=os.path.join(FOLDER, name + ".model"))
        ids = [model.encode(text) for text in documents]
        out[name] = {"ids": compact(ids), "texts": [hashlib.sha256(model.decode(i).encode()).hexdigest()[:16] for i in ids]}
    with open(os.path.join(FOLDER, "ids.json"), "w", encoding="utf-8") as file:
        json.dump(out, file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
