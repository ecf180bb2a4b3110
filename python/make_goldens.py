#!/usr/bin/env python3
"""Makes the golden logits of tests/goldens with Hugging Face transformers (float32, CPU), from the weights in GGUF files.

Needs torch, transformers, tokenizers, gguf, numpy (python/requirements-goldens.txt). Nothing of this project is imported but
the file writers beside this file, so the goldens know nothing of the engine.

  python/make_goldens.py                       the tiny models (written too) and the default model
  python/make_goldens.py --only tiny-yarn      one of them
  python/make_goldens.py --configs             with transformers 4: the configurations as that version writes them
"""

import argparse
import hashlib
import sys
from pathlib import Path

import gguf
import numpy as np
import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

import golden_file
import tiny_models
import vocabulary

ROOT = Path(__file__).resolve().parent.parent
GOLDENS = ROOT / "tests" / "goldens"
DEFAULT = ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
POSITIONS, GREEDY, TOP, SAMPLED = 64, 64, 8, 256
MAJOR = int(transformers.__version__.split(".")[0])
FOLDERS = {"tiny-llama3": "1GB", "tiny-qwen2": "1GB", "tiny-qwen2-yarn": "1GB", "tiny-qwen3": "200KB", "tiny-mistral": "100KB",
           "tiny-qwen2moe": "300KB", "tiny-qwen3moe": "1GB", "tiny-mixtral": "1GB",
           "tiny-gemma2": "1GB", "tiny-gemma3": "1GB", "tiny-phi3": "1GB", "tiny-phi3-long": "1GB",
           "tiny-olmoe": "1GB", "tiny-olmoe-clip": "1GB"}

PROMPTS = {
    "english": "The lighthouse keeper climbed the winding stairs every evening, carrying a small brass lamp and a book of old "
               "letters. From the top he could see the whole bay: the fishing boats coming home, the first lights of the town, "
               "and beyond them the long dark line of the sea, where the storm was already gathering. He lit the great lamp,",
    "code": "def merge_sorted(a, b):\n    \"\"\"Merge two sorted lists into one sorted list.\"\"\"\n    result = []\n    i = j = 0\n"
            "    while i < len(a) and j < len(b):\n        if a[i] <= b[j]:\n            result.append(a[i])\n            i += 1\n"
            "        else:\n            result.append(b[j])\n",
    "non-latin": "東京は日本の首都であり、世界最大の都市の一つです。Москва является столицей России. Η Αθήνα είναι η πρωτεύουσα της Ελλάδας.",
}


def weights(reader):
    return {t.name: np.array(gguf.quants.dequantize(t.data, t.tensor_type), dtype=np.float32) for t in reader.tensors}


def split_halves(w, heads):
    """GGUF files keep the rows of W_q and W_k of a head so that rotated pairs are neighbours (2i, 2i + 1); transformers pairs
    row i with row i + half. Brings the rows into that order."""
    rows = w.shape[0] // heads
    return w.reshape(heads, rows // 2, 2, -1).swapaxes(1, 2).reshape(w.shape)


def config_of(reader, rope):
    """`rope`: the scaling in transformers' words; the GGUF file says the same in its own."""
    fields = {k: f.contents() for k, f in reader.fields.items() if not k.startswith(("tokenizer.", "GGUF."))}
    family = fields["general.architecture"]
    meta = {k.split(".", 1)[1]: v for k, v in fields.items() if k.startswith(f"{family}.")}
    names = {t.name for t in reader.tensors}
    width, heads = meta["embedding_length"], meta["attention.head_count"]
    window = meta.get("attention.sliding_window")
    mistral = window and family == "llama"
    kind = transformers.MistralConfig if mistral else CONFIGS[family + " experts" * ("expert_count" in meta)]
    more = {"sliding_window": window} if window else experts_of(family, meta, names) if "expert_count" in meta else {}
    if family in tiny_models.GEMMAS:
        more |= {key: meta.get(key) for key in ("attn_logit_softcapping", "final_logit_softcapping")}
        more |= dict(query_pre_attn_scalar=round(meta["attention.scale"] ** -2) if "attention.scale" in meta else
                     meta.get("attention.key_length", width // heads))
    more |= positions(rope, meta["rope.freq_base"], family == "gemma3")
    if family == "phi3":
        part = meta["rope.dimension_count"] / (width // heads)
        more |= dict(original_max_position_embeddings=rope["original_max_position_embeddings"], pad_token_id=None)
        if MAJOR < 5:           # its check wants these three fields alone, by the older name
            more |= dict(partial_rotary_factor=part, rope_scaling={"type": "longrope"} | {
                key: rope[key] for key in ("short_factor", "long_factor")})
        else:
            more["rope_parameters"]["partial_rotary_factor"] = part
    return kind(
        vocab_size=meta["vocab_size"], hidden_size=width, intermediate_size=meta["feed_forward_length"],
        num_hidden_layers=meta["block_count"], num_attention_heads=heads, num_key_value_heads=meta["attention.head_count_kv"],
        head_dim=meta.get("attention.key_length", width // heads), rms_norm_eps=meta["attention.layer_norm_rms_epsilon"],
        max_position_embeddings=meta["context_length"], tie_word_embeddings="output.weight" not in names,
        attn_implementation="eager", bos_token_id=None, eos_token_id=None, **more)


def positions(rope, theta, by_layer):
    """The scaling in the words of the transformers at hand; by_layer: those of the layers that see all."""
    if MAJOR >= 5 and by_layer:
        return dict(rope_parameters=dict(full_attention=positions(rope, theta, False)["rope_parameters"],
                                         sliding_attention=dict(rope_type="default", rope_theta=10000.0)))
    if MAJOR < 5:
        return dict(rope_theta=theta, rope_scaling=rope)
    return dict(rope_parameters=dict(rope or {"rope_type": "default"}, rope_theta=theta))


def experts_of(family, meta, names):
    """What config.json says of experts. norm_topk_prob is left to the family where published models leave it."""
    dense = [i for i in range(meta["block_count"]) if f"blk.{i}.ffn_gate_inp.weight" not in names]
    if family == "olmoe":                                        # OLMoE-1B-7B: norm_topk_prob false
        return dict(num_experts=meta["expert_count"], num_experts_per_tok=meta["expert_used_count"],
                    norm_topk_prob=meta.get("expert_weights_norm", False), clip_qkv=meta.get("attention.clamp_kqv"))
    if "expert_feed_forward_length" not in meta:                 # Mixtral
        return dict(num_local_experts=meta["expert_count"], num_experts_per_tok=meta["expert_used_count"])
    more = dict(num_experts=meta["expert_count"], num_experts_per_tok=meta["expert_used_count"], mlp_only_layers=dense,
                decoder_sparse_step=1, moe_intermediate_size=meta["expert_feed_forward_length"], norm_topk_prob=True)
    if "expert_shared_feed_forward_length" in meta:              # Qwen1.5-MoE-A2.7B: false
        more |= dict(shared_expert_intermediate_size=meta["expert_shared_feed_forward_length"], norm_topk_prob=False)
    return more


CONFIGS = {"llama": transformers.LlamaConfig, "qwen2": transformers.Qwen2Config, "qwen3": transformers.Qwen3Config,
           "gemma2": transformers.Gemma2Config, "gemma3": transformers.Gemma3TextConfig, "phi3": transformers.Phi3Config,
           "llama experts": transformers.MixtralConfig, "qwen2moe experts": transformers.Qwen2MoeConfig,
           "qwen3moe experts": transformers.Qwen3MoeConfig, "olmoe experts": transformers.OlmoeConfig}
PARTS = {"attn_norm.weight": "input_layernorm.weight", "ffn_norm.weight": "post_attention_layernorm.weight",
         **{f"attn_{x}.{part}": f"self_attn.{x}_proj.{part}" for x in "qkv" for part in ("weight", "bias")},
         "attn_q_norm.weight": "self_attn.q_norm.weight", "attn_k_norm.weight": "self_attn.k_norm.weight",
         "attn_output.weight": "self_attn.o_proj.weight",
         **{f"ffn_{x}.weight": f"mlp.{x}_proj.weight" for x in ("gate", "up", "down")},
         **{f"ffn_{x}_shexp.weight": f"mlp.shared_expert.{x}_proj.weight" for x in ("gate", "up", "down")},
         "ffn_gate_exps.weight": "mlp.experts.gate_up_proj", "ffn_down_exps.weight": "mlp.experts.down_proj",
         "ffn_gate_inp.weight": "mlp.gate.weight", "ffn_gate_inp_shexp.weight": "mlp.shared_expert_gate.weight"}
GEMMA_PARTS = {"post_attention_norm.weight": "post_attention_layernorm.weight",
               "ffn_norm.weight": "pre_feedforward_layernorm.weight", "post_ffw_norm.weight": "post_feedforward_layernorm.weight"}


def model_of(path, rope=None):
    reader = gguf.GGUFReader(path)
    config = config_of(reader, rope)
    w = weights(reader)
    if reader.fields["general.architecture"].contents() == "llama":    # the family whose rows converters permute
        for name in w:
            if name.endswith((".attn_q.weight", ".attn_k.weight")):
                heads = config.num_attention_heads if "attn_q" in name else config.num_key_value_heads
                w[name] = split_halves(w[name], heads)
    parts = PARTS
    if reader.fields["general.architecture"].contents() == "phi3":
        parts = PARTS | {"attn_qkv.weight": "self_attn.qkv_proj.weight", "ffn_up.weight": "mlp.gate_up_proj.weight"}
    if reader.fields["general.architecture"].contents() in tiny_models.GEMMAS:
        parts = PARTS | GEMMA_PARTS
        w = {name: values - 1 if name.endswith("norm.weight") else values for name, values in w.items()}
    state = {"model.embed_tokens.weight": w["token_embd.weight"], "model.norm.weight": w["output_norm.weight"],
             "lm_head.weight": w.get("output.weight", w["token_embd.weight"])}
    for name, values in w.items():
        if name.startswith("blk."):
            _, layer, part = name.split(".", 2)
            values = values[None] if part == "ffn_gate_inp_shexp.weight" else values
            if part == "ffn_gate_exps.weight":           # gate and up are one tensor there
                values = np.concatenate([values, w[name.replace("gate", "up")]], axis=1)
            if part != "ffn_up_exps.weight":
                state[f"model.layers.{layer}.{parts[part]}"] = values
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    model.config._experts_implementation = "eager"      # the others want sizes that a tiny model does not have
    model.load_state_dict({k: torch.from_numpy(np.ascontiguousarray(v)) for k, v in state.items()}, strict=True)
    return model


def logits_of(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].numpy()


def greedy(model, ids):
    """GREEDY further ids, the highest logit each time (the lowest id of equals), and by how much it led."""
    found, lead, past = [], [], None
    step = list(ids)
    for _ in range(GREEDY):
        with torch.no_grad():
            out = model(torch.tensor([step]), past_key_values=past, use_cache=True)
        past, last = out.past_key_values, out.logits[0, -1].numpy()
        best = int(last.argmax())
        second = np.partition(last, -2)[-2]
        found.append(best)
        lead.append(last[best] - second)
        step = [best]
    return found, lead


def golden(name, path, model, prompts):
    vocab = model.config.vocab_size
    every = vocab <= 2 * SAMPLED
    sample = np.arange(vocab) if every else np.sort(np.random.default_rng(0).choice(vocab, SAMPLED, replace=False))
    arrays = {"sample": ("i32", sample)}
    for prompt, ids in prompts.items():
        logits = logits_of(model, ids)
        top = np.argsort(-logits, axis=1, kind="stable")[:, :TOP]
        peak = logits.max(axis=1, keepdims=True).astype(np.float64)
        lse = np.log(np.exp(logits - peak).sum(axis=1)) + peak[:, 0]
        following, lead = greedy(model, ids)
        arrays |= {f"{prompt}/ids": ("i32", ids), f"{prompt}/sampled": ("f32", logits[:, sample]),
                   f"{prompt}/top_ids": ("i32", top), f"{prompt}/top": ("f32", np.take_along_axis(logits, top, axis=1)),
                   f"{prompt}/logsumexp": ("f32", lse), f"{prompt}/greedy": ("i32", following),
                   f"{prompt}/greedy_lead": ("f32", lead)}
        print(f"{name} {prompt}: largest logit {logits.max():.3f}, least lead {min(lead):.2e}", file=sys.stderr)
    about = {"model": path.name, "model_sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "prompts": list(prompts),
             "made_with": {"transformers": transformers.__version__, "torch": torch.__version__, "numpy": np.__version__}}
    golden_file.write(GOLDENS / name, about, arrays)


def tiny(name):
    spec, path = tiny_models.MODELS[name], GOLDENS / f"{name}.gguf"
    divisors = None
    if (spec["rope"] or {}).get("rope_type") == "llama3":
        tiny_models.write(path, spec)                 # once without, to have the configuration
        config = config_of(gguf.GGUFReader(path), spec["rope"])
        scaled = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))[0].numpy()
        pair = np.arange(0, spec["head_width"], 2) / spec["head_width"]
        divisors = spec["theta"] ** -pair / scaled
    tiny_models.write(path, spec, divisors)
    rng = np.random.default_rng(100 + spec["seed"])
    prompts = {"random": rng.integers(0, len(tiny_models.TOKENS), POSITIONS).tolist(),
               "text": list(PROMPTS["english"].encode()[:POSITIONS])}
    model = model_of(path, spec["rope"])
    if spec["moe"]:
        prompts["one"] = [77]
        check_routing(model, prompts["random"] + prompts["text"], spec["moe"])
    golden(name, path, model, prompts)


def check_routing(model, ids, moe):
    """The prompts do meet what the model is made for: equal scores, and an expert that nobody chooses."""
    with torch.no_grad():
        scores = torch.stack(model(torch.tensor([ids]), output_router_logits=True).router_logits).numpy()
    best = np.argsort(-scores, axis=-1, kind="stable")[..., :moe["used"]]
    assert (scores[..., 1] == scores[..., 3]).all() and (best != moe["experts"] - 1).all()
    for e in range(moe["experts"] - 1):
        print(f"expert {e}: chosen by {(best == e).any(-1).mean():.2f}", file=sys.stderr)
    at_border = (best == 1).any(-1) & ~(best == 3).any(-1)
    assert at_border.any(), "equal scores at the last place"


def folder(name):
    """The model as transformers saves it, tests/goldens/hf/NAME: its logits are those of the GGUF file. Beside config.json of
    version 5 lies config-4.json, what version 4 writes (`--configs` with that version installed)."""
    spec, to = tiny_models.MODELS[name], GOLDENS / "hf" / name
    model = model_of(GOLDENS / f"{name}.gguf", spec["rope"])
    if spec["tied"]:
        model.tie_weights()
    model.save_pretrained(to, max_shard_size=FOLDERS[name])


def config(name):
    to = GOLDENS / "hf" / name
    made = config_of(gguf.GGUFReader(GOLDENS / f"{name}.gguf"), tiny_models.MODELS[name]["rope"])
    made.architectures = [transformers.AutoModelForCausalLM._model_mapping[type(made)].__name__]
    made.torch_dtype = "float32"
    made.to_json_file(to / f"config-{MAJOR}.json")


def default():
    bpe = vocabulary.tokenizer(DEFAULT)
    prompts = {name: bpe.encode(text).ids[:POSITIONS] for name, text in PROMPTS.items()}
    for name, ids in prompts.items():
        assert len(ids) == POSITIONS, f"{name}: expected {POSITIONS} tokens, found {len(ids)}"
    model = model_of(DEFAULT)
    golden("smollm2-135m-q4_1", DEFAULT, model, prompts)
    for name, ids in prompts.items():
        print(f"{name}: ... {bpe.decode(greedy(model, ids)[0])!r}", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [*tiny_models.MODELS, "default"]
    parser.add_argument("--only", choices=names, action="append")
    parser.add_argument("--configs", action="store_true", help="only config-4.json of the folders; needs transformers 4")
    args = parser.parse_args()
    GOLDENS.mkdir(parents=True, exist_ok=True)
    for name in args.only or names:
        if args.configs:
            if name in FOLDERS:
                config(name)
            continue
        default() if name == "default" else tiny(name)
        if name in FOLDERS:
            folder(name)


if __name__ == "__main__":
    main()
