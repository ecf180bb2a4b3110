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

SITE_WEIGHTS = {"qkv": ("attn_q", "attn_k", "attn_v"), "o": ("attn_output",), "gate_up": ("ffn_gate", "ffn_up"),
                "down": ("ffn_down",)}
SITES = tuple(SITE_WEIGHTS)


# ---------------------------------------------------------------------------------------------------------------------
# Section 2: ratio
# ---------------------------------------------------------------------------------------------------------------------
def round_half_away(x):
    """Rounds a value >= 0 to the nearest integer, halves away from zero."""
    return int(math.floor(x + 0.5))


def ffn_sparsity(ratio, attention, ffn, layers=1, outside=0):
    """p for an overall ratio; `attention` and `ffn` count one block's weights, `outside` the embeddings and the head.

    `outside` is 0 for --ratio-of blocks (and active, in a model without experts)."""
    p = ratio * (layers * (attention + ffn) + outside) / (layers * ffn)
    if p > 1:
        raise ValueError(f"ratio {ratio} needs p = {p:.4f} > 1; the largest possible is {ratio / p:.4f}")
    return p


def kept_count(p, f):
    """K, the channels that remain of f."""
    return f - round_half_away(p * f)


# ---------------------------------------------------------------------------------------------------------------------
# Section 3: importance
# ---------------------------------------------------------------------------------------------------------------------
def aggregate(values, norm, axis):
    """A of the page: `values` >= 0 are brought together along `axis` by norm '1' (sum), '2' (Euclidean) or 'max'."""
    if norm == "1":
        return values.sum(axis=axis, dtype=values.dtype)
    if norm == "2":
        return np.sqrt((values * values).sum(axis=axis, dtype=values.dtype))
    if norm == "max":
        return values.max(axis=axis)
    raise ValueError(f"norm: expected 1, 2 or max, found {norm}")


def score_down(sum_h2, w_down, norm):
    """sum_h2 [f] float64, w_down [d, f] -> [f]: sqrt(sum over tokens of h^2) * A_j |W_down[j, i]|."""
    column = aggregate(np.abs(w_down), norm, axis=0)
    return np.sqrt(sum_h2) * column


def score_gate_up(x_norm, w_gate, w_up, norm):
    """x_norm [n, d] >= 0, w_gate and w_up [f, d] -> [n, f]: A_k((|W_gate[i, k]| + |W_up[i, k]|) * x_norm[k]) of each row."""
    weights = np.abs(w_gate) + np.abs(w_up)
    return np.stack([aggregate(weights * row, norm, axis=1) for row in x_norm])


def add_squares(total, rows):
    """Adds the squares of rows [T, n] to total [n] in float64, token by token in ascending position."""
    for row in rows.astype(np.float64):
        total = total + row * row
    return total


# ---------------------------------------------------------------------------------------------------------------------
# Sections 4 and 5: partition and fine mask
# ---------------------------------------------------------------------------------------------------------------------
def rank_ascending(scores):
    """Channel indices from the worst to the best; of two equal scores the higher index comes first."""
    scores = np.asarray(scores)
    return np.lexsort((-np.arange(len(scores)), scores))


@dataclass
class Partition:
    """R (always kept), C (chosen from at each token), P (never used): ascending index arrays; and where they were cut."""
    retained: np.ndarray
    candidate: np.ndarray
    pruned: np.ndarray
    kept: int                 # K
    p: float
    gamma: float
    scores: np.ndarray        # [f]


def partition(scores, p, gamma):
    f = len(scores)
    lo, hi = max(0.0, p - gamma / 2), min(1.0, p + gamma / 2)
    a, b = round_half_away(lo * f), round_half_away(hi * f)
    order = rank_ascending(scores)
    return Partition(np.sort(order[b:]), np.sort(order[a:b]), np.sort(order[:a]), kept_count(p, f), p, gamma,
                     np.asarray(scores))


def best(scores, among, count):
    """The `count` members of `among` with the highest scores, ascending; ties to the lower index."""
    among = np.sort(np.asarray(among, dtype=np.int64))
    return np.sort(among[rank_ascending(np.asarray(scores)[among])[len(among) - count:]])


def fine_mask(part, scores):
    """The K channels of one decoded token as a bool array [f]: R and the K - |R| best of C."""
    keep = np.zeros(len(part.scores), dtype=bool)
    keep[part.retained] = True
    wanted = part.kept - len(part.retained)
    if wanted > 0:
        keep[best(scores, part.candidate, wanted)] = True
    return keep


# ---------------------------------------------------------------------------------------------------------------------
# Section 8b: pop+
# ---------------------------------------------------------------------------------------------------------------------
BINS, BIN_SHIFT, BIN_FIRST = 1024, 19, 1520


def column_norms(*matrices):
    """c [width] float64: 2-norm of each column of the matrices stacked, squares summed in float64 by ascending row."""
    total = np.zeros(matrices[0].shape[1], dtype=np.float64)
    for w in matrices:
        total = add_squares(total, w)
    return np.sqrt(total)


def column_scores(x, c):
    """s = float32(|x| * c) for rows x [T, width]."""
    return (np.abs(x.astype(np.float64)) * c).astype(np.float32)


def bins(scores):
    """The histogram bin of each float32 score, 16 per power of two."""
    bits = np.ascontiguousarray(scores, dtype=np.float32).view(np.uint32).astype(np.int64)
    return np.clip((bits >> BIN_SHIFT) - BIN_FIRST, 0, BINS - 1)


def histogram(scores):
    return np.bincount(bins(scores).ravel(), minlength=BINS).astype(np.int64)


def bin_edge(b):
    """The lowest score of bin b (the page's bin formula read backwards)."""
    return float(np.array([(b + BIN_FIRST) << BIN_SHIFT], dtype=np.uint32).view(np.float32)[0])


def threshold(counts, v):
    """tau: the v-quantile of the counts."""
    n = round_half_away(v * int(counts.sum()))
    if n == 0:
        return 0.0
    cumulative = np.cumsum(counts)
    b = int(np.searchsorted(cumulative, n))          # the first bin whose cumulative count reaches n
    below = int(cumulative[b] - counts[b])
    lo, hi = bin_edge(b), bin_edge(b + 1)
    return lo + (hi - lo) * ((n - below) / int(counts[b]))


def least_columns(v, width):
    """m: at least so many columns are kept."""
    return math.ceil((1 - v) * width / 8)


def choose_columns(scores, tau, v):
    """Kept columns of one token as a bool array: all but s < tau (so NaN stays), but never fewer than the m best."""
    keep = ~(scores < tau)
    m = least_columns(v, len(scores))
    if keep.sum() < m:
        keep = np.zeros(len(scores), dtype=bool)
        keep[best(np.where(np.isnan(scores), np.inf, scores), np.arange(len(scores)), m)] = True
    return keep


# ---------------------------------------------------------------------------------------------------------------------
# Methods: what they see in the prompt (observe), and what they keep of one decoded row (select)
# ---------------------------------------------------------------------------------------------------------------------
class Dense:
    """Keeps everything. `chosen[layer, site]` and `scores[layer, site]` hold what decode did, one row per token."""

    def __init__(self, model):
        self.model, self.chosen, self.scores = model, {}, {}

    def observe(self, site, layer, x):
        """The whole prompt's rows x [T, width]; an answer other than None masks the prompt itself."""

    def select(self, site, layer, x):
        """Rows of decode; the answer is a bool array of x's shape, or None for all."""

    def record(self, site, layer, keep, scores):
        self.chosen[layer, site], self.scores[layer, site] = keep, scores
        return keep


class Pop(Dense):
    """POP of arXiv 2602.06822. gamma 0 is `fixed`, gamma 2 is `full`."""

    def __init__(self, model, p, gamma=0.1, metric="down", norm=None, decode_metric=None, prefill="dense"):
        super().__init__(model)
        if not 0 <= gamma <= 2:
            raise ValueError(f"gamma: expected 0 to 2, found {gamma}")
        self.p, self.gamma = p, gamma
        self.metric = "gate-up" if prefill == "pruned" else metric
        self.decode_metric = decode_metric or self.metric
        self.norm, self.prefill = norm, prefill
        self.partitions, self.x = {}, {}

    def norm_of(self, metric):
        return self.norm or ("2" if metric == "down" else "max")

    def observe(self, site, layer, x):
        if site == "gate_up":
            self.x[layer] = x
        if site != "down":
            return None
        d = self.model.layers[layer]
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

    def token_scores(self, layer, h):
        """The scores of each decoded row alone (section 5.2)."""
        d = self.model.layers[layer]
        if self.decode_metric == "down":
            return np.abs(h) * aggregate(np.abs(d["ffn_down"]), self.norm_of("down"), axis=0)
        return score_gate_up(np.abs(self.x[layer]), d["ffn_gate"], d["ffn_up"], self.norm_of("gate-up"))

    def select(self, site, layer, x):
        if site == "gate_up":
            self.x[layer] = x
        if site != "down":
            return None
        scores = self.token_scores(layer, x)
        keep = np.stack([fine_mask(self.partitions[layer], s) for s in scores])
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


class PopPlus(Dense):
    """`pop+`: columns of every matrix, thresholds from the prompt. rule: "sites", or "prompt" (its first form, v at every site)."""

    def __init__(self, model, v, rule="sites"):
        super().__init__(model)
        if not 0 <= v <= MAX_LEVEL:
            raise ValueError(f"level: expected 0 to 0.95, found {v}; the largest ratio is 0.95")
        sizes = {site: float(sum(layer[n].size for layer in model.layers for n in names)) for site, names in SITE_WEIGHTS.items()}
        self.levels = dict.fromkeys(sizes, v) if rule == "prompt" else spread_level(v, sizes)
        self.tau, self.counts = {}, {}

    def observe(self, site, layer, x):
        scores = column_scores(x, self.model.column_norms(layer, site))
        counted = scores[1:] if len(scores) > 1 else scores
        self.counts[layer, site] = histogram(counted)
        self.tau[layer, site] = threshold(self.counts[layer, site], self.levels[site])

    def select(self, site, layer, x):
        scores = column_scores(x, self.model.column_norms(layer, site))
        keep = np.stack([choose_columns(s, self.tau[layer, site], self.levels[site]) for s in scores])
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
    """A dense model of a GGUF file: Llama, or one that adds biases (qwen2), norms of heads (qwen3) or a window. dtype float64 shows how far rounding alone moves a result."""

    def __init__(self, path, dtype=np.float32):
        import gguf

        reader = gguf.GGUFReader(path)
        self.dtype = dtype
        tensors = {t.name: np.asarray(gguf.quants.dequantize(t.data, t.tensor_type), dtype=np.float32).astype(dtype)
                   for t in reader.tensors}
        meta = {k: f.contents() for k, f in reader.fields.items() if not k.startswith(("tokenizer.", "GGUF."))}
        self.meta = meta
        arch = meta["general.architecture"]
        if arch not in ("llama", "qwen2", "qwen3"):
            raise ValueError(f"{path}: expected architecture llama, qwen2 or qwen3, found {arch}")
        get = lambda key, default=None: meta.get(f"{arch}.{key}", default)
        self.neighbours = arch == "llama"
        self.window = get("attention.sliding_window", 0) or 1 << 30
        self.width = get("embedding_length")
        self.heads = get("attention.head_count")
        self.kv_heads = get("attention.head_count_kv", self.heads)
        self.head_width = get("attention.key_length", self.width // self.heads)
        self.epsilon = get("attention.layer_norm_rms_epsilon")
        self.embedding = tensors["token_embd.weight"]
        self.head = tensors.get("output.weight", self.embedding)
        self.output_norm = tensors["output_norm.weight"]
        self.layers = [{name[len(f"blk.{i}."):].removesuffix(".weight"): w for name, w in tensors.items()
                        if name.startswith(f"blk.{i}.")} for i in range(get("block_count"))]
        self.inner = self.layers[0]["ffn_gate"].shape[0]
        self.frequencies, self.rope_scale = rope_frequencies(get, get("rope.dimension_count", self.head_width),
                                                             tensors.get("rope_freqs.weight"))
        self._column_norms = {}

    def sparsity_for(self, ratio, of="blocks"):
        """p of section 2 for this model."""
        d = self.layers[0]
        attention = sum(d[n].size for n in ("attn_q", "attn_k", "attn_v", "attn_output"))
        ffn = sum(d[n].size for n in ("ffn_gate", "ffn_up", "ffn_down"))
        outside = 0
        if of == "total":
            outside = self.embedding.size + (0 if self.head is self.embedding else self.head.size)
        return ffn_sparsity(ratio, attention, ffn, len(self.layers), outside)

    def column_norms(self, layer, site):
        """c of section 8b, made once."""
        if (layer, site) not in self._column_norms:
            self._column_norms[layer, site] = column_norms(*(self.layers[layer][n] for n in SITE_WEIGHTS[site]))
        return self._column_norms[layer, site]

    def norm(self, x, weight):
        mean = (x * x).mean(axis=-1, keepdims=True, dtype=self.dtype)
        return x / np.sqrt(mean + self.dtype(self.epsilon)) * weight

    def rope(self, x, first):
        """Rotates pairs of x [heads, T, head width]: (2i, 2i + 1), the order in which GGUF files keep W_q and W_k of llama, or
        (i, i + half)."""
        angles = (first + np.arange(x.shape[1]))[:, None] * self.frequencies[None, :]
        cos = (np.cos(angles) * self.rope_scale).astype(self.dtype)
        sin = (np.sin(angles) * self.rope_scale).astype(self.dtype)
        n = 2 * len(self.frequencies)
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
            y = y.reshape(rows, count, self.head_width).transpose(1, 0, 2)
            return self.norm(y, d[f"attn_{part}_norm"]) if f"attn_{part}_norm" in d else y

        q = self.rope(heads("q", self.heads), cache.tokens)
        k = self.rope(heads("k", self.kv_heads), cache.tokens)
        v = heads("v", self.kv_heads)
        if layer in cache.k:
            k = np.concatenate([cache.k[layer], k], axis=1)
            v = np.concatenate([cache.v[layer], v], axis=1)
        cache.k[layer], cache.v[layer] = k, v
        group = self.heads // self.kv_heads
        k, v = np.repeat(k, group, axis=0), np.repeat(v, group, axis=0)
        scores = (q @ k.transpose(0, 2, 1)) / self.dtype(math.sqrt(self.head_width))
        before = cache.tokens + np.arange(rows)[:, None] - np.arange(k.shape[1])[None, :]
        visible = (before >= 0) & (before < self.window)
        weights = softmax(np.where(visible[None], scores, self.dtype(-np.inf)))
        return (weights @ v).transpose(1, 0, 2).reshape(rows, -1)

    def forward(self, ids, cache, ask):
        """Logits [T, vocabulary] of the rows `ids`; `ask(site, layer, x)` may answer with a mask. The cache grows."""
        x = self.embedding[np.asarray(ids)]

        def masked(site, layer, y):
            keep = ask(site, layer, y)
            return y if keep is None else np.where(keep, y, self.dtype(0))

        for layer, d in enumerate(self.layers):
            a = masked("qkv", layer, self.norm(x, d["attn_norm"]))
            x = x + masked("o", layer, self.attention(layer, a, cache)) @ d["attn_output"].T
            b = masked("gate_up", layer, self.norm(x, d["ffn_norm"]))
            gate = b @ d["ffn_gate"].T
            with np.errstate(over="ignore"):           # exp overflows to inf where silu is -0: right
                h = gate / (1 + np.exp(-gate)) * (b @ d["ffn_up"].T)
            x = x + masked("down", layer, h) @ d["ffn_down"].T
        cache.tokens += len(ids)
        return self.norm(x, self.output_norm) @ self.head.T


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
