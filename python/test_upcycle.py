"""The mixture that python/upcycle.py begins with is the dense model, by the NumPy reference and whatever the router chooses."""

import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent / "reference"))
import pop_reference as pr
import upcycle

DENSE = Path(__file__).resolve().parent.parent / "tests" / "goldens" / "tiny-tied.gguf"
IDS = list(b"the start is the dense model")


def logits(path):
    model = pr.Llama(path)
    return model, model.forward(IDS, pr.Cache(), lambda site, layer, x: None)


def written(path, edit=lambda layers: None):
    reader = gguf.GGUFReader(DENSE)
    weights = upcycle.dense_weights(reader)
    layers = upcycle.copies(weights, 2)
    edit(layers)
    upcycle.write_gguf(path, reader, weights, layers, "f32")
    return logits(path)


def test_starts_as_the_dense_model(tmp_path):
    model, found = written(tmp_path / "upcycled.gguf")
    assert (model.experts, model.experts_used) == (upcycle.EXPERTS, upcycle.USED)
    chosen = {place[1] for place in model.rows}
    assert len(chosen) > upcycle.USED, "the router sends tokens to more than two experts"
    np.testing.assert_allclose(found, logits(DENSE)[1], rtol=0, atol=1e-4)


def test_experts_that_differ_change_it(tmp_path):
    def edit(layers):
        layers[1]["down"][0] *= 1.5

    _, found = written(tmp_path / "upcycled.gguf", edit)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(found, logits(DENSE)[1], rtol=0, atol=1e-4)
