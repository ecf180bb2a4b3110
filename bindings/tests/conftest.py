"""Run by CTest (python.*) from the repository root, with the package of the build on PYTHONPATH and POP_PROGRAM."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
TINY = ROOT / "tests/goldens/tiny-q4_1.gguf"
EXPERTS = ROOT / "tests/goldens/tiny-qwen3moe.gguf"
DEFAULT_MODEL = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: runs the default model")


def pytest_collection_modifyitems(items):
    for item in items:
        if "default_model" in item.fixturenames:
            item.add_marker("slow")


@pytest.fixture
def default_model():
    if not DEFAULT_MODEL.exists():
        pytest.skip("the default model is not here: scripts/quickstart fetches it")
    return DEFAULT_MODEL


def program(*arguments, code=0):
    """What `pop` says: its JSON, or the line of its error."""
    done = subprocess.run([os.environ["POP_PROGRAM"], *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout) if code == 0 else done.stderr.strip().splitlines()[-1]
