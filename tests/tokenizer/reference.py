"""Hugging Face `tokenizers` built from a vocabulary, and vocabularies from files: what the tokenizer is compared with.

A vocabulary is a dict with the members of TokenizerData (text/tokenizer.h): model, pre, tokens, token_types, merges, bos, ...
The pre-tokenizers are written as in the tokenizer.json published with each model; `default` has none and is spelt as
GGUF readers spell it.
"""
import base64
import json

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE

KINDS = ["smollm", "gpt-2", "llama-bpe", "qwen2", "default"]  # of the committed goldens
MORE_KINDS = ["tekken", "gpt-4o", "deepseek-v3"]
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
NORMAL, UNKNOWN, CONTROL, USER, UNUSED = 1, 2, 3, 4, 5


TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+%s|"
          r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*%s|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n/]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")
CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
DEEPSEEK = [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
            "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|"
            "\\s*[\r\n]+|\\s+(?!\\S)|\\s+"]


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), behavior="isolated")


def cutter(kind):
    """The pre-tokenizer without the mapping to the byte alphabet: its pieces are substrings of the text."""
    gpt2 = split(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
    steps = {
        "smollm": [pre_tokenizers.Digits(individual_digits=True), gpt2],
        "gpt-2": [gpt2],
        "llama-bpe": [split(LLAMA3 % "{1,3}")],
        "qwen2": [split(LLAMA3 % "")],
        "tekken": [split(TEKKEN % ("", "", ""))],
        "gpt-4o": [split(TEKKEN % (CONTRACTION, CONTRACTION, "{1,3}"))],
        "deepseek-v3": [split(pattern) for pattern in DEEPSEEK],
        "default": [split(r"[\p{P}\$\+<=>\^~\|]+"),
                    split(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"),
                    split(r"\p{N}+"), split("[0-9][0-9][0-9]")],
    }[kind]
    return pre_tokenizers.Sequence(steps)


def pre_tokenizer(kind):
    if kind == "gpt-2":
        return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if kind == "smollm":
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    return pre_tokenizers.Sequence([cutter(kind), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def normalizer(kind):
    return normalizers.NFC() if kind == "qwen2" else None


def build(vocabulary):
    """The reference tokenizer: tokens before the last normal one are in the model, the others are added behind it."""
    tokens, types = vocabulary["tokens"], vocabulary["token_types"]
    size = max(i for i, t in enumerate(types) if t == NORMAL) + 1
    model = BPE(vocab={t: i for i, t in enumerate(tokens[:size])},
                merges=[tuple(m.split(" ")) for m in vocabulary["merges"]],
                ignore_merges=vocabulary["pre"] in ("llama-bpe", "tekken"))
    out = Tokenizer(model)
    for i, token in enumerate(tokens):
        if types[i] in (UNKNOWN, CONTROL):
            out.add_special_tokens([AddedToken(token, special=True, normalized=False)])
        elif types[i] in (USER, UNUSED) and i >= size or types[i] == USER:
            out.add_tokens([AddedToken(token, special=False, normalized=False)])
        assert out.token_to_id(token) == i, (i, token)
    if normalizer(vocabulary["pre"]):
        out.normalizer = normalizer(vocabulary["pre"])
    out.pre_tokenizer = pre_tokenizer(vocabulary["pre"])
    out.decoder = decoders.ByteLevel()
    return out


def ids(tokenizer, text, parse_special):
    tokenizer.encode_special_tokens = not parse_special
    return tokenizer.encode(text, add_special_tokens=False).ids


def piece_lengths(kind, text):
    if normalizer(kind):
        text = normalizer(kind).normalize_str(text)
    return [len(piece.encode()) for piece, _ in cutter(kind).pre_tokenize_str(text)]


def byte_alphabet():
    """GPT-2's: one visible character per byte."""
    shown = [b for b in range(256) if 0x21 <= b <= 0x7E or 0xA1 <= b <= 0xAC or 0xAE <= b]
    hidden = [b for b in range(256) if b not in shown]
    return {b: chr(b) for b in shown} | {b: chr(256 + n) for n, b in enumerate(hidden)}


def from_gguf(path):
    import gguf
    fields = gguf.GGUFReader(path).fields

    def value(key, default=None):
        field = fields.get("tokenizer.ggml." + key)
        return default if field is None else field.contents()

    return {"model": value("model"), "pre": value("pre"), "tokens": value("tokens"), "token_types": value("token_type"),
            "merges": value("merges"), "bos": value("bos_token_id", -1), "eos": value("eos_token_id", -1),
            "unk": value("unknown_token_id", -1), "pad": value("padding_token_id", -1)}


def from_gpt2(encoder_json, vocab_bpe):
    by_id = sorted(json.loads(encoder_json).items(), key=lambda item: item[1])
    tokens = [t for t, _ in by_id]
    merges = [line for line in vocab_bpe.split("\n") if line and not line.startswith("#version")]
    types = [CONTROL if t == "<|endoftext|>" else NORMAL for t in tokens]
    return {"model": "gpt2", "pre": "gpt-2", "tokens": tokens, "token_types": types, "merges": merges}


def from_tiktoken(text, pre, specials, all_splits):
    """tiktoken's ranks as merges. all_splits: every way to halve a token into two others, as published for Llama-3;
    else only the one that lower ranks lead to, as published for Qwen."""
    ranks = {base64.b64decode(a): int(b) for a, b in (line.split() for line in text.splitlines() if line)}
    alphabet = byte_alphabet()
    spell = lambda data: "".join(alphabet[b] for b in data)
    ordered = sorted(ranks, key=ranks.get)
    merges = []
    for token in ordered:
        if len(token) == 1:
            continue
        if all_splits:
            halves = [(token[:i], token[i:]) for i in range(1, len(token)) if token[:i] in ranks and token[i:] in ranks]
            halves.sort(key=lambda h: (ranks[h[0]], ranks[h[1]]))
        else:
            parts = tiktoken_parts(ranks, token)
            halves = [tuple(parts)] if len(parts) == 2 else []
        merges += [spell(a) + " " + spell(b) for a, b in halves]
    return {"model": "gpt2", "pre": pre, "tokens": [spell(t) for t in ordered] + specials,
            "token_types": [NORMAL] * len(ordered) + [CONTROL] * len(specials), "merges": merges}


def tiktoken_parts(ranks, token):
    """What merging by ranks below the token's own leaves of it."""
    parts = [bytes([b]) for b in token]
    while len(parts) > 2:
        best = min(range(len(parts) - 1), key=lambda i: ranks.get(parts[i] + parts[i + 1], 1 << 30))
        if ranks.get(parts[best] + parts[best + 1], 1 << 30) >= ranks[token]:
            break
        parts[best:best + 2] = [parts[best] + parts[best + 1]]
    return parts
