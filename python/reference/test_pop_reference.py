"""The reference's own tests: examples worked out by hand from the method page, and a tiny model. Run: pytest python/reference"""

import math

import numpy as np
import pytest

import pop_reference as pr


def test_ratio_of_the_page():
    # Section 2: Llama-2-7B 0.2 -> 0.2992, 0.4 -> 0.5984; SmolLM2-135M 0.2667, 0.5333.
    llama = (4 * 4096 * 4096, 3 * 4096 * 11008)
    smol = (2 * 576 * 576 + 2 * 576 * 192, 3 * 576 * 1536)
    assert pr.ffn_sparsity(0.2, *llama) == pytest.approx(0.2992, abs=5e-5)
    assert pr.ffn_sparsity(0.4, *llama) == pytest.approx(0.5984, abs=5e-5)
    assert pr.ffn_sparsity(0.2, *smol) == pytest.approx(0.2667, abs=5e-5)
    assert pr.ffn_sparsity(0.4, *smol) == pytest.approx(0.5333, abs=5e-5)
    with pytest.raises(ValueError, match="0.7500"):
        pr.ffn_sparsity(0.9, *smol)


def test_rounding_goes_away_from_zero_at_halves():
    assert [pr.round_half_away(x) for x in (0.49, 0.5, 1.5, 2.5)] == [0, 1, 2, 3]
    assert pr.kept_count(0.5, 5) == 2                    # round(2.5) = 3 go
    assert pr.kept_count(0.0, 7) == 7 and pr.kept_count(1.0, 7) == 0


def test_scores_by_hand():
    w_down = np.array([[3, -1], [-4, 2]], dtype=np.float32)           # d = 2, f = 2
    sums = pr.add_squares(np.zeros(2), np.array([[3, 0], [4, 2]], dtype=np.float32))
    assert sums.tolist() == [25, 4]
    assert pr.score_down(sums, w_down, "1").tolist() == [5 * 7, 2 * 3]
    assert pr.score_down(sums, w_down, "2") == pytest.approx([5 * 5, 2 * math.sqrt(5)], rel=1e-6)
    assert pr.score_down(sums, w_down, "max").tolist() == [5 * 4, 2 * 2]
    gate = np.array([[1, -2], [0, 1]], dtype=np.float32)
    up = np.array([[-1, 1], [3, -1]], dtype=np.float32)               # |gate| + |up| = [[2, 3], [3, 2]]
    x = np.array([[2.0, 5.0], [1.0, 0.0]])
    assert pr.score_gate_up(x, gate, up, "1").tolist() == [[19, 16], [2, 3]]
    assert pr.score_gate_up(x, gate, up, "2")[0] == pytest.approx([math.hypot(4, 15), math.hypot(6, 10)])
    assert pr.score_gate_up(x, gate, up, "max").tolist() == [[15, 10], [2, 3]]


def test_ties_keep_the_lower_index():
    assert pr.rank_ascending([1, 2, 1, 0]).tolist() == [3, 2, 0, 1]
    part = pr.partition(np.ones(10), p=0.5, gamma=0.4)                # borders 3 and 7
    assert part.pruned.tolist() == [7, 8, 9]
    assert part.candidate.tolist() == [3, 4, 5, 6]
    assert part.retained.tolist() == [0, 1, 2]
    assert part.kept == 5
    assert np.flatnonzero(pr.fine_mask(part, np.zeros(10))).tolist() == [0, 1, 2, 3, 4]


def test_fine_mask_by_hand():
    part = pr.partition(np.array([9.0, 1, 8, 2, 7, 3, 6, 4, 5, 0]), p=0.5, gamma=0.4)
    assert part.pruned.tolist() == [1, 3, 9]                          # scores 1, 2, 0
    assert part.candidate.tolist() == [5, 6, 7, 8]                    # scores 3, 6, 4, 5
    now = np.array([0, 99, 0, 99, 0, 5, 1, 5, 2, 99])                 # P never comes back however high
    assert np.flatnonzero(pr.fine_mask(part, now)).tolist() == [0, 2, 4, 5, 7]


@pytest.mark.parametrize("f", [1, 2, 7, 64, 1536])
def test_sizes_hold_for_any_p_and_gamma(f):
    rng = np.random.default_rng(f)
    for p in [0, 0.1, 0.26666, 0.5, 0.9, 1]:
        for gamma in [0, 0.05, 0.1, 0.7, 1, 2]:
            part = pr.partition(rng.integers(0, 5, f), p, gamma)
            together = np.concatenate([part.retained, part.candidate, part.pruned])
            assert sorted(together) == list(range(f))
            assert len(part.retained) <= part.kept <= len(part.retained) + len(part.candidate)
            assert pr.fine_mask(part, rng.random(f)).sum() == part.kept
            if gamma == 0:
                assert len(part.candidate) == 0
            if gamma >= 2 * max(p, 1 - p):
                assert len(part.candidate) == f


def test_bins_by_hand():
    # 1.0 is 0x3F800000; >> 19 is 2032; - 1520 is 512. Sixteen bins to a power of two.
    s = np.array([1.0, 1.0624, 1.0625, 2.0, 0.0, 2.0**-33, 2.0**40, np.nan], dtype=np.float32)
    assert pr.bins(s).tolist() == [512, 512, 513, 528, 0, 0, 1023, 1023]
    assert pr.bin_edge(512) == 1.0 and pr.bin_edge(513) == 1.0625 and pr.bin_edge(0) == 2.0**-32


def test_threshold_by_hand():
    counts = pr.histogram(np.array([1.0] * 4 + [2.0] * 6, dtype=np.float32))
    assert pr.threshold(counts, 0) == 0
    assert pr.threshold(counts, 0.04) == 0                             # round(0.4) = 0
    assert pr.threshold(counts, 0.1) == 1 + 0.0625 * 1 / 4
    assert pr.threshold(counts, 0.4) == 1.0625                         # the first bin reaches n = 4 itself
    assert pr.threshold(counts, 0.7) == 2 + 0.125 * 3 / 6


def test_choice_of_columns_by_hand():
    nan = np.float32(np.nan)
    s = np.array([0.5, 1.0, 2.0, nan, 0.1, 0.2, 0.3, 0.4], dtype=np.float32)
    assert np.flatnonzero(pr.choose_columns(s, 1.0, 0.5)).tolist() == [1, 2, 3]    # equal and NaN are kept
    low = np.array([1, 3, 2, 3] + [0] * 20, dtype=np.float32)
    assert pr.least_columns(0.5, 24) == 2
    assert np.flatnonzero(pr.choose_columns(low, 10.0, 0.5)).tolist() == [1, 3]    # too few pass: the m best
    assert pr.choose_columns(low, 0.0, 0.0).all()


def test_column_norms_stack_the_matrices():
    a, b = np.array([[3.0, 1.0]], dtype=np.float32), np.array([[4.0, 0.0], [0.0, 1.0]], dtype=np.float32)
    assert pr.column_norms(a, b).tolist() == [5, math.sqrt(2)]
    assert pr.column_scores(np.array([[-2.0, 1.0]], dtype=np.float32), np.array([5.0, 3.0])).tolist() == [[10, 3]]


# ---------------------------------------------------------------------------------------------------------------------
# A tiny seeded model through the whole of it
# ---------------------------------------------------------------------------------------------------------------------
WIDTH, INNER, HEADS, KV_HEADS, VOCAB, LAYERS = 32, 50, 4, 2, 40, 2


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    import gguf

    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    rng = np.random.default_rng(1)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(LAYERS)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_context_length(64)
    add = lambda name, *shape: writer.add_tensor(name + ".weight", rng.normal(0, 0.3, shape).astype(np.float32))
    add("token_embd", VOCAB, WIDTH)
    add("output_norm", WIDTH)
    for i in range(LAYERS):
        kv = WIDTH * KV_HEADS // HEADS
        for name, shape in {"attn_norm": (WIDTH,), "attn_q": (WIDTH, WIDTH), "attn_k": (kv, WIDTH), "attn_v": (kv, WIDTH),
                            "attn_output": (WIDTH, WIDTH), "ffn_norm": (WIDTH,), "ffn_gate": (INNER, WIDTH),
                            "ffn_up": (INNER, WIDTH), "ffn_down": (WIDTH, INNER)}.items():
            add(f"blk.{i}.{name}", *shape)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return pr.Llama(path)


IDS = [int(i) for i in np.random.default_rng(2).integers(0, VOCAB, 30)]


def one_by_one(model, ids, split, method):
    cache = pr.Cache()
    logits = [model.forward(ids[:split], cache, method.observe)]
    for token in ids[split:]:
        logits.append(model.forward([token], cache, method.select))
    return np.concatenate(logits)


@pytest.mark.parametrize("split", [1, 7, 20])
@pytest.mark.parametrize("make", [
    lambda m: pr.Dense(m), lambda m: pr.Pop(m, 0.4, 0.3), lambda m: pr.Pop(m, 0.4, 0.3, "gate-up"),
    lambda m: pr.Pop(m, 0.4, 0.3, "down", decode_metric="gate-up"), lambda m: pr.PopPlus(m, 0.3)])
def test_rows_of_decode_equal_token_by_token(model, make, split):
    rows = pr.score(model, IDS, split, make(model)).logits
    assert np.abs(rows - one_by_one(model, IDS, split, make(model))).max() < 1e-5


def test_ratio_zero_is_dense(model):
    dense = pr.score(model, IDS, 9, pr.Dense(model)).logits
    for method in (pr.Pop(model, 0.0, 0.3), pr.PopPlus(model, 0.0), pr.Pop(model, 0.0, 0.1, "gate-up", prefill="pruned")):
        assert np.array_equal(dense, pr.score(model, IDS, 9, method).logits)


def test_prefill_is_dense_and_decode_is_not(model):
    dense = pr.score(model, IDS, 9, pr.Dense(model)).logits
    for method in (pr.Pop(model, 0.5, 0.1), pr.PopPlus(model, 0.5)):
        pruned = pr.score(model, IDS, 9, method).logits
        assert np.array_equal(dense[:9], pruned[:9])
        assert np.abs(dense[9:] - pruned[9:]).max() > 1e-2
    pruned = pr.score(model, IDS, 9, pr.Pop(model, 0.5, 0.1, prefill="pruned")).logits
    assert np.abs(dense[:9] - pruned[:9]).max() > 1e-2


def test_fixed_keeps_one_mask_and_full_has_no_partition(model):
    fixed, full = pr.Pop(model, 0.4, 0.0), pr.Pop(model, 0.4, 2.0)
    pr.score(model, IDS, 9, fixed)
    pr.score(model, IDS, 9, full)
    for layer in range(LAYERS):
        keep = fixed.chosen[layer, "down"]
        assert (keep == keep[0]).all() and keep[0].sum() == pr.kept_count(0.4, INNER) == 30
        assert (full.chosen[layer, "down"].sum(axis=1) == 30).all()
        assert len(full.partitions[layer].candidate) == INNER


def test_the_sites_share_a_level_by_hand():
    block = {"qkv": 552960, "o": 331776, "gate_up": 1769472, "down": 884736}      # of the default model
    for v, wanted in ((0.2, (0.190476, 0.190476, 0.152381, 0.304762)), (0.8, (0.865385, 0.865385, 0.692308, 0.95)),
                      (0.9, (0.95, 0.95, 0.85, 0.95)), (0.95, (0.95,) * 4)):
        levels = pr.spread_level(v, block)
        assert np.allclose([levels[site] for site in block], wanted, atol=1e-6)
        assert np.isclose(sum(levels[site] * block[site] for site in block), v * sum(block.values()))


def test_pop_plus_does_not_count_position_0(model):
    method = pr.PopPlus(model, 0.3)
    pr.score(model, IDS, 9, method)
    assert method.counts[0, "qkv"].sum() == 8 * WIDTH and method.counts[1, "down"].sum() == 8 * INNER
    pr.score(model, IDS[:3], 1, method)
    assert method.counts[0, "o"].sum() == WIDTH


def test_replay_of_its_own_choices_changes_nothing(model):
    for make in (lambda: pr.Pop(model, 0.4, 0.3), lambda: pr.PopPlus(model, 0.3)):
        first = make()
        result = pr.score(model, IDS, 9, first)
        again = pr.Replay(make(), first.chosen)
        assert np.array_equal(result.logits, pr.score(model, IDS, 9, again).logits)
        assert all(np.array_equal(first.scores[key], again.scores[key]) for key in first.scores)
