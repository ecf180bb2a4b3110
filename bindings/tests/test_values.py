"""What the package computes, against transformers (tests/goldens) and against the program."""

import json

import golden_file
import numpy as np
import popcpp
import pytest
from conftest import EXPERTS, ROOT, TINY, program

GOLDENS = ROOT / "tests/goldens"
NAMES = sorted(p.stem for p in GOLDENS.glob("tiny-*.json") if "made_with" in json.loads(p.read_text()))
TOLERANCE, GREEDY_LEAD = 1e-4, 4e-3  # float32 sums in another order


def paths(name):
    return [p for p in (GOLDENS / f"{name}.gguf", GOLDENS / "hf" / name) if p.exists()]


@pytest.mark.parametrize("path", [p for name in NAMES for p in paths(name)], ids=lambda p: f"{p.parent.name}/{p.name}")
def test_logits_equal_transformers(path):
    about, arrays = golden_file.read(GOLDENS / path.stem)
    ctx = 512 if path.stem == "tiny-phi3-long" else 0  # of its two sets of angles the golden has those of long texts
    engine = popcpp.Engine(path, threads=1, ctx=ctx, activations="f32", kv="f32")
    session = engine.session()
    for prompt in about["prompts"]:
        get = lambda part: arrays[f"{prompt}/{part}"]
        score = session.score(get("ids").tolist(), logits=True)
        logits = score.logits
        assert logits.dtype == np.float32 and logits.shape == (len(get("ids")), engine.info.vocab)
        assert np.abs(logits[:, arrays["sample"]] - get("sampled")).max() < TOLERANCE
        assert np.abs(np.take_along_axis(logits, get("top_ids"), axis=1) - get("top")).max() < TOLERANCE
        wide = logits.astype(np.float64)
        assert np.abs(np.log(np.exp(wide - get("logsumexp")[:, None]).sum(axis=1))).max() < TOLERANCE
        # ln p of each token given those before it, by the golden's log-sum-exp
        expected = wide[np.arange(len(logits) - 1), get("ids")[1:]] - get("logsumexp")[:-1]
        assert np.isnan(score.logprobs[0])
        assert np.abs(score.logprobs[1:] - expected).max(initial=0) < 2 * TOLERANCE
        assert score.nll_sum == pytest.approx(-expected.sum(), abs=len(expected) * TOLERANCE)

        generation = session.generate(get("ids").tolist(), max_tokens=len(get("greedy")), ignore_eos=True)
        next(generation)
        assert np.abs(generation.logits[arrays["sample"]] - get("sampled")[-1]).max() < TOLERANCE
        generation.read()
        coin_tosses = np.flatnonzero(get("greedy_lead") < GREEDY_LEAD)
        sure = coin_tosses[0] if len(coin_tosses) else len(get("greedy"))
        assert generation.ids[:sure] == get("greedy")[:sure].tolist()


PRUNED = [{"method": "dense"}, {"method": "pop", "ratio": 0.3, "gamma": 0.2}, {"method": "pop+", "ratio": 0.3},
          {"method": "random", "ffn_sparsity": 0.5, "seed": 9, "random_every": "token"}]


def flags(options):
    names = {"method": "prune"}
    return [f"--{names.get(k, k).replace('_', '-')}={v}" for k, v in options.items()]


@pytest.mark.parametrize("options", PRUNED, ids=lambda o: o["method"])
@pytest.mark.parametrize("path", [TINY, EXPERTS], ids=lambda p: p.stem)
def test_generate_is_the_programs(path, options):
    ids = [i * 37 % 256 for i in range(20)]
    theirs = program("run", "--json", "-m", path, "-t", 2, "--ids", ",".join(map(str, ids)), "-n", 12, "--temp=0.8",
                     "--top-k=40", *(["--seed=9"] if "seed" in options else ["--seed=3"]),
                     *flags({k: v for k, v in options.items() if k != "seed"}))
    engine = popcpp.Engine(path, threads=2, methods=[options["method"]])
    session = engine.session(**options)
    ours = session.generate(ids, max_tokens=12, temperature=0.8, top_k=40, seed=9 if "seed" in options else 3)
    assert "".join(ours) == theirs["text"]
    assert ours.ids == theirs["ids"]
    assert ours.logits_hash == theirs["logits_hash"]
    assert ours.finish_reason == theirs["finish_reason"]
    for name in ("weight_bytes_per_token", "weights_read_share", "block_weights_read_share", "selected_share"):
        assert getattr(ours.reads, name) == pytest.approx(theirs[name], rel=1e-6)
    realised = ours.reads.realised
    assert (realised.blocks, realised.active, realised.total) == pytest.approx(
        [theirs["realised_ratio"][name] for name in ("blocks", "active", "total")], rel=1e-6)
    assert {f.kind: [f.per_token, f.weight_bytes_per_token, f.left_out] for f in ours.reads.ffns} == {
        kind: pytest.approx([f["per_token"], f["weight_bytes_per_token"], f["left_out"]], rel=1e-6)
        for kind, f in theirs["ffn_reads"].items()}
    plan = session.plan
    assert (plan.method, plan.ratio) == (theirs["method"], pytest.approx(theirs["ratio"]))
    assert (plan.ratio_of, plan.ffn_sparsity) == (theirs["ratio_of"], pytest.approx(theirs["ffn_sparsity"]))


def test_score_is_the_programs():
    ids = [i * 31 % 256 for i in range(40)]
    theirs = program("score", "--json", "-m", TINY, "--ids", ",".join(map(str, ids)), "--split", 25, "--prune", "pop")
    session = popcpp.Engine(TINY, methods=["pop"]).session("pop")
    ours, again = session.score_batch([ids, ids], split=25, batch=2)
    assert theirs["logprobs"][0] is None
    assert ours.logprobs[1:].tolist() == pytest.approx(theirs["logprobs"][1:], abs=1e-9)
    assert (ours.nll_sum, ours.scored) == (pytest.approx(theirs["nll_sum"]), theirs["scored"])
    assert (ours.nll_decode_sum, ours.scored_decode) == (pytest.approx(theirs["nll_decode_sum"]), theirs["scored_decode"])
    assert [top.id for top in ours.top] == [top["id"] for top in theirs["top"]]
    assert [(p.layer, p.retained, p.candidate, p.pruned) for p in ours.partition] == [
        (p["layer"], p["retained"], p["candidate"], p["pruned"]) for p in theirs["partition"]]
    assert ours.logits_hash == again.logits_hash == theirs["logits_hash"]
    some = session.score(ids, split=25, score_from=30, logits=True)
    whole = session.score(ids, split=25, logits=True)
    assert some.first_position == 29 and np.array_equal(some.logits, whole.logits[29:])
    assert np.isnan(some.logprobs[:30]).all() and np.array_equal(some.logprobs[30:], whole.logprobs[30:])


def test_batch_is_one_by_one():
    session = popcpp.Engine(TINY, methods=["pop"]).session("pop", ratio=0.3)
    prompts = [[i * 37 % 256 for i in range(n)] for n in (5, 20)]
    batch = session.generate_batch(prompts, tokens=9)
    for prompt, answer in zip(prompts, batch.answers):
        alone = session.generate(prompt, max_tokens=9, ignore_eos=True)
        alone.read()
        assert answer.ids == alone.ids
        assert answer.reads.weight_bytes_per_token == alone.reads.weight_bytes_per_token


def test_text_and_chat_are_the_programs(default_model):
    engine = popcpp.Engine(default_model, text_only=True)
    text = "Grüße, 世界! <|im_end|> 🙂\n\n  indented"
    assert engine.tokenize(text, bos=True) == program("tokenize", "--json", "-m", default_model, "-p", text)["ids"]
    assert engine.detokenize(engine.tokenize(text)) == text
    assert len(engine.tokenize("<|im_end|>", special=True)) == 1 and engine.ends_generation(engine.tokenize("<|im_end|>", special=True)[0])
    # One byte of a character of four: no str can hold it.
    assert engine.detokenize(engine.tokenize("🙂")[:1]).strip("\N{REPLACEMENT CHARACTER}") == ""
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi <|im_end|>"}]
    assert engine.chat_text(messages) == ("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi <|im_end|><|im_end|>\n"
                                          "<|im_start|>assistant\n")
    ids = engine.chat_prompt(messages)
    assert ids.count(engine.tokenize("<|im_end|>", special=True)[0]) == 2  # the user's own is plain text
    with pytest.raises(popcpp.Error, match="there are no weights"):
        engine.session()

    loaded = popcpp.Engine(default_model)
    question = "Name three rivers."
    theirs = program("run", "--json", "-m", default_model, "--chat", "-p", question, "-n", 8, "--temp", 0)
    answer = loaded.session().generate([{"role": "user", "content": question}], max_tokens=8)
    assert answer.read() == theirs["text"] and answer.ids == theirs["ids"]
