"""Tiny seeded models of every family as GGUF files, so that tests have models of every odd shape without a download.

The weights are random but of a size that makes every part matter: activations stay near 1, and attention is not flat.
"""

import gguf
import numpy as np

BASE = dict(width=64, inner=100, layers=2, heads=4, kv_heads=2, head_width=16, tied=True, theta=10000.0, epsilon=1e-5, rope=None,
            quantized=False, family="llama", window=None, moe=None, caps=None, scalar=None, rotated=1.0, clip=None)
GEMMAS = ("gemma2", "gemma3")
# Experts 1 and 3 and their rows of the router are equal, the last one is chosen by nobody.
MOE = dict(experts=6, used=2, inner=40, shared=0, dense_layers=())

def longrope(pairs, original):
    """Factors as they are published: near 1 for short texts, growing with the wave for long ones."""
    return dict(rope_type="longrope", short_factor=[round(1 + 0.07 * i, 2) for i in range(pairs)],
                long_factor=[round(1.1 + 0.9 * i * i, 2) for i in range(pairs)], original_max_position_embeddings=original)


MODELS = {
    "tiny-tied": dict(BASE, seed=1),
    # six heads in two groups, positions divided by a factor, a head of its own, inner width a prime
    "tiny-linear": dict(BASE, seed=2, width=96, inner=101, heads=6, kv_heads=2, tied=False,
                        rope=dict(rope_type="linear", factor=4.0)),
    # the head is wider than width / heads, all query heads share one key head; divisors of the angles in a tensor (Llama 3)
    "tiny-llama3": dict(BASE, seed=3, kv_heads=1, head_width=24, theta=500000.0,
                        rope=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                  original_max_position_embeddings=256)),
    # no grouping; 64 positions are four times what the model was "trained" on
    "tiny-yarn": dict(BASE, seed=4, width=96, inner=70, heads=3, kv_heads=3, head_width=32, tied=False,
                      rope=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16)),
    # the default model's types: Q4_1 blocks, a Q8_0 embedding shared with the head
    "tiny-q4_1": dict(BASE, seed=5, inner=160, layers=3, quantized=True),
    # biases of q, k and v; seven heads that share one key head
    "tiny-qwen2": dict(BASE, seed=6, family="qwen2", width=56, inner=97, layers=3, heads=7, kv_heads=1, head_width=8,
                       theta=1000000.0, epsilon=1e-6),
    # the same family with a head of its own and YaRN past what it was "trained" on
    "tiny-qwen2-yarn": dict(BASE, seed=7, family="qwen2", width=60, inner=90, heads=6, kv_heads=3, head_width=10, tied=False,
                            epsilon=1e-6, rope=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)),
    # norms of the heads of q and k; heads wider than width / heads
    "tiny-qwen3": dict(BASE, seed=8, family="qwen3", width=64, inner=75, layers=3, heads=6, kv_heads=2, head_width=18,
                       theta=1000000.0, epsilon=1e-6),
    # a token sees 21 positions: in its prompt and past it
    "tiny-mistral": dict(BASE, seed=9, width=66, inner=81, heads=6, kv_heads=2, head_width=12, tied=False, window=21),
    # experts and a shared one of another width; the second layer has none. Widths that all block types divide
    "tiny-qwen2moe": dict(BASE, seed=10, family="qwen2moe", inner=128, layers=3, heads=4, kv_heads=2, tied=False, epsilon=1e-6,
                          moe=dict(MOE, inner=64, shared=96, dense_layers=(1,))),
    # three of ten odd-sized experts, their weights normalised
    "tiny-qwen3moe": dict(BASE, seed=11, family="qwen3moe", width=54, inner=70, heads=6, kv_heads=3, head_width=10, epsilon=1e-6,
                          theta=1000000.0, moe=dict(MOE, experts=10, used=3, inner=35)),
    # Mixtral's files are of the llama family
    # GELU gates, norms on both sides; every second layer has a window; caps that bite
    "tiny-gemma2": dict(BASE, seed=13, family="gemma2", width=60, inner=90, layers=3, heads=6, kv_heads=2, head_width=12, epsilon=1e-6,
                        window=19, caps=dict(attn_logit_softcapping=3.0, final_logit_softcapping=12.0)),
    # norms of the heads; the sixth layer alone sees all, its positions divided by a factor, the others have another theta; scores
    # divided by the root of what is no head's width
    "tiny-gemma3": dict(BASE, seed=14, family="gemma3", width=48, inner=50, layers=7, heads=4, kv_heads=2, head_width=14, epsilon=1e-6,
                        theta=1000000.0, rope=dict(rope_type="linear", factor=4.0), window=21, scalar=20),
    # fused projections, three quarters of a head rotated, a window; texts not longer than the original context
    "tiny-phi3": dict(BASE, seed=15, family="phi3", width=48, inner=50, heads=3, kv_heads=3, head_width=16, tied=False, window=23,
                      rotated=0.75, rope=longrope(6, 256)),
    # longer texts
    "tiny-phi3-long": dict(BASE, seed=16, family="phi3", width=60, inner=46, heads=6, kv_heads=2, head_width=10, rope=longrope(5, 32)),
    # q and k normed over all heads together, as many of k as of q (llama.cpp wants it); experts' weights as they are
    "tiny-olmoe": dict(BASE, seed=27, family="olmoe", width=48, inner=36, kv_heads=4, head_width=12, tied=False, epsilon=1e-3, moe=dict(MOE, inner=36)),
    # five heads that share one key head, a clip that bites, the chosen experts' weights normalised
    "tiny-olmoe-clip": dict(BASE, seed=28, family="olmoe", width=50, inner=33, heads=5, kv_heads=1, head_width=10, clip=1.25,
                            moe=dict(MOE, inner=33, normalised=True)),
    "tiny-mixtral": dict(BASE, seed=12, width=56, inner=45, heads=7, kv_heads=7, head_width=8, moe=dict(MOE, inner=45)),
}


def byte_tokens():
    """The 256 byte tokens of byte-level BPE as printable characters, ordered by byte."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = iter(range(256, 512))
    return [chr(b if b in shown else next(hidden)) for b in range(256)]


TOKENS = byte_tokens() + ["<s>", "</s>", "<unk>"]


def write(path, spec, rope_divisors=None):
    """Writes one model. `rope_divisors` [head_width / 2]: what Llama 3 scaling divides each pair's angle by."""
    rng = np.random.default_rng(spec["seed"])
    w = gguf.GGUFWriter(path, spec["family"])
    w.add_name(path.stem)
    w.add_block_count(spec["layers"])
    w.add_context_length(512)
    w.add_embedding_length(spec["width"])
    w.add_feed_forward_length(spec["inner"])
    w.add_head_count(spec["heads"])
    w.add_head_count_kv(spec["kv_heads"])
    w.add_layer_norm_rms_eps(spec["epsilon"])
    w.add_rope_freq_base(spec["theta"])
    w.add_rope_dimension_count(int(spec["head_width"] * spec["rotated"]))
    if spec["head_width"] * spec["heads"] != spec["width"]:
        w.add_key_length(spec["head_width"])
        w.add_value_length(spec["head_width"])
    if spec["window"]:
        w.add_sliding_window(spec["window"])
    moe = spec["moe"]
    if moe:
        w.add_expert_count(moe["experts"])
        w.add_expert_used_count(moe["used"])
        if spec["family"] not in ("llama", "olmoe"):
            w.add_expert_feed_forward_length(moe["inner"])
        if moe["shared"]:
            w.add_expert_shared_feed_forward_length(moe["shared"])
        if "normalised" in moe:
            w.add_expert_weights_norm(moe["normalised"])
    if spec["clip"]:
        w.add_clamp_kqv(spec["clip"])
    if spec["caps"]:
        w.add_attn_logit_softcapping(spec["caps"]["attn_logit_softcapping"])
        w.add_final_logit_softcapping(spec["caps"]["final_logit_softcapping"])
    if spec["scalar"]:
        w.add_attention_scale(spec["scalar"] ** -0.5)
    w.add_vocab_size(len(TOKENS))
    rope = spec["rope"] or {}
    if rope.get("rope_type") == "linear":
        w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        w.add_rope_scaling_factor(rope["factor"])
    elif rope.get("rope_type") == "longrope":
        w.add_rope_scaling_attn_factors(np.sqrt(1 + np.log(512 / rope["original_max_position_embeddings"]) /
                                                np.log(rope["original_max_position_embeddings"])))
        w.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    elif rope.get("rope_type") == "yarn":
        w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        w.add_rope_scaling_factor(rope["factor"])
        w.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(TOKENS)
    w.add_token_types([gguf.TokenType.NORMAL] * 256 + [gguf.TokenType.CONTROL] * 3)
    w.add_token_merges([])
    w.add_bos_token_id(256)
    w.add_eos_token_id(257)
    w.add_unk_token_id(258)
    w.add_add_bos_token(False)

    def matrix(name, rows, columns, gain=1.0, kind=gguf.GGMLQuantizationType.Q4_1):
        values = rng.normal(0, gain / np.sqrt(columns), (rows, columns)).astype(np.float32)
        if spec["quantized"]:
            w.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
        else:
            w.add_tensor(name, values)

    def experts(name, rows, columns, gain=1.0):
        values = rng.normal(0, gain / np.sqrt(columns), (moe["experts"], rows, columns)).astype(np.float32)
        values[3] = values[1]
        w.add_tensor(name, values)

    def router(name):
        """All tokens have much of the first channel, and the last expert wants none of it."""
        values = rng.normal(0, 1.5 / np.sqrt(width), (moe["experts"], width)).astype(np.float32)
        values[:, 0] = 0
        values[3] = values[1]
        values[-1] = 0
        values[-1, 0] = -20
        w.add_tensor(name, values)

    def vector(name, size, mean):
        values = rng.normal(mean, 0.3, size).astype(np.float32)
        if gemma:                               # so that one more and one less is exact: transformers keeps norms less one
            values = np.round(values * 4096) / np.float32(4096)
        w.add_tensor(name, values)

    def norm(name):
        vector(name, spec["width"], 1)

    width, inner, gemma = spec["width"], spec["inner"], spec["family"] in GEMMAS
    fused = spec["family"] == "phi3"
    q, kv = spec["heads"] * spec["head_width"], spec["kv_heads"] * spec["head_width"]
    if moe:
        embedding = rng.normal(0, 1, (len(TOKENS), width)).astype(np.float32)
        embedding[:, 0] = 6
        w.add_tensor("token_embd.weight", embedding)
    else:
        # Gemma multiplies what it takes of it by the root of the width.
        matrix("token_embd.weight", len(TOKENS), width, gain=np.sqrt(width) * (0.12 if gemma else 1),
               kind=gguf.GGMLQuantizationType.Q8_0)
    for i in range(spec["layers"]):
        norm(f"blk.{i}.attn_norm.weight")
        if fused:
            matrix(f"blk.{i}.attn_qkv.weight", q + 2 * kv, width, gain=1.5)
        else:
            matrix(f"blk.{i}.attn_q.weight", q, width, gain=1.5)
            matrix(f"blk.{i}.attn_k.weight", kv, width, gain=1.5)
            matrix(f"blk.{i}.attn_v.weight", kv, width)
        if spec["family"] in ("qwen2", "qwen2moe"):
            for name, size in (("q", q), ("k", kv), ("v", kv)):
                vector(f"blk.{i}.attn_{name}.bias", size, 0)
        if spec["family"] in ("qwen3", "qwen3moe", "gemma3"):
            for name in "qk":
                vector(f"blk.{i}.attn_{name}_norm.weight", spec["head_width"], 1.5)
        if spec["family"] == "olmoe":
            for name, size in (("q", q), ("k", kv)):
                vector(f"blk.{i}.attn_{name}_norm.weight", size, 1.5)
        matrix(f"blk.{i}.attn_output.weight", width, q)
        norm(f"blk.{i}.ffn_norm.weight")
        if gemma:
            norm(f"blk.{i}.post_attention_norm.weight")
            norm(f"blk.{i}.post_ffw_norm.weight")
        if moe and i not in moe["dense_layers"]:
            router(f"blk.{i}.ffn_gate_inp.weight")
            experts(f"blk.{i}.ffn_gate_exps.weight", moe["inner"], width, gain=1.5)
            experts(f"blk.{i}.ffn_up_exps.weight", moe["inner"], width)
            experts(f"blk.{i}.ffn_down_exps.weight", width, moe["inner"], gain=2)
            if moe["shared"]:
                vector(f"blk.{i}.ffn_gate_inp_shexp.weight", width, 0)
                matrix(f"blk.{i}.ffn_gate_shexp.weight", moe["shared"], width, gain=1.5)
                matrix(f"blk.{i}.ffn_up_shexp.weight", moe["shared"], width)
                matrix(f"blk.{i}.ffn_down_shexp.weight", width, moe["shared"], gain=2)
            continue
        if not fused:
            matrix(f"blk.{i}.ffn_gate.weight", inner, width, gain=1.5)
        matrix(f"blk.{i}.ffn_up.weight", inner * (2 if fused else 1), width)
        matrix(f"blk.{i}.ffn_down.weight", width, inner, gain=2)
    norm("output_norm.weight")
    if not spec["tied"]:
        matrix("output.weight", len(TOKENS), width, gain=2)
    if "long_factor" in rope:
        for kind in ("long", "short"):
            w.add_tensor(f"rope_factors_{kind}.weight", np.asarray(rope[f"{kind}_factor"], dtype=np.float32))
    if rope_divisors is not None:
        w.add_tensor("rope_freqs.weight", np.asarray(rope_divisors, dtype=np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
