#!/usr/bin/env python3
"""Makes tests/goldens/f8: tiny folders whose matrices are F8_E4M3 with scales, as FP8 checkpoints have them, and beside each NAME a folder
NAME-bf16 of the values that PyTorch makes of them, (float8.to(float32) * scale).to(bfloat16).

Needs torch, safetensors, numpy (python/requirements-goldens.txt).
"""

import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "goldens" / "f8"
VOCAB, WIDTH, HEADS, HEAD = 32, 40, 2, 20
FP8 = dict(quant_method="fp8", activation_scheme="dynamic", fmt="e4m3", modules_to_not_convert=["lm_head"])
COMPRESSED = dict(quant_method="compressed-tensors", format="float-quantized", quantization_status="compressed", ignore=["lm_head"],
                  config_groups=dict(group_0=dict(targets=["Linear"], weights=dict(num_bits=8, type="float", strategy="channel",
                                                                                   symmetric=True, dynamic=False))))
CASES = {
    # blocks that do not divide the matrices; scales in float32
    "blocks": dict(architectures=["LlamaForCausalLM"], model_type="llama", intermediate_size=72,
                   quantization_config=dict(FP8, weight_block_size=[16, 32])),
    # one scale for each matrix
    "matrices": dict(architectures=["Qwen2ForCausalLM"], model_type="qwen2", intermediate_size=56, quantization_config=FP8),
    # one for each row, in bfloat16; experts
    "rows": dict(architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", intermediate_size=40, moe_intermediate_size=24,
                 num_experts=3, num_experts_per_tok=2, norm_topk_prob=True, head_dim=HEAD, quantization_config=COMPRESSED),
}


def make(name, case, rng):
    config = dict(case, hidden_size=WIDTH, num_hidden_layers=1, num_attention_heads=HEADS, num_key_value_heads=1, vocab_size=VOCAB,
                  max_position_embeddings=128, rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=False, torch_dtype="bfloat16")
    stored, plain = {}, {}

    def both(tensor, value):
        stored[tensor] = plain[tensor] = torch.from_numpy(value.astype(np.float32)).to(torch.bfloat16)

    def matrix(tensor, rows, cols):
        codes = rng.integers(0, 256, (rows, cols)).astype(np.uint8)
        codes[codes & 127 == 127] = 1                                          # not a number
        f8 = torch.from_numpy(codes).view(torch.float8_e4m3fn)
        block = config["quantization_config"].get("weight_block_size")
        down, across = (-(-rows // block[0]), -(-cols // block[1])) if block else (rows, 1) if name == "rows" else (1, 1)
        scale = torch.from_numpy(rng.uniform(0.5, 2, (down, across)).astype(np.float32) / 700)
        if name == "rows":
            scale = scale.to(torch.bfloat16)
        wide = scale.to(torch.float32)
        if block:
            wide = wide.repeat_interleave(block[0], 0)[:rows].repeat_interleave(block[1], 1)[:, :cols]
        stored[tensor] = f8
        stored[tensor + ("_scale" if name == "rows" else "_scale_inv")] = scale.reshape(()) if name == "matrices" else scale
        plain[tensor] = (f8.to(torch.float32) * wide).to(torch.bfloat16)

    both("model.embed_tokens.weight", rng.normal(0, 1, (VOCAB, WIDTH)))
    both("lm_head.weight", rng.normal(0, 0.3, (VOCAB, WIDTH)))
    both("model.norm.weight", rng.normal(1, 0.1, WIDTH))
    layer = "model.layers.0."
    for norm in ("input_layernorm", "post_attention_layernorm"):
        both(f"{layer}{norm}.weight", rng.normal(1, 0.1, WIDTH))
    for part, rows in (("q", HEADS * HEAD), ("k", HEAD), ("v", HEAD)):
        matrix(f"{layer}self_attn.{part}_proj.weight", rows, WIDTH)
        if name == "matrices":
            both(f"{layer}self_attn.{part}_proj.bias", rng.normal(0, 0.1, rows))
        if name == "rows" and part != "v":
            both(f"{layer}self_attn.{part}_norm.weight", rng.normal(1, 0.1, HEAD))
    matrix(f"{layer}self_attn.o_proj.weight", WIDTH, HEADS * HEAD)
    places = [f"{layer}mlp."]
    if name == "rows":
        both(f"{layer}mlp.gate.weight", rng.normal(0, 0.3, (config["num_experts"], WIDTH)))
        places = [f"{layer}mlp.experts.{e}." for e in range(config["num_experts"])]
    inner = config.get("moe_intermediate_size", config["intermediate_size"])
    for place in places:
        matrix(f"{place}gate_proj.weight", inner, WIDTH)
        matrix(f"{place}up_proj.weight", inner, WIDTH)
        matrix(f"{place}down_proj.weight", WIDTH, inner)
    for folder, tensors in ((FOLDER / name, stored), (FOLDER / f"{name}-bf16", plain)):
        folder.mkdir(parents=True, exist_ok=True)
        save_file(tensors, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
        config.pop("quantization_config", None)


for seed, (name, case) in enumerate(CASES.items()):
    make(name, case, np.random.default_rng(seed))
