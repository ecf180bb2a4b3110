"""The Python of the documents: every ```python block is run, those of one document after one another."""

import re

import pytest
from conftest import ROOT


@pytest.mark.parametrize("path", ["README.md", "docs/python.md"])
def test_snippets(path, default_model, tmp_path, monkeypatch):
    (tmp_path / "models").symlink_to(default_model.parent)
    monkeypatch.chdir(tmp_path)
    text, names = (ROOT / path).read_text(), {}
    blocks = list(re.finditer(r"^```python\n(.*?)^```$", text, re.M | re.S))
    assert blocks
    for block in blocks:
        line = text[:block.start()].count("\n") + 1
        exec(compile("\n" * line + block[1], path, "exec"), names)
