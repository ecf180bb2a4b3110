#!/usr/bin/env python3
"""Why `magnitude` loses to chance on the default model (docs/results.md): its masks against NumPy's, and what they remove.

  .venv/bin/python evidence/magnitude.py build/pop models/SmolLM2-135M-Instruct.Q4_1.gguf data/wikitext2_test.txt

Needs the packages gguf and numpy (scripts/requirements-test.txt). Energy of a channel: the square of its `fixed` score over the first 1500
characters of the text, ||h_i||^2 ||W_down[:, i]||^2. Exit code 1 if a mask is not the one computed here.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import gguf
import numpy as np


def partitions(pop, model, prompt, method, folder):
    """Layer -> the line of --dump-partition, at ratio 0.2."""
    path = pathlib.Path(folder) / f"{method}.jsonl"
    subprocess.run([pop, "run", "-m", model, "-f", prompt, "-n", "2", "--temp", "0", "--quiet", "--prune", method, "--ratio", "0.2",
                    "--dump-partition", str(path)], check=True, stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return {line["layer"]: line for line in lines if "R" in line}


def weights(model):
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(model).tensors}

    def values(name):
        return gguf.quants.dequantize(tensors[name].data, tensors[name].tensor_type).astype(np.float64)

    for layer in range(sum(name.endswith("ffn_down.weight") for name in tensors)):
        yield layer, [values(f"blk.{layer}.ffn_{part}.weight") for part in ("gate", "up", "down")]


def ranks(values):
    return np.argsort(np.argsort(values, kind="stable"), kind="stable")


def main():
    pop, model, text = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        prompt = pathlib.Path(folder) / "prompt.txt"
        prompt.write_text(pathlib.Path(text).read_text(encoding="utf-8")[:1500], encoding="utf-8")
        magnitude, fixed = (partitions(pop, model, str(prompt), method, folder) for method in ("magnitude", "fixed"))
    wrong = 0
    print("layer  wrong  rank correlation  energy removed: magnitude  fixed  chance")
    for layer, (gate, up, down) in weights(model):
        score = np.sqrt((gate**2).sum(1) + (up**2).sum(1) + (down**2).sum(0))
        kept = np.sort(np.argsort(-score, kind="stable")[:len(magnitude[layer]["R"])])
        differ = len(set(kept) ^ set(magnitude[layer]["R"]))
        importance = np.array(fixed[layer]["scores"])
        energy = importance**2 / (importance**2).sum()
        removed = [1 - energy[line[layer]["R"]].sum() for line in (magnitude, fixed)]
        print(f"{layer:5} {differ:6} {np.corrcoef(ranks(score), ranks(importance))[0, 1]:17.2f} {removed[0]:26.3f} {removed[1]:6.3f} "
              f"{1 - len(kept) / len(score):7.3f}")
        wrong += differ
    sys.exit(f"{wrong} channels differ from NumPy's masks" if wrong else 0)


if __name__ == "__main__":
    main()
