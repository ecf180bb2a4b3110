"""The worked examples of prune/methods/baselines_test.cpp, in NumPy, each method from its formula (docs/pruning.md).

    python3 python/reference/baselines_reference.py

prints the numbers that stand in that test.
"""

import numpy as np

# One layer with d = 2, f = 3 and two sequences of two tokens; h is what reaches W_down.
DOWN = np.array([[1.0, -2, 0], [2, 1, 3]])
GATE = np.array([[1.0, 0], [2, -1], [0, 3]])
UP = np.array([[0.0, 1], [1, 1], [-1, 2]])
SEQUENCES = [np.array([[1.0, 0, 2], [3, 0, 0]]), np.array([[1.0, 2, 0], [1, 0, 2]])]


def keep(scores, removed):
    """Ascending list of what stays when the `removed` lowest go; of equals the lower index stays."""
    order = sorted(range(len(scores)), key=lambda i: (scores[i], -i))
    return sorted(order[removed:])


def magnitude():
    return np.sqrt((GATE**2).sum(1) + (UP**2).sum(1) + (DOWN**2).sum(0))


def griffin(h):
    return np.sqrt((h**2 / (h**2).sum(1, keepdims=True)).sum(0))


def wina(x, stacked, v):
    scores = np.abs(x) * np.sqrt((stacked**2).sum(0))
    return scores, keep(scores, int(np.floor(v * len(x) + 0.5)))


def statistics(sequences):
    """squares, mean and fluctuation over sequences, by the recursion of FLAP's code."""
    squares, mean, fluctuation = 0, 0, 0
    for n, h in enumerate(sequences, 1):
        squares = squares + (h**2).sum(0)
        mean = mean * (n - 1) / n + h.mean(0) / n
        deviation = ((h - mean) ** 2).sum(0)
        fluctuation = deviation * 0 if n == 1 else fluctuation * (n - 2) / (n - 1) + deviation / n
    return squares, mean, fluctuation


def wanda_sp(squares, sequences, down):
    """Mean form: sqrt(a_k) * mean_i |W[i, k]|, a_k a mean over sequences."""
    return np.sqrt(squares / sequences) * np.abs(down).mean(0)


def flap_scores(fluctuation, down):
    return fluctuation * (down**2).sum(0)


def standardised(scores):
    return (scores - scores.mean()) / scores.std(ddof=1)


def flap_bias(mean, down, removed):
    return sum(mean[k] * down[:, k] for k in removed)


def probe_positions(norms):
    """Of a prompt's residual norms: the larger half, at least two; of ten or fewer the first becomes position 0."""
    count = min(len(norms), max(int(np.ceil(len(norms) / 2)), 2))
    chosen = sorted(sorted(range(len(norms)), key=lambda t: (-norms[t], t))[:count])
    if count <= 10:
        chosen[0] = 0
    return chosen


def probe_scores(energy, history, down):
    w = energy / (energy + history + 1e-6)
    c = (w * energy + (1 - w) * history).sum(0)
    return c, c * np.sqrt((down**4).sum(0))


if __name__ == "__main__":
    print("probe", probe_positions([5**0.5, 5, 20**0.5, 3]))
    print("probe", probe_scores(np.array([[1.0, 4], [1, 0]]), np.array([[1.0, 0], [3, 4]]), np.array([[1.0, 2], [2, 0]])))
    squares, mean, fluctuation = statistics(SEQUENCES)
    print("statistics", squares, mean, fluctuation)
    print("wanda_sp", wanda_sp(squares, 2, DOWN), keep(wanda_sp(squares, 2, DOWN), 1))
    scores = flap_scores(fluctuation, DOWN)
    print("flap", scores, standardised(scores), keep(scores, 1), flap_bias(mean, DOWN, [0]))
    print("flap, two layers", standardised(np.array([1.0, 2, 3])), standardised(np.array([10.0, 20, 60])))
    print("magnitude", magnitude(), keep(magnitude(), 1))
    prompt = np.array([[1.0, 0, 2], [3, 0, 0], [0, 1, 0]])
    print("griffin", griffin(prompt), keep(griffin(prompt), 1), "not normalised", np.sqrt((prompt**2).sum(0)))
    print("wina, down", wina(np.array([3.0, -2, 1]), DOWN, 1 / 3))
    print("wina, gate_up", wina(np.array([1.0, -1]), np.vstack([GATE, UP]), 0.5))
