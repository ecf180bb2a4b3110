#!/usr/bin/env python3
"""Makes files of other weight types from the default model, for checks of the fast paths and for comparisons.

Needs llama-cpp-python (pip install llama-cpp-python builds it), whose `llama_model_quantize` does the work: the file is brought to
F32 first, then to each type. Rows that a K-quant's blocks of 256 do not divide get another type, as that function chooses.

  python/requantize.py models/SmolLM2-135M-Instruct.Q4_1.gguf OUT_FOLDER q4_0 q8_0 q4_K
  python/requantize.py models/SmolLM2-135M-Instruct.Q4_1.gguf OUT_FOLDER          every type of the list
"""

import argparse
import sys
from pathlib import Path

import llama_cpp

# The names and numbers of llama.h's `enum llama_ftype`.
TYPES = {"f32": "ALL_F32", "f16": "MOSTLY_F16", "bf16": "MOSTLY_BF16", "q4_0": "MOSTLY_Q4_0", "q4_1": "MOSTLY_Q4_1",
         "q5_0": "MOSTLY_Q5_0", "q5_1": "MOSTLY_Q5_1", "q8_0": "MOSTLY_Q8_0", "q2_K": "MOSTLY_Q2_K", "q3_K": "MOSTLY_Q3_K_M",
         "q4_K": "MOSTLY_Q4_K_M", "q5_K": "MOSTLY_Q5_K_M", "q6_K": "MOSTLY_Q6_K", "iq4_nl": "MOSTLY_IQ4_NL",
         "iq4_xs": "MOSTLY_IQ4_XS"}


def quantize(source, target, kind, threads, requantize):
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = getattr(llama_cpp, "LLAMA_FTYPE_" + TYPES[kind])
    params.nthread = threads
    params.allow_requantize = requantize
    # The mixes called q4_K_M and so on give layers different types; here a file is of one type wherever its rows allow it.
    params.pure = kind not in ("f32", "f16", "bf16")
    if params.pure:
        params.token_embedding_type = params.output_tensor_type = llama_cpp.GGML_TYPE_Q8_0
    partial = target.with_suffix(".part")              # a stopped run leaves no file that looks whole
    code = llama_cpp.llama_model_quantize(str(source).encode(), str(partial).encode(), params)
    if code != 0:
        sys.exit(f"{target}: llama_model_quantize returned {code}")
    partial.rename(target)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("types", nargs="*", metavar="type", help=" ".join(TYPES))
    parser.add_argument("-t", "--threads", type=int, default=2)
    chosen = parser.parse_args()
    unknown = set(chosen.types) - set(TYPES)
    if unknown:
        parser.error(f"types: expected some of {' '.join(TYPES)}, found {' '.join(sorted(unknown))}")
    chosen.folder.mkdir(parents=True, exist_ok=True)
    stem = chosen.source.stem.rsplit(".", 1)[0]
    whole = chosen.folder / f"{stem}.f32.gguf"
    if not whole.exists():
        quantize(chosen.source, whole, "f32", chosen.threads, True)
    for kind in chosen.types or TYPES:
        target = chosen.folder / f"{stem}.{kind}.gguf"
        if not target.exists():
            quantize(whole, target, kind, chosen.threads, False)
        print(f"{target} {target.stat().st_size}")


if __name__ == "__main__":
    main()
