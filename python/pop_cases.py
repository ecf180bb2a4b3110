"""What the pruning checks run: prompts, methods, options; shared by the golden maker, the check of the engine and its mock."""

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent / "reference"))
import pop_reference as pr

ROOT = Path(__file__).resolve().parent.parent
GOLDENS = ROOT / "tests" / "goldens"
DEFAULT_MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
TINY_MODELS = ("tiny-tied.gguf", "tiny-linear.gguf", "tiny-q4_1.gguf")
EXPERT_MODELS = ("tiny-mixtral.gguf", "tiny-qwen3moe.gguf")
PROMPTS = (1, 7, 64, 300)     # prompt tokens
DECODED = 32


@dataclass(frozen=True)
class Case:
    """One method with its options, as the command line names them."""
    prompt: int
    method: str               # pop, fixed, full, pop+
    ratio: float
    gamma: float = 0.1
    metric: str = "down"
    norm: str = ""            # empty: the metric's own
    prefill: str = "dense"

    @property
    def name(self):
        if self.method == "pop+":
            return f"{self.prompt}/pop+/r{self.ratio}"
        parts = [str(self.prompt), self.method, self.metric, f"r{self.ratio}"]
        parts += [f"g{self.gamma}"] if self.method == "pop" else []
        parts += [f"n{self.norm}"] if self.norm else []
        parts += ["pruned-prefill"] if self.prefill == "pruned" else []
        return "/".join(parts)

    @property
    def full_norm(self):
        return self.norm or ("2" if self.metric == "down" else "max")

    def arguments(self):
        words = ["--prune", self.method, "--ratio", str(self.ratio)]
        if self.method == "pop+":
            return words
        words += ["--metric", self.metric, "--norm", self.full_norm, "--prefill", self.prefill]
        return words + (["--gamma", str(self.gamma)] if self.method == "pop" else [])

    def reference(self, model):
        if self.method == "pop+":
            return pr.PopPlus(model, self.ratio)
        gamma = {"pop": self.gamma, "fixed": 0.0, "full": 2.0}[self.method]
        return pr.Pop(model, model.sparsity_for(self.ratio), gamma, self.metric, self.full_norm, prefill=self.prefill)


def grid(prompts=PROMPTS):
    """Every case of the issue: both metrics, ratios 0.2 and 0.4, gamma 0, 0.1 and 0.3, and pop+."""
    pop = [Case(n, "pop", r, g, metric) for n in prompts for metric in ("down", "gate-up") for r in (0.2, 0.4)
           for g in (0.0, 0.1, 0.3)]
    return pop + [Case(n, "pop+", r) for n in prompts for r in (0.2, 0.4)]


def extras():
    """What the grid leaves out: the other norms, the methods at the ends, a pruned prompt."""
    return [Case(64, "pop", 0.2, 0.3, "down", "1"), Case(64, "pop", 0.4, 0.1, "down", "max"),
            Case(64, "pop", 0.2, 0.1, "gate-up", "1"), Case(64, "pop", 0.4, 0.3, "gate-up", "2"),
            Case(64, "fixed", 0.2), Case(7, "full", 0.4), Case(64, "pop", 0.2, 0.1, "gate-up", prefill="pruned")]


def subset():
    """A third of the grid in which every prompt meets every ratio, gamma and metric; all of pop+; the extras."""
    pop = [c for c in grid() if c.method == "pop"]
    ratio, gamma, metric, prompt = (sorted({getattr(c, k) for c in pop}) for k in ("ratio", "gamma", "metric", "prompt"))
    third = [c for c in pop
             if (ratio.index(c.ratio) + gamma.index(c.gamma) + metric.index(c.metric) + prompt.index(c.prompt)) % 3 == 0]
    return third + [c for c in grid() if c.method == "pop+"] + extras()


def model_path(name):
    """Where a model lies, or None."""
    return next((d / name for d in (GOLDENS, ROOT / "models") if (d / name).exists()), None)


def golden_name(model):
    return "pop-smollm2-135m-q4_1" if model == DEFAULT_MODEL else "pop-" + model.removesuffix(".gguf")


class Prefilled:
    """A dense prompt run once; methods are shown what they would have seen of it. Correct only where the prompt is not pruned."""

    def __init__(self, model, ids):
        self.model, self.cache, self.seen = model, pr.Cache(), []
        self.logits = model.forward(ids, self.cache, lambda site, layer, x: self.seen.append((site, layer, x)))
        self.rows, self.tokens = model.rows, model.tokens

    def show(self, method):
        self.model.rows, self.model.tokens = self.rows, self.tokens
        for site, layer, x in self.seen:
            method.observe(site, layer, x)
        return method

    def decode(self, ids, method):
        """Logits of the decoded rows `ids` under a method that has been shown the prompt."""
        return self.model.forward(ids, self.cache.branch(), method.select)


def near_borders(part, relative=1e-5):
    """bool [f]: the channels of a partition that score so close to one across a border that either side is right."""
    near = np.zeros(len(part.scores), dtype=bool)
    order = np.sort(part.scores)
    for cut in {len(part.pruned), len(part.pruned) + len(part.candidate)} - {0, len(order)}:
        low, high = order[cut - 1], order[cut]
        near |= (part.scores <= low) & (part.scores >= high * (1 - relative))
        near |= (part.scores >= high) & (part.scores <= low * (1 + relative))
    return near


def tau_range(model, seen, levels, relative=1e-5):
    """(lowest, highest) [layer, site]: every threshold that scores rounded otherwise could give: all of them moved by `relative`,
    and one more moved over an edge of its bin (small inputs are rounded by more than that).

    tau jumps where a score crosses an edge of the histogram's bins: with c counts in its bin, by 1/16 of itself over c."""
    pooled, found = {}, {}
    for site, place, x in seen:
        if site != "router":
            scores = pr.column_scores(x, model.column_norms(place, site))[pr.counted_rows(model, place, len(x))]
            pooled.setdefault((pr.layer_of(place), site), []).append(scores.ravel())
    for (layer, site), scores in pooled.items():
        scores = np.concatenate(scores)
        v, one = levels[site], 1 / scores.size
        found[layer, site] = tuple(pr.threshold(pr.histogram(scores * np.float32(1 + e)), min(max(v + np.sign(e) * one, 0), 1))
                                   for e in (-relative, relative))
    return found


def lead_of_outsiders(scores, inside, outside):
    """By how much (relative) the best of `outside` scores above the worst of `inside`; 0 or less: nowhere."""
    if not len(inside) or not len(outside):
        return 0.0
    low, high = float(scores[inside].min()), float(scores[outside].max())
    return 0.0 if high <= 0 else (high - low) / high
