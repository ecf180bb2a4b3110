"""The package as Python: iterators, arrays and their owners, the GIL, signals, errors, stubs."""

import ast
import gc
import inspect
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import popcpp
import pytest
from conftest import EXPERTS, TINY, program

PROMPT = [i * 37 % 256 for i in range(10)]


@pytest.fixture
def engine():
    return popcpp.Engine(TINY, ctx=64, threads=2)


def test_a_piece_for_each_token(engine):
    session = engine.session()
    for seed in range(20):  # of random weights: many bytes that are no characters
        generation = session.generate(PROMPT, max_tokens=12, temperature=3.0, seed=seed, ignore_eos=True)
        assert iter(generation) is generation and generation.finish_reason is None and generation.ids == []
        pieces = []
        for count, piece in enumerate(generation, 1):
            pieces.append(piece)
            assert len(generation.ids) == count
            assert "".join(pieces) == generation.text
        assert generation.text == engine.detokenize(generation.ids, skip_special=True)
        assert (count, generation.finish_reason) == (12, "length")
        with pytest.raises(StopIteration):
            next(generation)
        assert generation.read() == ""


def test_an_answer_can_be_left_early(engine):
    session = engine.session()
    whole = session.generate(PROMPT, max_tokens=12, ignore_eos=True)
    text = whole.read()
    left = session.generate(PROMPT, max_tokens=12, ignore_eos=True)
    first = [next(left), next(left)]
    left.stop()
    assert list(left) == [] and left.finish_reason == "interrupted" and left.reads.tokens == 1
    assert left.ids == whole.ids[:2] and text.startswith("".join(first))
    half = session.generate(PROMPT, max_tokens=12, ignore_eos=True)
    assert next(half) + next(half) + half.read() == text
    assert half.logits_hash == whole.logits_hash
    assert half.timing.decode_tokens == 11 and half.prompt_tokens == len(PROMPT)


def test_only_the_last_answer_of_a_session_goes_on(engine):
    session = engine.session()
    old = session.generate(PROMPT, ignore_eos=True)
    next(old)
    session.generate(PROMPT)
    with pytest.raises(popcpp.Error, match="gone on to another answer"):
        next(old)
    other = engine.session().generate(PROMPT, ignore_eos=True)
    next(other)
    session.reset()
    session.release()
    next(other)  # another session's
    assert session.memory.kv == 0


def test_stop_strings(engine):
    whole = engine.session().generate(PROMPT, max_tokens=30, ignore_eos=True).read()
    middle = whole[len(whole) // 2:][:3]
    assert "\N{REPLACEMENT CHARACTER}" not in middle
    for stop in (middle, ["no such text in it", middle]):
        generation = engine.session().generate(PROMPT, max_tokens=30, ignore_eos=True, stop=stop)
        assert generation.read() == whole[:whole.index(middle)] and generation.finish_reason == "stop"


def test_logits_are_views_of_their_owner():
    engine = popcpp.Engine(TINY)
    generation = engine.session().generate(PROMPT, max_tokens=8, ignore_eos=True)
    assert generation.logits.shape == (0,)
    next(generation)
    view, vocab = generation.logits, engine.info.vocab
    assert (view.dtype, view.shape, view.flags.owndata, view.flags.writeable) == (np.float32, (vocab,), False, False)
    assert view.argmax() == generation.ids[-1]
    before = view.copy()
    next(generation)
    assert np.shares_memory(view, generation.logits) and not np.array_equal(view, before)
    assert view.argmax() == generation.ids[-1]
    now = view.copy()
    score = engine.session().score(PROMPT, logits=True)
    rows, logprobs = score.logits, score.logprobs
    assert np.shares_memory(rows, score.logits) and np.shares_memory(logprobs, score.logprobs)
    assert (logprobs.dtype, logprobs.shape, rows.flags.writeable) == (np.float64, (len(PROMPT),), False)
    kept = rows.copy(), logprobs.copy()
    assert engine.session().score(PROMPT).logits is None
    # The arrays alone keep what they look at.
    del generation, engine, score
    gc.collect()
    waste = [np.full(vocab, 7.0, np.float32) for _ in range(200)]
    assert np.array_equal(view, now) and np.array_equal(rows, kept[0]) and np.array_equal(logprobs[1:], kept[1][1:])
    del waste


def test_prompts_of_every_kind(engine):
    session = engine.session()
    text = "hello"
    ids = engine.tokenize(text, bos=True)
    answers = [session.generate(p, max_tokens=4).read() for p in (text, ids, tuple(ids), np.array(ids), np.array(ids, np.int32))]
    assert len(set(answers)) == 1
    for wrong in (3, None, [1.5], ["a"], b"bytes"):
        with pytest.raises(TypeError):
            session.generate(wrong)
    for messages in ([{"role": "user"}], [{"role": "user", "content": "a", "name": "b"}]):
        with pytest.raises(ValueError, match='"role" and "content"'):
            session.generate(messages)


OPTIONS = {  # a value of each that differs from the default
    "ratio": 0.25, "ffn_sparsity": 0.4, "ratio_of": "total", "gamma": 0.3, "metric": "gate-up", "decode_metric": "gate-up",
    "norm": "1", "prefill": "pruned", "min_tokens": 2, "few_tokens": "dense", "match": "pop", "plus_rule": "prompt",
    "random_every": "token", "seed": 5, "repaired": "bf16", "refresh": 9, "refresh_last": 4}


def stub():
    return ast.parse((Path(popcpp.__file__).parent / "_core.pyi").read_text())


def stub_of(class_name, method):
    body = next(n for n in stub().body if isinstance(n, ast.ClassDef) and n.name == class_name).body
    return next(n for n in body if isinstance(n, ast.FunctionDef) and n.name == method)


def keywords(function):
    return {a.arg for a in function.args.args + function.args.kwonlyargs} - {"self"}


def test_every_option_of_every_method(tmp_path):
    methods = popcpp.methods()
    assert [m.name for m in methods] == [m["name"] for m in program("methods", "--json")["methods"]]
    of_registry = {option for m in methods for option in m.options}
    assert set(OPTIONS) | {"calibration"} == of_registry, "OPTIONS above needs a value of each"
    # Beside them: the method's name, and what does not depend on the method.
    wanted = of_registry | {"method", "partition", "pack"}
    assert keywords(stub_of("Engine", "session")) == keywords(stub_of("Engine", "planned")) == wanted

    dense, experts = popcpp.Engine(TINY, threads=1), popcpp.Engine(EXPERTS, threads=1)
    calibration = tmp_path / "numbers.calib"
    calibration.write_bytes(dense.calibrate([PROMPT, PROMPT[::-1]], source="numbers", history=4, allocate=1, tyr=0.25, generations=1, offspring=2))
    for method in methods:
        base = {"calibration": calibration} if "calibration" in method.options else {}
        for option in method.options:
            engine = experts if option in ("min_tokens", "few_tokens") else dense
            if option == "calibration" or (option == "match" and "ratio" not in method.options):
                continue
            value = OPTIONS[option]
            beside = {"refresh": 8} if option == "refresh_last" else {}
            plan = engine.session(method.name, **base, **beside, **{option: value}).plan
            if option in ("ffn_sparsity", "gamma", "metric", "norm", "prefill", "min_tokens", "few_tokens", "plus_rule", "ratio_of", "repaired", "refresh",
                          "refresh_last"):
                assert getattr(plan, option) == value, (method.name, option)
        if base:
            assert dense.session(method.name, **base).plan.calibration.startswith("numbers")
        for option in set(OPTIONS) - set(method.options) - {"seed"}:
            with pytest.raises(popcpp.Error, match=f"--{option.replace('_', '-')}: does not apply to method"):
                dense.session(method.name, **base, **{option: OPTIONS[option]})
    dense.session("pop", partition="shared", pack=False)
    with pytest.raises(TypeError, match="incompatible function arguments"):
        dense.session("pop", ratoi=0.2)


def test_random_masks_follow_their_seed(engine):
    def ids(**options):
        return engine.session("random", ffn_sparsity=0.5, **options).score(PROMPT, split=5).logits_hash
    assert ids(seed=1) == ids(seed=1) != ids(seed=2)
    assert ids(seed=1) != ids(seed=1, random_every="token")


def test_planned_is_what_is_read(engine):
    planned, plan = engine.planned("pop", ratio=0.3), engine.session("pop", ratio=0.3).plan
    assert planned.ffn_sparsity == pytest.approx(plan.ffn_sparsity)
    assert planned.weight_bytes_per_token < plan.dense_bytes
    with pytest.raises(popcpp.Error, match="planned: expected pop or pop"):
        engine.planned("random")


def test_errors_say_what_the_program_says(engine):
    assert issubclass(popcpp.Error, RuntimeError)
    ids = ",".join(["1"] * 65)
    for call, arguments in [
            (lambda: popcpp.Engine("/no/such.gguf"), ["-m", "/no/such.gguf", "--ids", "1"]),
            (lambda: popcpp.Engine(TINY, isa="neon512"), ["-m", TINY, "--isa", "neon512", "--ids", "1"]),
            (lambda: next(engine.session().generate([1] * 65)), ["-m", TINY, "--ctx", "64", "--ids", ids]),
            (lambda: engine.session("random", gamma=0.1), ["-m", TINY, "--prune", "random", "--gamma=0.1", "--ids", "1"]),
            (lambda: engine.session("pop+", ratio=0.9999), ["-m", TINY, "--prune=pop+", "--ratio=0.9999", "--ids", "1"])]:
        with pytest.raises(popcpp.Error) as raised:
            call()
        assert program("run", *arguments, code=1) == f"pop: {raised.value}"
    for call, message in [(lambda: engine.session("popp"), "the nearest is pop"),
                          (lambda: engine.session("pop", ratio=2), "ratio"),
                          (lambda: engine.session("pop", norm="3"), 'norm: expected one of 1, 2, max, found "3"'),
                          (lambda: engine.session().generate([99999]), "found 99999"),
                          (lambda: engine.session().generate(PROMPT, temperature=-1), "temp"),
                          (lambda: engine.session().score([]), "at least one token"),
                          (lambda: engine.session().generate([{"role": "user", "content": "x"}]), "template"),
                          (lambda: popcpp.Engine(TINY, threads=-1), "threads")]:
        with pytest.raises(popcpp.Error, match=message):
            call()


def test_engine_options_and_info():
    seen = []
    engine = popcpp.Engine(str(TINY), threads=1, ctx=32, isa="scalar", activations="f32", kv="bf16", layout="columns",
                           bos="never", prefill_chunk=5, full_hash=True, on_load=lambda done, total: seen.append((done, total)))
    info = engine.info
    assert (info.threads, info.context, info.isa, info.activations_decode, info.kv, info.layout) == (1, 32, "scalar", "f32", "bf16", "columns")
    assert info.model_sha256 == program("info", "--json", "-m", TINY, "--full-hash")["model_sha256"]
    assert seen and seen[-1][0] == seen[-1][1]
    assert info.architecture == "llama" and "general.architecture" in dict(info.metadata)
    engine.set_threads(2)
    assert engine.info.threads == 2
    assert sum(b.bytes for b in info.bytes_per_token) > 0


def test_load_as_is_another_type_of_weights():
    engine = popcpp.Engine(TINY, load_as="q8_0")
    assert engine.info.load_as == "Q8_0" and engine.info.model_sha256 != popcpp.Engine(TINY).info.model_sha256
    with pytest.raises(popcpp.Error, match="load-as"):
        popcpp.Engine(TINY, load_as="q9")


def test_cache_gives_the_same_bits(tmp_path):
    hashes = set()
    for again in (False, True):
        engine = popcpp.Engine(TINY, cache=tmp_path)
        assert engine.info.from_cache == again
        hashes.add(engine.session().score(PROMPT).logits_hash)
    assert len(hashes) == 1


def test_other_threads_run_meanwhile(default_model):
    session = popcpp.Engine(default_model, threads=1).session()
    ticks, running, done = [0], threading.Event(), threading.Event()

    def tick():
        running.set()
        while not done.is_set():
            ticks[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    running.wait()
    before = ticks[0]
    session.score(list(range(1000, 1500)))  # hundreds of milliseconds
    during = ticks[0] - before
    done.set()
    thread.join()
    assert during > 10  # a call that keeps the GIL lets it tick once or twice


def test_threads_share_an_engine(engine):
    def answer(n):
        return list(engine.session("pop", ratio=0.3).generate(PROMPT[:n], max_tokens=20, ignore_eos=True))
    alone, together = [answer(n) for n in range(1, 7)], [None] * 6

    def work(i):
        for _ in range(5):
            together[i] = answer(i + 1)
    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == alone


def test_a_handler_cannot_wait_for_what_it_interrupts(default_model):
    generation = popcpp.Engine(default_model, threads=1).session().generate(list(range(1000, 1200)), max_tokens=7000, ignore_eos=True)
    said = []

    def handler(*_):
        try:
            generation.stop()
        except popcpp.Error as error:
            said.append(str(error))
        raise KeyboardInterrupt
    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(KeyboardInterrupt):
            generation.read()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert said and "busy" in said[0]


def interrupt_soon():
    threading.Timer(0.3, signal.raise_signal, [signal.SIGINT]).start()


@pytest.mark.parametrize("call", ["read", "score", "generate_batch"])
def test_ctrl_c_ends_the_work(default_model, call):
    session = popcpp.Engine(default_model, threads=1).session()
    ids = list(range(1000, 1200))
    generation = session.generate(ids, max_tokens=7000, ignore_eos=True)
    calls = {"read": generation.read, "score": lambda: session.score_batch([ids] * 200, batch=1),
             "generate_batch": lambda: session.generate_batch([ids] * 2, tokens=7000)}
    interrupt_soon()
    with pytest.raises(KeyboardInterrupt):
        calls[call]()
    if call == "read":
        assert generation.finish_reason == "interrupted" and len(generation.ids) < 7000
    again = session.generate(ids, max_tokens=3)
    fresh = popcpp.Engine(default_model, threads=1).session().generate(ids, max_tokens=3)
    assert again.read() == fresh.read() and again.logits_hash == fresh.logits_hash


def test_what_on_load_raises_ends_the_load():
    def refuse(done, total):
        raise InterruptedError(f"{total}")
    with pytest.raises(InterruptedError):
        popcpp.Engine(TINY, on_load=refuse)


def test_leaves_nothing_behind():
    """nanobind reports objects that are still there at exit."""
    code = (f"import popcpp\nengine = popcpp.Engine({str(TINY)!r})\nsession = engine.session('pop')\n"
            "generation = session.generate([1, 2, 3])\nnext(generation)\nlogits = generation.logits\n"
            "try:\n  session.generate([])\nexcept popcpp.Error as e:\n  kept = e\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert done.stdout == done.stderr == ""


def test_stubs_are_whole():
    assert (Path(popcpp.__file__).parent / "py.typed").exists()
    tree = stub()
    names = {n.name for n in tree.body if isinstance(n, (ast.ClassDef, ast.FunctionDef))}
    assert set(popcpp.__all__) - {"__version__"} == names
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            assert node.returns is not None, node.name
            for argument in node.args.args + node.args.kwonlyargs:
                assert argument.arg == "self" or argument.annotation is not None, (node.name, argument.arg)
    text = ast.unparse(tree)
    assert "Any" not in text.replace("typing.Any", "Any").split() and "NDArray[numpy.float32]" in text
    for name in popcpp.__all__:
        thing = getattr(popcpp, name)
        if inspect.isclass(thing):
            assert thing.__doc__, name
