#!/usr/bin/env python3
"""Proves what `pop convert` writes with the programs it is for. Two environments, as llama.cpp and transformers seldom share one:

  python/check_convert.py llama          with llama-cpp-python: every folder of tests/goldens/hf and the default model, converted,
                                         give in llama.cpp the logits that transformers gave (tests/goldens/*.bin)
  python/check_convert.py transformers   with torch, transformers, gguf: folders made of GGUF files give the logits of those goldens,
                                         their tokenizers the ids of ours, and blocks are those of the gguf package

Needs build/pop. Prints one line for each model; exit code 1 if one differs.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import golden_file

ROOT = Path(__file__).resolve().parent.parent
GOLDENS, POP = ROOT / "tests" / "goldens", ROOT / "build" / "pop"
DEFAULT = ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
TEXT = "The lighthouse keeper climbed 1234 stairs.\n\n  Москва, 東京 — it's <|im_start|>user's\tcafé 🦊!"
NOT_LLAMA = {"tiny-qwen2moe": "llama.cpp wants experts in every layer",
             "tiny-gemma3": "llama.cpp knows no attention.scale of gemma3; tiny-gemma3-scale stands for it",
             "tiny-olmoe-clip": "llama.cpp clips nothing of olmoe and never normalises its experts' weights"}
WINDOW = {"tiny-mistral": 21, "tiny-phi3": 23}       # llama.cpp runs the llama and phi3 architectures without one
SHORT = ("tiny-phi3",)                               # texts up to LongRoPE's original context, 256
GELU = 1e-2                                          # llama.cpp looks it up in a table of half floats
worst = {}


def convert(source, target, *more):
    subprocess.run([POP, "convert", source, "-o", target, *more], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return target


def golden(name):
    about, arrays = golden_file.read(GOLDENS / name)
    for prompt in about["prompts"]:
        yield prompt, arrays["sample"], arrays[f"{prompt}/ids"].tolist(), arrays[f"{prompt}/sampled"]


def report(name, prompt, ours, theirs, most):
    error = float(np.abs(ours - theirs).max())
    worst[name] = error <= most
    print(f"{'ok  ' if error <= most else 'BAD '} {name} {prompt}: largest difference {error:.2e} of logits up to {np.abs(theirs).max():.1f}")


def llama(folder):
    import llama_cpp

    silent = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(silent, None)
    llama_cpp.llama_backend_init()
    models = [(name.name, convert(name, folder / f"{name.name}.gguf")) for name in sorted((GOLDENS / "hf").iterdir())]
    models.append(("smollm2-135m-q4_1", convert(DEFAULT, folder / "default.gguf", "--type", "f32")))
    for name, path in models:
        if name in NOT_LLAMA:
            print(f"--   {name}: {NOT_LLAMA[name]}")
            continue
        for prompt, sample, ids, expected in golden(name):
            seen = WINDOW.get(name, len(ids))
            found = llama_logits(llama_cpp, path, ids, 256 if name in SHORT else 512)[:seen, sample]
            report(name, prompt, found, expected[:seen], GELU if "gemma" in name else 2e-3)
    # Scores of gemma3 divided by the root of a head's width, which llama.cpp does: beside our own logits.
    usual = folder / "gemma3"
    shutil.copytree(GOLDENS / "hf" / "tiny-gemma3", usual)
    config = json.loads((usual / "config.json").read_text())
    (usual / "config.json").write_text(json.dumps(config | dict(query_pre_attn_scalar=config["head_dim"])))
    ids = next(golden("tiny-gemma3"))[2]
    report("tiny-gemma3-scale", "random", llama_logits(llama_cpp, convert(usual, folder / "gemma3.gguf"), ids), our_logits(usual, ids, folder), GELU)
    # Of blocks llama.cpp multiplies activations of eight bits, we do not here: a wrong block would show as another model.
    ids = next(golden("smollm2-135m-q4_1"))[2][:16]
    for kind in ("q8_0", "q6_k", "q5_0", "q4_k", "q4_1", "q4_0"):
        path = convert(DEFAULT, folder / f"{kind}.gguf", "--type", kind)
        ours, theirs = our_logits(path, ids, folder), llama_logits(llama_cpp, path, ids)
        error = float(np.sqrt(np.mean((ours - theirs[-len(ours):]) ** 2)) / ours.std())
        worst[kind] = error < 0.1
        print(f"{'ok  ' if worst[kind] else 'BAD '} default model as {kind}: difference from our logits {100 * error:.2f}% of their deviation")


def our_logits(model, ids, folder):
    dump = folder / "logits.npy"
    subprocess.run([POP, "score", "-m", model, "--ids", ",".join(map(str, ids)), "--activations", "f32", "--kv", "f32", "-q", "--dump-logits", dump],
                   check=True, stdout=subprocess.DEVNULL)
    return np.load(dump)


def llama_logits(llama_cpp, path, ids, context=512):
    options = llama_cpp.llama_model_default_params()
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), options)
    assert model, f"{path}: llama.cpp does not load it"
    options = llama_cpp.llama_context_default_params()
    options.n_ctx = options.n_batch = options.n_ubatch = context
    options.n_threads = options.n_threads_batch = 2
    options.type_k = options.type_v = 0                     # a float32 cache
    options.flash_attn_type = 0
    context = llama_cpp.llama_init_from_model(model, options)
    batch = llama_cpp.llama_batch_init(len(ids), 0, 1)
    batch.n_tokens = len(ids)
    for i, token in enumerate(ids):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = token, i, 1, 0, 1
    assert llama_cpp.llama_decode(context, batch) == 0
    vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    out = np.ctypeslib.as_array(llama_cpp.llama_get_logits(context), (len(ids), vocab)).copy()
    llama_cpp.llama_batch_free(batch)
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)
    return out


def transformers(folder):
    import torch
    import transformers

    names = [path.stem for path in sorted(GOLDENS.glob("tiny-*.gguf"))]
    for name in [*names, "smollm2-135m-q4_1"]:
        source = DEFAULT if name.startswith("smollm") else GOLDENS / f"{name}.gguf"
        made = convert(source, folder / name, "--type", "f32")
        model = transformers.AutoModelForCausalLM.from_pretrained(made, torch_dtype=torch.float32, attn_implementation="eager").eval()
        model.config._experts_implementation = "eager"
        for prompt, sample, ids, expected in golden(name):
            with torch.no_grad():
                found = model(torch.tensor([ids])).logits[0].numpy()[:, sample]
            report(name, prompt, found, expected, 1e-4)
    bpe = transformers.AutoTokenizer.from_pretrained(folder / "smollm2-135m-q4_1")
    ids = json.loads(subprocess.run([POP, "tokenize", "-m", DEFAULT, "-p", TEXT, "--special", "--json"], check=True,
                                    capture_output=True).stdout)["ids"]
    worst["tokenizer"] = bpe.encode(TEXT) == ids
    print("ok  " if worst["tokenizer"] else "BAD ", "tokenizer of the default model:", len(ids), "ids,", bpe.decode(ids) == TEXT)
    blocks(folder)


def blocks(folder):
    """Tensors of a requantised file beside what the gguf package makes of the same values."""
    import gguf

    source = convert(DEFAULT, folder / "f32.gguf", "--type", "f32")
    values = {t.name: t.data for t in gguf.GGUFReader(source).tensors}
    for name in ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "F16", "BF16"):
        made = gguf.GGUFReader(convert(source, folder / f"{name}.gguf", "--type", name.lower()))
        kind = gguf.GGMLQuantizationType[name]
        compared = [t for t in made.tensors if t.tensor_type == kind]
        same = all(np.array_equal(t.data.reshape(-1).view(np.uint8),
                                  gguf.quants.quantize(values[t.name], kind).reshape(-1).view(np.uint8)) for t in compared)
        worst[name] = same and bool(compared)
        print("ok  " if worst[name] else "BAD ", f"{name}: {len(compared)} tensors, {sum(t.n_bytes for t in compared) / 1e6:.0f} MB, byte by byte")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("with_what", choices=["llama", "transformers"])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        {"llama": llama, "transformers": transformers}[args.with_what](Path(folder))
    sys.exit(0 if all(worst.values()) else 1)


if __name__ == "__main__":
    main()
