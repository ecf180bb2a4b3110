"""A small reference of the pruning methods, to check the engine against.

Written from the method page (pop-method.md) alone: no line of it follows the C++ code, so that an error has to be made twice,
independently, to go unseen. It is meant to be read next to the page: section numbers below are the page's. Speed is no aim.

The network is that of the dense families (llama, qwen2, qwen3) in float32 NumPy on weights dequantised from a GGUF file. Pruning is one hook: at four sites of
a block the method sees the input `x` of a matrix and may answer with a mask of the entries to keep; the others are set to 0.
Dropping an FFN channel (POP) is a 0 at the site `down`; skipping a column (`pop+`) is a 0 at any site.

Everything is teacher-forced: the tokens are given. A row of decode then depends on earlier rows through the KV cache only, so
all decoded tokens run as the rows of one forward with causal attention; every row still gets its own mask.
"""

import copy
import math
from dataclasses import dataclass, field

import numpy as np

from pop_formulas import (Partition, add_squares, aggregate, best, bin_edge, bins, choose_columns, column_norms, column_scores,  # noqa: F401
                          ffn_sparsity, fine_mask, histogram, kept_count, least_columns, partition, rank_ascending, round_half_away,
                          score_down, score_gate_up, threshold)

SITE_WEIGHTS = {"qkv": ("attn_q", "attn_k", "attn_v"), "o": ("attn_output",), "gate_up": ("ffn_gate", "ffn_up"),
                "down": ("ffn_down",)}
SITES = tuple(SITE_WEIGHTS)


# ---------------------------------------------------------------------------------------------------------------------
# Methods: what they see in the prompt (observe), and what they keep of one decoded row (select)
# ---------------------------------------------------------------------------------------------------------------------
class Dense:
    """Keeps everything. `chosen[layer, site]` and `scores[layer, site]` hold what decode did, one row per token."""

    def __init__(self, model):
        self.model, self.chosen, self.scores, self.rows = model, {}, {}, {}

    def observe(self, site, layer, x):
        """The whole prompt's rows x [T, width]; an answer other than None masks the prompt itself."""

    def select(self, site, layer, x):
        """Rows of decode; the answer is a bool array of x's shape, or None for all."""

    def record(self, site, layer, keep, scores):
        self.rows[layer, site] = self.model.rows.get(layer)     # of an expert: which decoded tokens these are
        self.chosen[layer, site], self.scores[layer, site] = keep, scores
        return keep


class Pop(Dense):
    """POP of arXiv 2602.06822. gamma 0 is `fixed`, gamma 2 is `full`."""

    def __init__(self, model, p, gamma=0.1, metric="down", norm=None, decode_metric=None, prefill="dense", min_tokens=8):
        super().__init__(model)
        if not 0 <= gamma <= 2:
            raise ValueError(f"gamma: expected 0 to 2, found {gamma}")
        self.p, self.gamma = p, gamma
        self.metric = "gate-up" if prefill == "pruned" else metric
        self.decode_metric = decode_metric or self.metric
        self.norm, self.prefill = norm, prefill
        self.min_tokens = min_tokens                     # section 7
        self.partitions, self.x, self.seen, self.router_x = {}, {}, {}, {}

    def norm_of(self, metric):
        return self.norm or ("2" if metric == "down" else "max")

    def observe(self, site, layer, x):
        if site == "router":                             # x of all tokens, before any expert's
            self.router_x[layer] = x
        if site == "gate_up":
            self.x[layer] = x
        if site != "down":
            return None
        if isinstance(layer, tuple) and layer[1] < self.model.experts and len(x) < self.min_tokens:
            return None
        d = self.model.ffn(layer)
        if self.metric == "down":
            scores = score_down(add_squares(np.zeros(x.shape[1]), x), d["ffn_down"], self.norm_of("down"))
        else:
            x_norm = np.sqrt(add_squares(np.zeros(self.x[layer].shape[1]), self.x[layer]))
            scores = score_gate_up(x_norm[None], d["ffn_gate"], d["ffn_up"], self.norm_of("gate-up"))[0]
        self.partitions[layer] = partition(scores, self.p, self.gamma)
        if self.prefill == "dense":
            return None
        keep = np.zeros(x.shape[1], dtype=bool)
        keep[best(scores, np.arange(len(scores)), self.partitions[layer].kept)] = True
        return np.broadcast_to(keep, x.shape)

    def partition_of(self, place):
        """Of an expert that saw too few tokens: from the x of all tokens of its layer, by gate-up."""
        if place not in self.partitions:
            x = self.router_x[place[0]]
            d, x_norm = self.model.ffn(place), np.sqrt(add_squares(np.zeros(x.shape[1]), x))
            scores = score_gate_up(x_norm[None], d["ffn_gate"], d["ffn_up"], self.norm_of("gate-up"))[0]
            self.partitions[place] = partition(scores, self.p, self.gamma)
        return self.partitions[place]

    def token_scores(self, layer, h):
        """The scores of each decoded row alone (section 5.2)."""
        d = self.model.ffn(layer)
        if self.decode_metric == "down":
            return np.abs(h) * aggregate(np.abs(d["ffn_down"]), self.norm_of("down"), axis=0)
        return score_gate_up(np.abs(self.x[layer]), d["ffn_gate"], d["ffn_up"], self.norm_of("gate-up"))

    def select(self, site, layer, x):
        if site == "gate_up":
            self.x[layer] = x
        if site != "down":
            return None
        scores = self.token_scores(layer, x)
        keep = np.stack([fine_mask(self.partition_of(layer), s) for s in scores])
        return self.record(site, layer, keep, scores)


SITE_SHARE = {"qkv": 1.0, "o": 1.0, "gate_up": 0.8, "down": 1.6}
MAX_LEVEL = 0.95


def spread_level(v, weights, share=SITE_SHARE):
    """The level of each site, in proportion to its share and at most MAX_LEVEL, that skips v of all `weights` {site: elements}."""
    capped, total = set(), sum(weights.values())
    while True:
        free = [s for s in weights if s not in capped]
        left = v * total - sum(MAX_LEVEL * weights[s] for s in capped)
        scale = left / sum(weights[s] * share[s] for s in free) if free else 0.0
        over = {s for s in free if scale * share[s] >= MAX_LEVEL}
        if not over:
            return {s: MAX_LEVEL if s in capped else scale * share[s] for s in weights}
        capped |= over


def layer_of(place):
    """A place is a layer, or (layer, expert)."""
    return place[0] if isinstance(place, tuple) else place


def counted_rows(model, place, count):
    """bool [count]: the prompt's rows that thresholds rest on; of an expert, of those that went through it."""
    positions = model.rows.get(place)
    positions = np.arange(count) if positions is None else positions
    return positions > 0 if model.tokens > 1 else positions == 0


class PopPlus(Dense):
    """`pop+`: columns of every matrix, thresholds from the prompt. rule: "sites", or "prompt" (its first form, v at every site)."""

    def __init__(self, model, v, rule="sites"):
        super().__init__(model)
        if not 0 <= v <= MAX_LEVEL:
            raise ValueError(f"level: expected 0 to 0.95, found {v}; the largest ratio is 0.95")
        sizes = {site: sum(model.used_elements(layer, site) for layer in range(len(model.layers))) for site in SITE_WEIGHTS}
        self.levels = dict.fromkeys(sizes, v) if rule == "prompt" else spread_level(v, sizes)
        self.tau, self.counts = {}, {}

    def observe(self, site, layer, x):
        """All (token, expert) pairs of a layer are counted together."""
        if site == "router":                             # of a layer whose experts follow
            self.counts[layer, "gate_up"] = self.counts[layer, "down"] = 0
            return
        scores = column_scores(x, self.model.column_norms(layer, site))
        key = layer_of(layer), site
        before = self.counts[key] if isinstance(layer, tuple) else 0
        self.counts[key] = before + histogram(scores[counted_rows(self.model, layer, len(x))])
        self.tau[key] = threshold(self.counts[key], self.levels[site])

    def select(self, site, layer, x):
        if site == "router":
            return None
        scores = column_scores(x, self.model.column_norms(layer, site))
        keep = np.stack([choose_columns(s, self.tau[layer_of(layer), site], self.levels[site]) for s in scores])
        return self.record(site, layer, keep, scores)


class Replay(Dense):
    """Keeps what it is told (`told[layer, site]`: bool [tokens, width]) while `scorer` says what it would have seen."""

    def __init__(self, scorer, told):
        super().__init__(scorer.model)
        self.scorer, self.told = scorer, told

    def observe(self, site, layer, x):
        return self.scorer.observe(site, layer, x)

    def select(self, site, layer, x):
        self.scorer.select(site, layer, x)
        self.scores = self.scorer.scores
        return self.told.get((layer, site))


# ---------------------------------------------------------------------------------------------------------------------
# The network
# ---------------------------------------------------------------------------------------------------------------------
@dataclass
class Cache:
    """Keys and values so far, per layer [kv heads, tokens, head width]. Arrays are replaced, never written to."""
    k: dict = field(default_factory=dict)
    v: dict = field(default_factory=dict)
    tokens: int = 0

    def branch(self):
        return Cache(copy.copy(self.k), copy.copy(self.v), self.tokens)


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def log_softmax(logits):
    z = logits.astype(np.float64)
    z = z - z.max(axis=-1, keepdims=True)
    return z - np.log(np.exp(z).sum(axis=-1, keepdims=True))


class Llama:
    """A model of a GGUF file: Llama, or one that adds biases (qwen2), norms of heads (qwen3), a window, experts, Gemma's or Phi-3's
    parts. dtype float64 shows how far rounding alone moves a result; context: of texts, where that decides their positions."""

    def __init__(self, path, dtype=np.float32, context=0):
        import gguf

        reader = gguf.GGUFReader(path)
        self.dtype = dtype
        tensors = {t.name: np.asarray(gguf.quants.dequantize(t.data, t.tensor_type), dtype=np.float32).astype(dtype)
                   for t in reader.tensors}
        meta = {k: f.contents() for k, f in reader.fields.items() if not k.startswith(("tokenizer.", "GGUF."))}
        self.meta = meta
        arch = meta["general.architecture"]
        if arch not in ("llama", "qwen2", "qwen3", "qwen2moe", "qwen3moe", "gemma2", "gemma3", "phi3", "olmoe"):
            raise ValueError(f"{path}: expected llama, qwen2, qwen3, one of their mixtures of experts, gemma2, gemma3, phi3 or olmoe, "
                             f"found {arch}")
        get = lambda key, default=None: meta.get(f"{arch}.{key}", default)
        self.neighbours = arch == "llama"
        window, layers = get("attention.sliding_window", 0) or 1 << 30, get("block_count")
        every = {"gemma2": 2, "gemma3": 6}.get(arch, layers + 1)                  # so many layers, the last of which sees all
        self.windows = [1 << 30 if (i + 1) % every == 0 else window for i in range(layers)]
        self.width = get("embedding_length")
        self.heads = get("attention.head_count")
        self.kv_heads = get("attention.head_count_kv", self.heads)
        self.head_width = get("attention.key_length", self.width // self.heads)
        self.epsilon = get("attention.layer_norm_rms_epsilon")
        self.gelu = arch in ("gemma2", "gemma3")
        self.scale = get("attention.scale", 1 / math.sqrt(self.head_width))
        self.caps = get("attn_logit_softcapping", 0), get("final_logit_softcapping", 0)
        self.embedding = tensors["token_embd.weight"]
        self.head = tensors.get("output.weight", self.embedding)
        self.output_norm = tensors["output_norm.weight"]
        self.layers = [{name[len(f"blk.{i}."):].removesuffix(".weight"): w for name, w in tensors.items()
                        if name.startswith(f"blk.{i}.")} for i in range(layers)]
        for d in self.layers if arch == "phi3" else []:
            q, kv = self.heads * self.head_width, self.kv_heads * self.head_width
            d["attn_q"], d["attn_k"], d["attn_v"] = np.split(d.pop("attn_qkv"), [q, q + kv])
            d["ffn_gate"], d["ffn_up"] = np.split(d["ffn_up"], 2)
        self.inner = (self.layers[0]["ffn_gate"] if "ffn_gate" in self.layers[0] else self.layers[0]["ffn_gate_exps"][0]).shape[0]
        rotated, divisors = get("rope.dimension_count", self.head_width), tensors.get("rope_freqs.weight")
        original = get("rope.scaling.original_context_length", 0)
        if "rope_factors_long.weight" in tensors:
            divisors = tensors[f"rope_factors_{'long' if context > original else 'short'}.weight"]
        self.frequencies, self.rope_scale = rope_frequencies(get, rotated, divisors)
        if "rope_factors_long.weight" in tensors:                                 # LongRoPE, arXiv 2402.13753
            self.rope_scale = math.sqrt(1 + math.log(get("context_length") / original) / math.log(original))
        self.window_frequencies = self.frequencies
        if arch == "gemma3":
            self.window_frequencies = 10000.0 ** (-np.arange(0, rotated, 2) / rotated)
        self._column_norms = {}
        self.experts_used = get("expert_used_count", 0)
        self.experts = get("expert_count", 0)
        self.normalised = get("expert_weights_norm", arch not in ("qwen2moe", "olmoe"))
        self.clip, self.whole_norm = get("attention.clamp_kqv", math.inf), arch == "olmoe"     # norms over all heads together
        self.rows, self.tokens, self.gap = {}, 0, None    # of the last forward: who went where, how many, how clearly

    def ffn(self, place):
        """ffn_gate, ffn_up, ffn_down of a layer, or of (layer, expert)."""
        d = self.layers[layer_of(place)]
        if not isinstance(place, tuple):
            return d
        if place[1] == self.experts:                   # the shared one stands last
            return {f"ffn_{n}": d[f"ffn_{n}_shexp"] for n in ("gate", "up", "down")}
        return {f"ffn_{n}": d[f"ffn_{n}_exps"][place[1]] for n in ("gate", "up", "down")}

    def places(self, layer):
        """Where a layer's FFNs are."""
        d = self.layers[layer]
        return [(layer, e) for e in range(self.experts + ("ffn_up_shexp" in d))] if "ffn_gate_inp" in d else [layer]

    def matrices(self, place):
        return self.ffn(place) if isinstance(place, tuple) else self.layers[place]

    def used_elements(self, layer, site):
        """Weights of a site that one token uses."""
        d = self.layers[layer]
        if "ffn_gate_inp" not in d or site in ("qkv", "o"):
            return float(sum(d[n].size for n in SITE_WEIGHTS[site]))
        return float(sum(d[n + "_exps"].size for n in SITE_WEIGHTS[site])) * self.experts_used / self.experts

    def sparsity_for(self, ratio, of="blocks"):
        """p of section 2 for this model."""
        d = self.layers[0]
        attention = sum(d[n].size for n in ("attn_q", "attn_k", "attn_v", "attn_output"))
        many = "_exps" if self.experts else ""
        ffn = sum(d[n + many].size for n in ("ffn_gate", "ffn_up", "ffn_down"))
        if of == "active" and self.experts:
            ffn = ffn * self.experts_used / self.experts
        outside = 0
        if of == "total":
            outside = self.embedding.size + (0 if self.head is self.embedding else self.head.size)
        return ffn_sparsity(ratio, attention, ffn, len(self.layers), outside)

    def column_norms(self, layer, site):
        """c of section 8b, made once."""
        if (layer, site) not in self._column_norms:
            self._column_norms[layer, site] = column_norms(*(self.matrices(layer)[n] for n in SITE_WEIGHTS[site]))
        return self._column_norms[layer, site]

    def norm(self, x, weight):
        mean = (x * x).mean(axis=-1, keepdims=True, dtype=self.dtype)
        return x / np.sqrt(mean + self.dtype(self.epsilon)) * weight

    def rope(self, x, first, frequencies):
        """Rotates pairs of x [heads, T, head width]: (2i, 2i + 1), the order in which GGUF files keep W_q and W_k of llama, or
        (i, i + half)."""
        angles = (first + np.arange(x.shape[1]))[:, None] * frequencies[None, :]
        cos = (np.cos(angles) * self.rope_scale).astype(self.dtype)
        sin = (np.sin(angles) * self.rope_scale).astype(self.dtype)
        n = 2 * len(frequencies)
        a, b = (slice(0, n, 2), slice(1, n, 2)) if self.neighbours else (slice(0, n // 2), slice(n // 2, n))
        out = x.copy()
        out[..., a] = x[..., a] * cos - x[..., b] * sin
        out[..., b] = x[..., a] * sin + x[..., b] * cos
        return out

    def attention(self, layer, x, cache):
        """x [T, width], masked already -> [T, heads * head width]."""
        d, rows = self.layers[layer], len(x)

        def heads(part, count):
            y = x @ d[f"attn_{part}"].T + d.get(f"attn_{part}.bias", self.dtype(0))
            weight = d.get(f"attn_{part}_norm")
            whole = weight is not None and self.whole_norm
            y = np.clip(self.norm(y, weight) if whole else y, -self.clip, self.clip)
            y = y.reshape(rows, count, self.head_width).transpose(1, 0, 2)
            return self.norm(y, weight) if weight is not None and not whole else y

        frequencies = self.frequencies if self.windows[layer] == 1 << 30 else self.window_frequencies
        q = self.rope(heads("q", self.heads), cache.tokens, frequencies)
        k = self.rope(heads("k", self.kv_heads), cache.tokens, frequencies)
        v = heads("v", self.kv_heads)
        if layer in cache.k:
            k = np.concatenate([cache.k[layer], k], axis=1)
            v = np.concatenate([cache.v[layer], v], axis=1)
        cache.k[layer], cache.v[layer] = k, v
        group = self.heads // self.kv_heads
        k, v = np.repeat(k, group, axis=0), np.repeat(v, group, axis=0)
        scores = soft_cap((q @ k.transpose(0, 2, 1)) * self.dtype(self.scale), self.dtype(self.caps[0]))
        before = cache.tokens + np.arange(rows)[:, None] - np.arange(k.shape[1])[None, :]
        visible = (before >= 0) & (before < self.windows[layer])
        weights = softmax(np.where(visible[None], scores, self.dtype(-np.inf)))
        return (weights @ v).transpose(1, 0, 2).reshape(rows, -1)

    def forward(self, ids, cache, ask):
        """Logits [T, vocabulary] of the rows `ids`; `ask(site, layer, x)` may answer with a mask. The cache grows."""
        x = self.embedding[np.asarray(ids)] * self.dtype(math.sqrt(self.width) if self.gelu else 1)
        self.tokens, self.gap, self.rows = len(ids), np.full(len(ids), np.inf), {}

        def masked(site, layer, y):
            keep = ask(site, layer, y)
            return y if keep is None else np.where(keep, y, self.dtype(0))

        for layer, d in enumerate(self.layers):
            a = masked("qkv", layer, self.norm(x, d["attn_norm"]))
            y = masked("o", layer, self.attention(layer, a, cache)) @ d["attn_output"].T
            x = x + (self.norm(y, d["post_attention_norm"]) if "post_attention_norm" in d else y)
            b = self.norm(x, d["ffn_norm"])
            y = self.mixture(layer, b, ask, masked) if "ffn_gate_inp" in d else self.through(layer, b, masked)
            x = x + (self.norm(y, d["post_ffw_norm"]) if "post_ffw_norm" in d else y)
        cache.tokens += len(ids)
        return soft_cap(self.norm(x, self.output_norm) @ self.head.T, self.dtype(self.caps[1]))

    def through(self, place, b, masked):
        """One FFN: of a layer, or of (layer, expert)."""
        d, b = self.ffn(place), masked("gate_up", place, b)
        gate = b @ d["ffn_gate"].T
        if self.gelu:
            inner = self.dtype(math.sqrt(2 / math.pi)) * (gate + self.dtype(0.044715) * gate * gate * gate)
            return masked("down", place, gate / 2 * (1 + np.tanh(inner)) * (b @ d["ffn_up"].T)) @ d["ffn_down"].T
        with np.errstate(over="ignore"):               # exp overflows to inf where silu is -0: right
            h = gate / (1 + np.exp(-gate)) * (b @ d["ffn_up"].T)
        return masked("down", place, h) @ d["ffn_down"].T

    def mixture(self, layer, b, ask, masked):
        """Softmax over all experts, the best few; but for qwen2moe and olmoe their weights are divided by their sum. A shared expert sees all."""
        ask("router", layer, b)
        weights = softmax(b @ self.layers[layer]["ffn_gate_inp"].T)
        order = np.argsort(-weights, axis=1, kind="stable")
        chosen, k = order[:, :self.experts_used], self.experts_used
        best_out = np.take_along_axis(weights, order[:, k:k + 1], axis=1)[:, 0]
        last_in = np.take_along_axis(weights, order[:, k - 1:k], axis=1)[:, 0]
        gap = np.where(last_in == best_out, np.inf, (last_in - best_out) / last_in)       # of equals the lower, always
        self.gap = np.minimum(self.gap, gap)
        y = np.zeros_like(b)
        for e in range(self.experts):
            rows = np.flatnonzero((chosen == e).any(axis=1))
            if not len(rows):
                continue
            self.rows[layer, e] = rows
            share = weights[rows, e]
            if self.normalised:
                share = share / np.take_along_axis(weights[rows], chosen[rows], axis=1).sum(axis=1)
            y[rows] += share[:, None] * self.through((layer, e), b[rows], masked)
        if "ffn_up_shexp" in self.layers[layer]:
            gate = 1 / (1 + np.exp(-(b @ self.layers[layer]["ffn_gate_inp_shexp"])))
            y += gate[:, None] * self.through((layer, self.experts), b, masked)
        return y


def soft_cap(x, cap):
    """cap * tanh(x / cap); 0: x as it is."""
    return cap * np.tanh(x / cap) if cap else x


def rope_frequencies(get, width, divisors):
    """Angle per position of each pair [width / 2] float64, and the factor on cos and sin.

    `divisors` is the file's rope_freqs tensor (Llama 3 scaling), or None."""
    base = get("rope.freq_base", 10000.0)
    pair = np.arange(0, width, 2, dtype=np.float64)
    plain = base ** (-pair / width)
    if divisors is not None:
        return plain / divisors.astype(np.float64), 1.0
    kind, factor = get("rope.scaling.type", "none"), get("rope.scaling.factor", 1.0)
    if kind == "linear":
        return plain / factor, 1.0
    if kind == "yarn":                                 # YaRN, arXiv 2309.00071: part by part between plain and scaled
        original = get("rope.scaling.original_context_length")
        turns = lambda n: width * math.log(original / (n * 2 * math.pi)) / (2 * math.log(base))
        low = max(math.floor(turns(get("rope.scaling.yarn_beta_fast", 32.0))), 0)
        high = min(math.ceil(turns(get("rope.scaling.yarn_beta_slow", 1.0))), width - 1)
        ramp = np.clip((pair / 2 - low) / max(high - low, 0.001), 0, 1)
        return plain * (1 - ramp) + plain / factor * ramp, 1.0 + 0.1 * math.log(factor)
    return plain, 1.0


# ---------------------------------------------------------------------------------------------------------------------
# One sequence: prefill, then decode
# ---------------------------------------------------------------------------------------------------------------------
@dataclass
class Result:
    logits: np.ndarray        # [tokens, vocabulary]
    logprobs: np.ndarray      # [tokens] float64, ln p(ids[i] | ids[< i]); the first is NaN


def score(model, ids, split, method):
    """Teacher-forced: the first `split` tokens are the prompt, the others are decoded under `method`."""
    cache = Cache()
    logits = model.forward(ids[:split], cache, method.observe)
    if split < len(ids):
        logits = np.concatenate([logits, model.forward(ids[split:], cache, method.select)])
    logprobs = np.full(len(ids), np.nan)
    logprobs[1:] = log_softmax(logits[:-1])[np.arange(len(ids) - 1), ids[1:]]
    return Result(logits, logprobs)
