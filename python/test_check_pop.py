"""check_pop.py against a stand-in for the engine: right answers pass, and each small mistake is seen. Run: pytest python"""

import shlex
import sys
from pathlib import Path

import pytest

import check_pop
import mock_pop

MOCK = shlex.join([sys.executable, str(Path(__file__).with_name("mock_pop.py"))])
SEEN = {                     # mistake: (case, words of the failure)
    "score-metric": ("64/pop/down/r0.2/g0.3", "differs in channels"),
    "no-sqrt": ("64/pop/down/r0.2/g0.3", "differs in channels"),
    "swap-partition": ("64/pop/down/r0.2/g0.3", "differs in channels"),
    "p-returns": ("64/pop/down/r0.2/g0.3", "a channel of R was not used"),
    "swap-choice": ("64/pop/down/r0.2/g0.3", "left out scores"),
    "tau": ("64/pop+/r0.4", "expected tau"),
    "count-position-0": ("64/pop+/r0.4", "expected 4032 scores"),
    "one-column": ("64/pop+/r0.4", "was skipped"),
    "logits": ("64/pop/gate-up/r0.4/g0.1", "log-probability differs"),
    "share": ("64/pop+/r0.2", "selected_share"),
    "drop-token": ("64/pop/gate-up/r0.4/g0.1", "expected choices for 32 tokens"),
}


def run(case, capsys, options=""):
    code = check_pop.main([f"{MOCK}", "--model", "tiny-tied.gguf", "--only", case, "--extra", options])
    return code, capsys.readouterr().out


@pytest.mark.parametrize("case", ["64/pop/down/r0.2/g0.3", "1/pop/gate-up/r0.4/g0.1", "7/full", "64/fixed", "64/pop+/r0.4",
                                  "pruned-prefill"])
def test_right_answers_pass(case, capsys):
    code, out = run(case, capsys)
    assert code == 0, out


def test_every_mistake_has_a_test():
    assert set(SEEN) == set(mock_pop.SABOTAGE)


@pytest.mark.parametrize("mistake", SEEN)
def test_mistakes_are_seen(mistake, capsys):
    case, words = SEEN[mistake]
    code, out = run(case, capsys, f"--sabotage {mistake}")
    assert code == 1 and words in out, out
