#!/usr/bin/env python3
"""Writes tests/tokenizer/goldens/json/: small tokenizer.json files, and what Hugging Face `tokenizers` makes of the texts with them.

Usage: make_json_goldens.py     needs: pip install tokenizers
  byte_bpe.json char_bpe.json unigram.json   trained here on the texts of the goldens; a file that is there is kept, since unigram
                                             training gives another one each time
  variants.json   per name: the file it is made of, the members that replace that file's, and the results: per document the ids
                  with special tokens parsed and not ("=": the same), and the first 16 digits of the SHA-256 of the text that the
                  parsed ones decode to without special tokens
The members are written as in the tokenizer.json published with the models named.
"""
import hashlib
import json
import os

from tokenizers import Tokenizer, normalizers, pre_tokenizers, trainers
from tokenizers.models import BPE, Unigram

import reference
import texts
from make_goldens import compact

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "goldens", "json")
MARK = "\u2581"


def split(pattern, behavior="Isolated", kind="Regex", invert=False):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def sequence(*steps, key="pretokenizers"):
    return {"type": "Sequence", key: list(steps)}


def byte_level(use_regex=False, prefix=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": use_regex}


def metaspace(scheme, cut):
    return {"type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme, "split": cut}


def template(*names):
    return {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": n, "type_id": 0}} for n in names] + [{"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {n: {"id": n, "ids": [0], "tokens": [n]} for n in names}}


def replace(old, new):
    return {"type": "Replace", "pattern": {"String": old}, "content": new}


def strip(start):
    return {"type": "Strip", "content": " ", "start": start, "stop": 0}


MARKS = replace(MARK, " ")
LLAMA_DECODER = sequence(MARKS, {"type": "ByteFallback"}, {"type": "Fuse"}, strip(1), key="decoders")
GEMMA_DECODER = sequence(MARKS, {"type": "ByteFallback"}, {"type": "Fuse"}, key="decoders")
NFC = {"type": "NFC"}
# name: (file, members)
VARIANTS = {
    "gpt2": ("byte_bpe", {}),
    "prefix": ("byte_bpe", {"pre_tokenizer": byte_level(True, True)}),
    "llama3": ("byte_bpe", {"pre_tokenizer": sequence(split(reference.LLAMA3 % "{1,3}"), byte_level()), "model.ignore_merges": True,
                            "post_processor": sequence(byte_level(True, True), template("<|endoftext|>"), key="processors")}),
    "qwen2": ("byte_bpe", {"normalizer": NFC, "pre_tokenizer": sequence(split(reference.LLAMA3 % ""), byte_level())}),
    "smollm2": ("byte_bpe", {"pre_tokenizer": sequence({"type": "Digits", "individual_digits": True}, byte_level(True))}),
    "olmo": ("byte_bpe", {"normalizer": NFC, "pre_tokenizer": byte_level(True)}),
    "tekken": ("byte_bpe", {"pre_tokenizer": sequence(split(reference.TEKKEN % ("", "", "")), byte_level()), "model.ignore_merges": True}),
    "gpt4o": ("byte_bpe", {"pre_tokenizer": sequence(split(reference.TEKKEN % (reference.CONTRACTION, reference.CONTRACTION, "{1,3}")), byte_level())}),
    "deepseek3": ("byte_bpe", {"normalizer": sequence(key="normalizers"), "pre_tokenizer": sequence(*map(split, reference.DEEPSEEK), byte_level())}),
    "cuts": ("byte_bpe", {"pre_tokenizer": sequence(
        split("a", "MergedWithNext", "String"), split(".", "Contiguous", "String"), {"type": "Punctuation", "behavior": "MergedWithPrevious"},
        {"type": "Digits", "individual_digits": False}, split("e", "Isolated", "String", True), byte_level())}),
    "words": ("byte_bpe", {"normalizer": sequence({"type": "NFKD"}, {"type": "Lowercase"}, {"type": "Strip", "strip_left": True, "strip_right": True},
                                                  replace("hello", "bye"), key="normalizers"),
                           "pre_tokenizer": sequence({"type": "WhitespaceSplit"}, byte_level())}),
    "llama2": ("char_bpe", {}),
    "mistral": ("char_bpe", {"normalizer": None, "pre_tokenizer": metaspace("first", False)}),
    "gemma": ("char_bpe", {"normalizer": replace(" ", MARK), "pre_tokenizer": split(" ", "MergedWithPrevious", "String"), "decoder": GEMMA_DECODER}),
    "no_bytes": ("char_bpe", {"model.byte_fallback": False, "model.fuse_unk": False, "decoder": sequence(MARKS, {"type": "Fuse"}, strip(1), key="decoders")}),
    "fused": ("char_bpe", {"model.byte_fallback": False, "decoder": sequence(MARKS, {"type": "Fuse"}, strip(1), key="decoders")}),
    "unigram": ("unigram", {}),
    "unigram_whole": ("unigram", {"normalizer": NFC, "pre_tokenizer": metaspace("never", False), "decoder": metaspace("never", False)}),
}


def token(number, content, special=False, **flags):
    return {"id": number, "content": content, "special": special,
            **{"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}, **flags}


def added_tokens(size):
    """Behind the vocabulary. No id is left out: `tokenizers` would give the next ones other ids than the file says."""
    return [token(size, "<|im_start|>", True), token(size + 1, "<|im_end|>", True), token(size + 2, "<|im_start|>x", True),
            token(size + 3, "<tool_call>", lstrip=True, rstrip=True), token(size + 4, "</tool_call>"), token(size + 5, "im_end", single_word=True),
            token(size + 6, "Hello, w", normalized=True), token(size + 7, "jumps over", normalized=True, single_word=True)]


def finish(tokenizer, first):
    value = json.loads(tokenizer.to_str())
    vocab = value["model"]["vocab"]
    ids = vocab if isinstance(vocab, dict) else {t: i for i, (t, _) in enumerate(vocab)}
    value["added_tokens"] = [token(i, t, True) for i, t in enumerate(first)]
    value["added_tokens"] += [t | {"id": ids.get(t["content"], t["id"])} for t in added_tokens(len(vocab))]
    return value


def train_byte_bpe(documents):
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(documents, trainers.BpeTrainer(
        vocab_size=1000, show_progress=False, special_tokens=["<|endoftext|>"], initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    value = finish(tokenizer, ["<|endoftext|>"])
    return value | {"decoder": byte_level(True, True), "post_processor": byte_level(True)}


def train_char_bpe(documents):
    first = ["<unk>", "<s>", "</s>"]
    tokenizer = Tokenizer(BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.train_from_iterator(documents, trainers.BpeTrainer(
        vocab_size=1000, show_progress=False, limit_alphabet=150, special_tokens=first + [f"<0x{b:02X}>" for b in range(256)]))
    value = finish(tokenizer, first)
    return value | {"pre_tokenizer": None, "decoder": LLAMA_DECODER, "post_processor": template("<unk>")}


def train_unigram(documents):
    tokenizer = Tokenizer(Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.train_from_iterator(documents, trainers.UnigramTrainer(
        vocab_size=700, show_progress=False, special_tokens=["<s>", "</s>", "<unk>"], unk_token="<unk>"))
    value = finish(tokenizer, ["<s>", "</s>", "<unk>"])
    return value | {"pre_tokenizer": metaspace("always", True), "decoder": metaspace("always", True)}


def apply(base, members):
    value = json.loads(json.dumps(base))
    for key, member in members.items():
        if key.startswith("model."):
            value["model"][key[6:]] = member
        else:
            value[key] = member
    return value


def results(value, documents):
    tokenizer = Tokenizer.from_str(json.dumps(value))
    parsed = [reference.ids(tokenizer, text, True) for text in documents]
    plain = [reference.ids(tokenizer, text, False) for text in documents]
    decoded = [hashlib.sha256(tokenizer.decode(ids, skip_special_tokens=True).encode()).hexdigest()[:16] for ids in parsed]
    parsed, plain = compact(parsed), compact(plain)
    return {"parsed": parsed, "plain": ["=" if a == b else b for a, b in zip(parsed, plain)], "decoded": decoded}


def write(name, value):
    with open(os.path.join(FOLDER, name), "w", encoding="utf-8") as file:
        json.dump(value, file, ensure_ascii=False, separators=(",", ":"))
        file.write("\n")


def main():
    os.makedirs(FOLDER, exist_ok=True)
    documents = texts.documents()
    bare = [t for t in documents if not any(a["content"] in t for a in added_tokens(0))]  # no merge may make a control token
    bases = {}
    for name, train in {"byte_bpe": train_byte_bpe, "char_bpe": train_char_bpe, "unigram": train_unigram}.items():
        if not os.path.exists(os.path.join(FOLDER, name + ".json")):
            write(name + ".json", train(bare))
        with open(os.path.join(FOLDER, name + ".json"), encoding="utf-8") as file:
            bases[name] = json.load(file)
    write("variants.json", {name: {"file": base, "members": members, "results": results(apply(bases[base], members), documents)}
                            for name, (base, members) in VARIANTS.items()})


if __name__ == "__main__":
    main()
