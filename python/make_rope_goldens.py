#!/usr/bin/env python3
"""Frequencies of rotary positions as Hugging Face transformers computes them, for every kind and every field that changes one.

Usage: make_rope_goldens.py OUT.json     needs transformers 4 (of torch); written as tests/goldens/rope.json
Each case: the fields of config.json, the context, `inverse_frequencies` and the factor that cos and sin are multiplied by.
"""
import json
import sys

import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

BASE = dict(architectures=["LlamaForCausalLM"], num_hidden_layers=1, hidden_size=64, intermediate_size=96, vocab_size=100,
            num_attention_heads=4, max_position_embeddings=128, rms_norm_eps=1e-5)
SHORT, LONG = [1.0, 1.05, 1.1, 1.2, 1.4, 1.7, 2.0, 2.5], [1.0, 1.5, 3.0, 6.0, 12.0, 20.0, 40.0, 64.0]
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)


def longrope(**more):
    scaling = dict(rope_type="longrope", short_factor=SHORT, long_factor=LONG, **more)
    return dict(rope_scaling=scaling, original_max_position_embeddings=32)


CASES = [
    dict(),
    dict(rope_theta=500000.0, head_dim=24),
    dict(rope_scaling=dict(rope_type="linear", factor=2.0)),
    dict(rope_scaling=dict(rope_type="dynamic", factor=4.0)),
    dict(rope_scaling=LLAMA3, rope_theta=500000.0),
    dict(rope_scaling=LLAMA3),
    dict(rope_scaling=dict(LLAMA3, factor=32.0, low_freq_factor=0.5, high_freq_factor=2.0, original_max_position_embeddings=64)),
    dict(rope_scaling=YARN),
    dict(rope_scaling=YARN, rope_theta=1000000.0, head_dim=32),
    dict(rope_scaling=dict(YARN, factor=1.0, original_max_position_embeddings=128)),
    dict(rope_scaling=dict(YARN, attention_factor=1.25)),
    dict(rope_scaling=dict(YARN, attention_factor=1.0)),
    dict(rope_scaling=dict(YARN, mscale=0.707, mscale_all_dim=1.0)),
    dict(rope_scaling=dict(YARN, mscale=2.0, mscale_all_dim=2.0)),
    dict(rope_scaling=dict(YARN, mscale=2.0)),
    dict(rope_scaling=dict(YARN, attention_factor=0.9, mscale=2.0, mscale_all_dim=1.0)),
    dict(rope_scaling=dict(YARN, beta_fast=16.0, beta_slow=2.0)),
    longrope(),
    longrope(attention_factor=1.5),
]


def golden(fields, context):
    config = transformers.LlamaConfig(**json.loads(json.dumps({**BASE, **fields})))
    kind = (fields.get("rope_scaling") or {}).get("rope_type", "default")
    if kind == "default":
        dim = config.head_dim
        frequencies, factor = 1.0 / config.rope_theta ** (torch.arange(0, dim, 2, dtype=torch.int64).float() / dim), 1.0
    else:
        frequencies, factor = ROPE_INIT_FUNCTIONS[kind](config, "cpu", seq_len=context)
    return dict(config={**BASE, **fields}, context=context, inverse_frequencies=[float(f) for f in frequencies], factor=float(factor))


def main():
    cases = []
    for fields in CASES:
        kind = (fields.get("rope_scaling") or {}).get("rope_type")
        cases += [golden(fields, context) for context in ((32, 33) if kind == "longrope" else (128,))]
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        json.dump(dict(transformers=transformers.__version__, cases=cases), out, indent=1)
        out.write("\n")


if __name__ == "__main__":
    main()
