"""The formulas of the method page (pop-method.md), by its sections: pure functions of numbers and arrays, no network."""

import math
from dataclasses import dataclass

import numpy as np

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
