#!/usr/bin/env python3
"""SentencePiece vocabularies against the `sentencepiece` library on real models and several MB of text; run by hand, with the network.

Usage: check_sentencepiece.py TOKENIZE_FILE [DATA]      needs: pip install sentencepiece; Debian's apt-get and dpkg-deb
Models: Mistral's v1, v2 and v3 in the PyPI package mistral-common, and BPE and unigram models trained here with the library's own
nmt_nfkc. The text is that of check.py.
"""
import json
import os
import struct
import subprocess
import sys
import tempfile

import sentencepiece

import check
import texts

PREFIX = "mistral_common/data/"
MISTRAL = ["tokenizer.model.v1", "mistral_instruct_tokenizer_240216.model.v2", "mistral_instruct_tokenizer_240323.model.v3"]


def models(folder):
    for name, data in zip(MISTRAL, check.wheel_bytes("mistral-common", [PREFIX + n for n in MISTRAL], folder)):
        yield name, data
    for kind in ("bpe", "unigram"):
        prefix = os.path.join(folder, f"nmt_nfkc_{kind}")
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([t for t in texts.documents() if "\0" not in t]), model_prefix=prefix, vocab_size=4000, minloglevel=2,
            model_type=kind, hard_vocab_limit=False, user_defined_symbols=["<tool_call>", "ABC"], num_threads=1)
        with open(prefix + ".model", "rb") as file:
            yield f"trained here: {kind}, nmt_nfkc", file.read()


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
    data = sys.argv[2] if len(sys.argv) > 2 else os.path.join(root, "../shared/data")
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        docs = check.documents(data, folder)
        print(f"{len(docs)} documents, {sum(len(d.encode()) for d in docs):,} bytes")
        with open(os.path.join(folder, "documents.json"), "w", encoding="utf-8") as file:
            json.dump(docs, file)
        for name, content in models(folder):
            path, out = os.path.join(folder, "check.model"), os.path.join(folder, "out.bin")
            with open(path, "wb") as file:
                file.write(content)
            subprocess.run([sys.argv[1], "plain-ids", path, os.path.join(folder, "documents.json"), out], check=True)
            reference = sentencepiece.SentencePieceProcessor(model_proto=content)
            with open(out, "rb") as file:
                bytes_out = file.read()
            at, tokens, bad = 0, 0, 0
            for i, text in enumerate(docs):
                count = struct.unpack_from("<i", bytes_out, at)[0]
                ids = list(struct.unpack_from(f"<{count}i", bytes_out, at + 4))
                at += 4 + 4 * count
                expected = reference.encode(text)
                tokens += len(expected)
                if ids != expected:
                    bad += 1
                    first = next((k for k, (a, b) in enumerate(zip(ids, expected)) if a != b), min(len(ids), len(expected)))
                    print(f"  {name} document {i}: differs at token {first}: {ids[first:first + 5]}, reference "
                          f"{expected[first:first + 5]}: {reference.decode(expected[max(0, first - 5):first + 5])!r}")
            print(f"{name}: {reference.get_piece_size():,} tokens; {tokens:,} ids compared, {bad} of {len(docs)} documents differ", flush=True)
            wrong += bad
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
