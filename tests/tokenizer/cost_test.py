#!/usr/bin/env python3
"""Encoding is near-linear: 10x the text takes at most 15x the instructions (callgrind), whatever the text.

Usage: cost_test.py ENCODE_COST GOLDENS [SIZE]      exit status 77: skipped, valgrind is not installed
One letter, one space and one digit, repeated, are the worst cases: one pre-token as long as the text (or, for digits, as
many pre-tokens as it has bytes).
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

LIMIT = 15.0
TOY, LLAMA, UNIGRAM = "toy.json", "sentencepiece/llama.model", "sentencepiece/unigram_bytes.model"
CASES = [(TOY, "gpt-2", "a"), (TOY, "gpt-2", " "), (TOY, "llama-bpe", "a"), (TOY, "llama-bpe", " "), (TOY, "smollm", "7"), (TOY, "qwen2", "."),
         (TOY, "tekken", "A"), (LLAMA, "-", "a"), (LLAMA, "-", " "), (UNIGRAM, "-", "a")]


def instructions(program, vocabulary, pre, character, count):
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run(["valgrind", "--tool=callgrind", "--collect-atstart=no", "--toggle-collect=measured_encode",
                              "--callgrind-out-file=" + os.path.join(folder, "out"), program, vocabulary, pre, character,
                              str(count)], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{program} {pre} {character!r} {count}: status {run.returncode}\n{run.stderr}")
    collected = re.search(r"Collected\s*:\s*(\d+)", run.stderr)
    if not collected or int(collected.group(1)) < count:
        sys.exit(f"callgrind counted nothing in measured_encode:\n{run.stderr}")
    return int(collected.group(1))


def main():
    if not shutil.which("valgrind"):
        print("skipped: valgrind is not installed")
        sys.exit(77)
    program, goldens = sys.argv[1:3]
    size = int(sys.argv[3]) if len(sys.argv) > 3 else 10000
    bad = 0
    for vocabulary, pre, character in CASES:
        small, large = (instructions(program, os.path.join(goldens, vocabulary), pre, character, n) for n in (size, 10 * size))
        print(f"{vocabulary} {pre} {character!r} x {size}: {small:,}; x {10 * size}: {large:,} instructions; {large / small:.2f} times")
        bad += large > LIMIT * small
    if bad:
        sys.exit(f"{bad} of {len(CASES)} cases take more than {LIMIT:g} times the instructions for 10 times the text")


if __name__ == "__main__":
    main()
