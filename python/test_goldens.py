"""The goldens of transformers against the NumPy reference: two independent models of the network must agree, and neither golden
may be blind to a changed weight. Run: pytest python"""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent / "reference"))
import golden_file
import pop_reference as pr

ROOT = Path(__file__).resolve().parent.parent
GOLDENS = ROOT / "tests" / "goldens"
NAMES = sorted(p.stem for p in GOLDENS.glob("*.json") if "made_with" in p.read_text())


def load(name):
    about, arrays = golden_file.read(GOLDENS / name)
    path = next((d / about["model"] for d in (GOLDENS, ROOT / "models") if (d / about["model"]).exists()), None)
    if path is None:
        pytest.skip(f"{about['model']} is not there")
    return about, arrays, pr.Llama(path, context=128)      # prompt and answer


def worst(about, arrays, model):
    """The largest error over all prompts and positions: of the sampled logits, the top ones, and the log-sum-exp."""
    error = 0
    for prompt in about["prompts"]:
        get = lambda part: arrays[f"{prompt}/{part}"]
        logits = model.forward(get("ids"), pr.Cache(), pr.Dense(model).observe)
        lse = logits[:, 0].astype(np.float64) - pr.log_softmax(logits)[:, 0]
        error = max(error, np.abs(logits[:, arrays["sample"]] - get("sampled")).max(),
                    np.abs(np.take_along_axis(logits, get("top_ids"), axis=1) - get("top")).max(),
                    np.abs(lse - get("logsumexp")).max())
    return error


@pytest.mark.parametrize("name", NAMES)
def test_reference_reproduces_transformers(name):
    about, arrays, model = load(name)
    assert worst(about, arrays, model) < 2e-3


@pytest.mark.parametrize("name", NAMES)
def test_greedy_ids(name):
    about, arrays, model = load(name)
    for prompt in about["prompts"]:
        get = lambda part: arrays[f"{prompt}/{part}"]
        ids = np.concatenate([get("ids"), get("greedy")])
        logits = model.forward(ids, pr.Cache(), pr.Dense(model).observe)[len(get("ids")) - 1:-1]
        for step, (wanted, lead) in enumerate(zip(get("greedy"), get("greedy_lead"))):
            assert logits[step].argmax() == wanted or lead < 4e-3


@pytest.mark.parametrize("name", NAMES)
def test_one_flipped_weight_is_seen(name):
    about, arrays, model = load(name)
    for layer, matrix in [(0, "attn_q"), (len(model.layers) - 1, "attn_v"), (0, "ffn_down"), (len(model.layers) - 1, "ffn_gate")]:
        d = model.layers[layer]
        w = d[matrix] if matrix in d else d[matrix + "_exps"][0]
        at = np.unravel_index(np.abs(w).argmax(), w.shape)
        w[at] = -w[at]
        assert worst(about, arrays, model) > 2e-3, f"layer {layer}, {matrix}"
        w[at] = -w[at]
