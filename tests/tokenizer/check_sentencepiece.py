#!/usr/bin/env python3
"""SentencePiece vocabularies against the `sentencepiece` library on real models and several MB of text; run by hand, with the network.

Usage: check_sentencepiece.py TOKENIZE_FILE [DATA]      needs: pip install sentencepiece; Debian's apt-get and dpkg-deb
Models: Mistral's v1, v2 and v3 in the PyPI package mistral-common, and BPE and unigram models trained here with the library's own
nmt_nfkc. The text is that of check.py.
"""
import json
import os
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
            reference = sentencepiece.SentencePieceProcessor(model_proto=content)
            lists = check.ours(sys.argv[1], "plain-ids", content, folder)
            assert len(lists) == len(docs)
            tokens, bad = 0, 0
            for i, (text, ids) in enumerate(zip(docs, lists)):
                expected = reference.encode(text)
                tokens += len(expected)
                if ids != expected:
                    bad += 1
                    check.show_difference(f"{name} document {i}", ids, expected, reference.decode)
            print(f"{name}: {reference.get_piece_size():,} tokens; {tokens:,} ids compared, {bad} of {len(docs)} documents differ", flush=True)
            wrong += bad
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
