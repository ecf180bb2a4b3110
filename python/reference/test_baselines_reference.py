"""The examples of the C++ tests of the baselines, worked by hand. Run: pytest python/reference"""

import numpy as np
import pytest

import baselines_reference as br


def test_magnitude():
    assert br.magnitude() == pytest.approx(np.sqrt([7, 12, 23]))
    assert br.keep(br.magnitude(), 1) == [1, 2]


def test_griffin_counts_every_token_alike():
    prompt = np.array([[1.0, 0, 2], [3, 0, 0], [0, 1, 0]])
    assert br.griffin(prompt) == pytest.approx(np.sqrt([1.2, 1, 0.8]))
    assert br.keep(br.griffin(prompt), 1) == [0, 1]
    assert br.keep(np.sqrt((prompt**2).sum(0)), 1) == [0, 2]


def test_wina():
    scores, kept = br.wina(np.array([3.0, -2, 1]), br.DOWN, 1 / 3)
    assert scores == pytest.approx([3 * 5**0.5, 2 * 5**0.5, 3])
    assert kept == [0, 1]
    assert br.wina(np.array([1.0, -1]), np.vstack([br.GATE, br.UP]), 0.5)[1] == [1]


def test_statistics_by_hand():
    squares, mean, fluctuation = br.statistics(br.SEQUENCES)
    assert squares == pytest.approx([12, 4, 8])
    assert mean == pytest.approx([1.5, 0.5, 1])
    assert fluctuation == pytest.approx([0.25, 1.25, 1])


def test_fluctuation_is_the_closed_form():
    rng = np.random.default_rng(1)
    sequences = [rng.normal(size=(4, 3)) for _ in range(5)]
    expected = 0
    for n in range(2, 6):
        mean = np.mean([h.mean(0) for h in sequences[:n]], 0)
        expected = expected + (n - 1) / n * ((sequences[n - 1] - mean) ** 2).sum(0)
    assert br.statistics(sequences)[2] == pytest.approx(expected / 4)


def test_wanda_sp_and_flap_remove_different_channels():
    squares, mean, fluctuation = br.statistics(br.SEQUENCES)
    wanda = br.wanda_sp(squares, 2, br.DOWN)
    assert wanda == pytest.approx([3.6742, 2.1213, 3.0], abs=5e-5)
    assert br.keep(wanda, 1) == [0, 2]
    flap = br.flap_scores(fluctuation, br.DOWN)
    assert flap == pytest.approx([1.25, 6.25, 9])
    assert br.keep(flap, 1) == [1, 2]
    assert br.flap_bias(mean, br.DOWN, [0]) == pytest.approx([1.5, 3.0])


def test_flap_over_two_layers():
    z = np.concatenate([br.standardised(np.array([1.0, 2, 3])), br.standardised(np.array([10.0, 20, 60]))])
    assert z == pytest.approx([-1, 0, 1, -0.7559, -0.3780, 1.1339], abs=5e-5)
    assert br.keep(z, 3) == [1, 2, 5]


def test_probe():
    assert br.probe_positions([5**0.5, 5, 20**0.5, 3]) == [0, 2]
    assert br.probe_positions([1.0]) == [0]
    c, scores = br.probe_scores(
        np.array([[1.0, 4], [1, 0]]), np.array([[1.0, 0], [3, 4]]), np.array([[1.0, 2], [2, 0]])
    )
    assert c == pytest.approx([3.5, 8], abs=1e-5)
    assert scores == pytest.approx([14.431, 32.0], abs=1e-3)
