#!/usr/bin/env python3
"""Writes tests/tokenizer/goldens/: what Hugging Face `tokenizers` makes of the committed texts.

Usage: make_goldens.py [MODEL.gguf [DATA]]     needs: pip install tokenizers gguf
  texts.json      the documents (texts.py)
  splits.json     per pre-tokenizer and document: the byte lengths of its pieces, after normalisation
  toy.json        a small vocabulary trained here on the texts, with control, user-defined and unused tokens, and tokens that
                  no merge makes
  toy_ids.json    per pre-tokenizer and document: ids with special tokens parsed, and not
  smollm.json     the same for the vocabulary of MODEL.gguf; and for the files of DATA (not committed) the ids' hashes
Documents from HASHED on, and the files, are given as "count:hash", the hash being the first 16 digits of the SHA-256 of the
numbers as little-endian int32.
"""
import hashlib
import json
import os
import struct
import sys

import reference
import texts
from tokenizers import Tokenizer, pre_tokenizers, trainers
from tokenizers.models import BPE

HASHED = len(texts.TRICKY)
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "goldens")
DATA_FILES = ["wikitext2_raw/wiki.test.raw", "humaneval/test.jsonl", "mbpp/test_11-260.jsonl", "gsm8k/test.jsonl"]


def hashed(numbers):
    return f"{len(numbers)}:{hashlib.sha256(struct.pack(f'<{len(numbers)}i', *numbers)).hexdigest()[:16]}"


def compact(lists):
    return [numbers if i < HASHED else hashed(numbers) for i, numbers in enumerate(lists)]


def write(name, value):
    with open(os.path.join(FOLDER, name), "w", encoding="utf-8") as file:
        json.dump(value, file, ensure_ascii=False, separators=(",", ":"))
        file.write("\n")


def toy_vocabulary(documents):
    trained = Tokenizer(BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.train_from_iterator(documents, trainers.BpeTrainer(
        vocab_size=1500, show_progress=False, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    model = json.loads(trained.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    unmade = [t for t in ["Hello", "Ġsystem", "1234", "123", "ĠSTRASSE", "æīĢæľī", "ĊĊĊ", "Ġquick"] if t not in tokens]
    control = ["<|im_start|>", "<|im_end|>", "<|im_start|>x", "<|im|>", "<|endoftext|>"]
    user = ["<tool_call>", "</tool_call>", "<a b>", "im_end"]
    unused = ["[PAD0]", "[PAD1]"]
    tokens += unmade
    return {"model": "gpt2", "pre": "gpt-2", "tokens": tokens + control + user + unused,
            "token_types": [1] * len(tokens) + [3] * len(control) + [4] * len(user) + [5] * len(unused), "merges": merges,
            "bos": len(tokens) + 4, "eos": len(tokens) + 1}


def both_ways(vocabulary, documents):
    """"plain" is "=" where it is the same as "parsed"."""
    tokenizer = reference.build(vocabulary)
    parsed = compact([reference.ids(tokenizer, text, True) for text in documents])
    plain = compact([reference.ids(tokenizer, text, False) for text in documents])
    return {"parsed": parsed, "plain": ["=" if a == b else b for a, b in zip(parsed, plain)]}


def file_hashes(vocabulary, data):
    tokenizer, out = reference.build(vocabulary), {}
    for name in DATA_FILES:
        with open(os.path.join(data, name), encoding="utf-8", newline="") as file:
            out[name] = hashed(reference.ids(tokenizer, file.read(), True))
    return out


def main():
    root = os.path.join(FOLDER, "../../..")
    model = sys.argv[1] if len(sys.argv) > 1 else os.path.join(root, "models/SmolLM2-135M-Instruct.Q4_1.gguf")
    data = sys.argv[2] if len(sys.argv) > 2 else os.path.join(root, "../shared/data")
    os.makedirs(FOLDER, exist_ok=True)
    documents = texts.documents()
    write("texts.json", documents)
    write("splits.json", {k: compact([reference.piece_lengths(k, t) for t in documents]) for k in reference.KINDS})
    toy = toy_vocabulary(documents)
    write("toy.json", toy)
    write("toy_ids.json", {k: both_ways(toy | {"pre": k}, documents) for k in reference.KINDS})
    vocabulary = reference.from_gguf(model)
    write("smollm.json", both_ways(vocabulary, documents) | {"files": file_hashes(vocabulary, data)})


if __name__ == "__main__":
    main()
