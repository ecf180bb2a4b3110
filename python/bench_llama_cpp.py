#!/usr/bin/env python3
"""Prefill and decode speed of llama.cpp on a GGUF file, through the low-level interface of llama-cpp-python, as `llama-bench` names
its rows (pp: prompt tokens in one pass, tg: tokens decoded one at a time). Prints one JSON object.

  CMAKE_ARGS=-DGGML_NATIVE=ON pip install llama-cpp-python --no-binary llama-cpp-python
  python/bench_llama_cpp.py models/SmolLM2-135M-Instruct.Q4_1.gguf -t 1 2

The prompt is random ids; decoding is greedy. Each round runs every row once, so that a busy moment touches all rows alike; the
figure is the median of the rounds, the spread its extremes. The first round is not counted.
"""

import argparse
import ctypes
import json
import random
import statistics
import time

import llama_cpp as lib


def pass_of(context, ids, first):
    """One forward over `ids` at positions from `first` on; logits of the last."""
    batch = lib.llama_batch_init(len(ids), 0, 1)
    try:
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = token, first + i, 1, 0
            batch.logits[i] = i == len(ids) - 1
        code = lib.llama_decode(context, batch)
        if code != 0:
            raise RuntimeError(f"llama_decode returned {code}")
    finally:
        lib.llama_batch_free(batch)


def clear(context):
    lib.llama_memory_clear(lib.llama_get_memory(context), True)


def prefill(context, ids):
    clear(context)
    start = time.perf_counter()
    pass_of(context, ids, 0)
    lib.llama_synchronize(context)
    return len(ids) / (time.perf_counter() - start)


def decode(context, ids, count, sampler):
    """`count` greedy tokens after the prompt `ids`; the prompt's time does not count."""
    clear(context)
    pass_of(context, ids, 0)
    start = time.perf_counter()
    for i in range(count):
        pass_of(context, [lib.llama_sampler_sample(sampler, context, -1)], len(ids) + i)
    lib.llama_synchronize(context)
    return count / (time.perf_counter() - start)


def row(name, rates):
    return {"name": name, "tokens_per_s": round(statistics.median(rates), 2), "spread": [round(min(rates), 2), round(max(rates), 2)],
            "runs": len(rates)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("-t", "--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("-p", "--prompt", type=int, default=128, help="tokens of the prefill row (default 128)")
    parser.add_argument("-d", "--depth", type=int, default=16, help="prompt tokens before decoding (default 16)")
    parser.add_argument("-n", "--generate", type=int, default=128, help="tokens of the decode row (default 128)")
    parser.add_argument("-r", "--rounds", type=int, default=5)
    chosen = parser.parse_args()
    if min(chosen.prompt, chosen.depth, chosen.generate, chosen.rounds, *chosen.threads) < 1:
        parser.error("expected positive counts")
    silent = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
    lib.llama_log_set(silent, None)
    lib.llama_backend_init()
    model = lib.llama_model_load_from_file(chosen.model.encode(), lib.llama_model_default_params())
    if not model:
        parser.error(f"{chosen.model}: llama.cpp could not load it")
    vocabulary = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))
    sampler = lib.llama_sampler_init_greedy()
    rng = random.Random(0)
    ids = [rng.randrange(vocabulary) for _ in range(max(chosen.prompt, chosen.depth))]
    contexts = {}
    for threads in chosen.threads:
        params = lib.llama_context_default_params()
        params.n_ctx = max(chosen.prompt, chosen.depth + chosen.generate) + 1
        params.n_batch = params.n_ubatch = max(512, chosen.prompt, chosen.depth)
        params.n_threads = params.n_threads_batch = threads
        contexts[threads] = lib.llama_init_from_model(model, params)
    rates = {}
    for turn in range(chosen.rounds + 1):
        for threads, context in contexts.items():
            found = {f"pp{chosen.prompt}": prefill(context, ids[:chosen.prompt]),
                     f"tg{chosen.generate}": decode(context, ids[:chosen.depth], chosen.generate, sampler)}
            for name, rate in found.items() if turn else ():
                rates.setdefault((name, threads), []).append(rate)
    rows = [dict(row(name, values), threads=threads) for (name, threads), values in sorted(rates.items())]
    print(json.dumps({"engine": f"llama-cpp-python {lib.__version__}", "system": lib.llama_print_system_info().decode().strip(),
                      "model": chosen.model.rsplit("/", 1)[-1], "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
