#!/usr/bin/env python3
"""Makes a mixture of experts to measure on out of a dense Llama-family GGUF file: Mixtral's form, 2 of 4 experts (--experts), as GGUF file
and, on demand, as Hugging Face folder. The weights are not kept anywhere: the script makes them again.

  python/upcycle.py -o build/upcycled.gguf                                  equal to the dense model
  python/upcycle.py -o build/upcycled.gguf --train build/texts/calibrate.txt   experts that differ (scripts/dev-set makes the text)

Every expert begins as a copy of the FFN it replaces. Mixtral divides the weights of the chosen two by their sum, so whatever the
router says, their sum is the dense FFN's output: the start is the dense model. (Qwen3-MoE's form could not be: its attention
normalises every head of q and k, which no weights undo.)

--train: the router's rows are centres of as many clusters as there are experts of the FFN's inputs (k-means of directions, on 2,048 tokens of the text);
then router and an update of rank R of each matrix of each expert, W + B A, are trained on the text with AdamW: cross-entropy of the
next token, and 0.01 times Switch Transformer's load-balancing loss (arXiv 2101.03961, equation 4) of every layer. All else stays.

Needs numpy and gguf; --train and --folder need python/requirements-goldens.txt too.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import gguf
import numpy as np

EXPERTS, USED = 4, 2
LENGTH, BATCH = 256, 2   # of the sequences that are trained on, and how many of them make a step
CLUSTERED = 2048         # tokens that the router's rows are clustered on
BALANCE = 0.01
TYPES = {"f32": gguf.GGMLQuantizationType.F32, "bf16": gguf.GGMLQuantizationType.BF16, "q8_0": gguf.GGMLQuantizationType.Q8_0}
FFN = ("gate", "up", "down")


def dense_weights(reader):
    return {t.name: np.array(gguf.quants.dequantize(t.data, t.tensor_type), dtype=np.float32) for t in reader.tensors}


def copies(weights, layers, experts=EXPERTS):
    """Per layer: the router [experts, d], seeded, and each matrix of the FFN as many times."""
    rng = np.random.default_rng(1)
    width = weights["blk.0.ffn_gate.weight"].shape[1]
    return [{"router": rng.normal(0, 1 / np.sqrt(width), (experts, width)).astype(np.float32),
             **{name: np.stack([weights[f"blk.{layer}.ffn_{name}.weight"]] * experts) for name in FFN}} for layer in range(layers)]


def train(path, text, args):
    """The same, trained. What of it changed is printed."""
    import torch

    import upcycle_train
    import vocabulary
    ids = vocabulary.tokenizer(path).encode(text).ids
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    return upcycle_train.train(path, torch.tensor(ids), args.experts, USED, args)


def write_gguf(path, reader, weights, layers, kind):
    w = gguf.GGUFWriter(path, "llama")
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type", "general.name"):
            continue
        types = field.types
        w.add_key_value(name, field.contents(), types[0], types[-1] if types[0] == gguf.GGUFValueType.ARRAY else None)
    w.add_name(path.stem)
    w.add_expert_count(len(layers[0]["router"]))
    w.add_expert_used_count(USED)

    def add(name, values):
        small = values.ndim == 1 or "ffn_gate_inp" in name
        to = TYPES["f32"] if small or kind == "f32" else TYPES[kind]
        w.add_tensor(name, values if to == TYPES["f32"] else gguf.quants.quantize(values, to), raw_dtype=to)

    for name, values in weights.items():
        if not name.startswith("blk.") or ".ffn_norm" in name or ".ffn_" not in name:
            add(name, values)
    for i, layer in enumerate(layers):
        add(f"blk.{i}.ffn_gate_inp.weight", layer["router"])
        for name in FFN:
            add(f"blk.{i}.ffn_{name}_exps.weight", layer[name])
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def write_folder(folder, reader, weights, layers):
    """As transformers 4 saves Mixtral, in bfloat16, without a tokenizer."""
    import torch
    from safetensors.torch import save_file

    from make_goldens import PARTS, split_halves
    meta = {k.split(".", 1)[1]: f.contents() for k, f in reader.fields.items() if k.startswith("llama.")}
    heads = {"q": meta["attention.head_count"], "k": meta["attention.head_count_kv"]}
    state = {"model.embed_tokens.weight": weights["token_embd.weight"], "model.norm.weight": weights["output_norm.weight"]}
    if "output.weight" in weights:
        state["lm_head.weight"] = weights["output.weight"]
    for name, values in weights.items():
        if name.startswith("blk.") and (".ffn_" not in name or ".ffn_norm" in name):
            _, layer, part = name.split(".", 2)
            if part in ("attn_q.weight", "attn_k.weight"):
                values = split_halves(values, heads[part[5]])
            state[f"model.layers.{layer}.{PARTS[part]}"] = values
    for i, layer in enumerate(layers):
        moe = f"model.layers.{i}.block_sparse_moe"
        state[f"{moe}.gate.weight"] = layer["router"]
        for e in range(len(layer["router"])):
            for ours, theirs in zip(FFN, ("w1", "w3", "w2")):
                state[f"{moe}.experts.{e}.{theirs}.weight"] = layer[ours][e]
    folder.mkdir(parents=True, exist_ok=True)
    save_file({k: torch.from_numpy(np.ascontiguousarray(v)).to(torch.bfloat16) for k, v in state.items()},
              folder / "model.safetensors", metadata={"format": "pt"})
    config = {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_act": "silu", "torch_dtype": "bfloat16",
              "hidden_size": meta["embedding_length"], "intermediate_size": meta["feed_forward_length"],
              "num_hidden_layers": meta["block_count"], "num_attention_heads": heads["q"], "num_key_value_heads": heads["k"],
              "max_position_embeddings": meta["context_length"], "rms_norm_eps": meta["attention.layer_norm_rms_epsilon"],
              "rope_theta": meta["rope.freq_base"], "rope_scaling": None, "sliding_window": None, "num_local_experts": len(layers[0]["router"]),
              "num_experts_per_tok": USED, "tie_word_embeddings": "output.weight" not in weights,
              "vocab_size": len(weights["token_embd.weight"])}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def main():
    root = Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", type=Path, default=root / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE")
    parser.add_argument("--folder", type=Path, help="also as a Hugging Face folder")
    parser.add_argument("--type", choices=TYPES, default="bf16", help="of the matrices [bf16]")
    parser.add_argument("--train", type=Path, metavar="TEXT", help="make the experts different [copies]")
    parser.add_argument("--experts", type=int, default=EXPERTS, help=f"of which a token goes through {USED} [{EXPERTS}]")
    parser.add_argument("--f32", action="store_true", help="train in float32: faster than bfloat16 where the CPU has no products of it")
    parser.add_argument("--steps", type=int, default=12, help=f"of {LENGTH * BATCH} tokens [12]")
    parser.add_argument("--rank", type=int, default=16, help="of an expert's updates [16]")
    parser.add_argument("--rate", type=float, default=3e-3, help="learning rate, falling to a tenth [0.003]")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    reader, begin = gguf.GGUFReader(args.model), time.monotonic()
    weights = dense_weights(reader)
    count = reader.fields["llama.block_count"].contents()
    layers = train(args.model, args.train.read_text(encoding="utf-8"), args) if args.train else copies(weights, count, args.experts)
    write_gguf(args.output, reader, weights, layers, args.type)
    if args.folder:
        write_folder(args.folder, reader, weights, layers)
    print(f"{args.output}: {time.monotonic() - begin:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
