#!/usr/bin/env python3
"""One round of llama.cpp on a GGUF file, through the low-level interface of llama-cpp-python; run by compare_peers.py in an
environment of its own. Reads the tests as JSON on standard input, prints what came out as JSON.

As llama-bench does, the tokens are random ids and nothing is sampled; logits are computed for the last token of a prompt and for
every decoded one. A batch is allocated once per test: what Python does in a step is to call llama_decode.
"""
import ctypes
import json
import os
import random
import sys
import time

import llama_cpp as lib


def fill(batch, tokens):
    """tokens: (id, position, sequence, wants logits)."""
    batch.n_tokens = len(tokens)
    for i, (token, position, sequence, logits) in enumerate(tokens):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = token, position, 1, sequence, logits


def decode(context, batch):
    code = lib.llama_decode(context, batch)
    if code != 0:
        raise RuntimeError(f"llama_decode returned {code}")


class Engine:
    def __init__(self, path, tests):
        silent = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
        lib.llama_log_set(silent, None)
        self.silent = silent  # must live as long as the library may call it
        lib.llama_backend_init()
        params = lib.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model = lib.llama_model_load_from_file(path.encode(), params)
        if not self.model:
            raise RuntimeError(f"{path}: llama.cpp could not load it")
        self.vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self.model))
        rng = random.Random(0)
        longest = max(t["prompt"] + t["gen"] for t in tests)
        self.ids = [rng.randrange(self.vocab) for _ in range(longest)]

    def context(self, test):
        params = lib.llama_context_default_params()
        params.n_ctx = (test["prompt"] + test["gen"] + 32) // 32 * 32 * test["batch"]
        params.n_seq_max = test["batch"]
        params.n_batch = params.n_ubatch = 512
        params.n_threads = params.n_threads_batch = test["threads"]
        context = lib.llama_init_from_model(self.model, params)
        if not context:
            raise RuntimeError("llama.cpp could not make a context")
        return context

    def prefill(self, context, batch, prompt, sequence):
        for first in range(0, prompt, 512):
            part = range(first, min(first + 512, prompt))
            fill(batch, [(self.ids[i], i, sequence, i == prompt - 1) for i in part])
            decode(context, batch)

    def run(self, test):
        context = self.context(test)
        prompt, gen, sequences = test["prompt"], test["gen"], test["batch"]
        batch = lib.llama_batch_init(max(512, sequences), 0, 1)
        self.prefill(context, batch, min(prompt, 32), 0)  # warms up: memory of the graph, threads
        lib.llama_synchronize(context)
        lib.llama_memory_clear(lib.llama_get_memory(context), True)
        start = time.perf_counter()
        self.prefill(context, batch, prompt, 0)
        lib.llama_synchronize(context)
        prefill = time.perf_counter() - start
        for sequence in range(1, sequences):
            self.prefill(context, batch, prompt, sequence)
        fill(batch, [(0, 0, s, True) for s in range(sequences)])
        start = time.perf_counter()
        for step in range(gen):
            for s in range(sequences):
                batch.token[s] = self.ids[prompt + step]
                batch.pos[s] = prompt + step
            decode(context, batch)
            lib.llama_synchronize(context)
        seconds = time.perf_counter() - start
        lib.llama_batch_free(batch)
        lib.llama_free(context)
        return dict(test, prefill=prompt / prefill, decode=sequences * gen / seconds)


def main():
    asked = json.load(sys.stdin)
    engine = Engine(asked["model"], asked["tests"])
    found = [engine.run(test) for test in asked["tests"]]
    json.dump({"engine": "llama.cpp", "version": f"llama-cpp-python {lib.__version__}",
               "system": lib.llama_print_system_info().decode().strip(), "tests": found}, sys.stdout)
    sys.stdout.flush()
    os._exit(0)  # the model's memory goes with the process


if __name__ == "__main__":
    main()
