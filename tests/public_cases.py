#!/usr/bin/env python3
"""docs/public-cases.md names tests that exist: of each row the files, and in them the tests in backticks behind them.

Usage: public_cases.py ROOT | --self-test
"""
import os
import re
import sys

ROW = re.compile(r"^\| ([A-Z]\d\d) \| (.+?) \| (.+) \|$")
FILES = r"`([\w./-]+\.(?:cpp|py))`"


def has_test(text, name):
    """`Suite.Name` of a C++ file, or the name of a Python function."""
    suite, _, test = name.rpartition(".")
    pattern = rf"\bTEST(?:_[FP])?\({suite}, {test}\)" if suite else rf"\bdef {test}\("
    return re.search(pattern, text) is not None


def check(page, read):
    """Problems of the page's text; read(path) gives a file's text, or None if it is not there."""
    problems, seen = [], set()
    rows = [line for line in page.splitlines() if re.match(r"^\| [A-Z]\d", line)]
    for line in rows:
        row = ROW.match(line)
        if not row:
            problems.append(f"expected | row | what happens | tests |, found {line}")
            continue
        name, _, tests = row.groups()
        if name in seen:
            problems.append(f"{name}: there twice")
        seen.add(name)
        if tests.startswith("does not apply: "):
            continue
        for part in tests.split("; "):
            entry = re.fullmatch(FILES + r"(?:: ((?:`[\w.]+`(?:, )?)+))?", part)
            if not entry:
                problems.append(f"{name}: expected `file`: `Suite.Name`, ..., found {part}")
                continue
            file, names = entry.groups()
            text = read(file)
            if text is None:
                problems.append(f"{name}: {file} is not there")
                continue
            problems += [f"{name}: {file} has no test {test}" for test in re.findall(r"`([\w.]+)`", names or "")
                         if not has_test(text, test)]
            if not names and not file.endswith(".py"):
                problems.append(f"{name}: {file} without the name of a test")
    return problems if rows else ["no rows"]


def self_test():
    files = {"a/b_test.cpp": "TEST(A, One) {\nTEST_P(B, Two) {", "a/c.py": "def test_x():"}
    row = "| G01 | it is refused | {} |"
    good = ["`a/b_test.cpp`: `A.One`", "`a/b_test.cpp`: `A.One`, `B.Two`; `a/c.py`: `test_x`", "`a/c.py`",
            "does not apply: it has none"]
    bad = ["`a/b_test.cpp`: `A.Two`", "`a/b_test.cpp`", "`a/d.cpp`: `A.One`", "A.One", "", "`a/c.py`: `test_y`"]
    wrong = [text for text in good if check(row.format(text), files.get)] + \
            [text for text in bad if not check(row.format(text), files.get)]
    wrong += ["twice"] if not check("\n".join([row.format(good[0])] * 2), files.get) else []
    wrong += ["empty"] if not check("text", files.get) else []
    print("\n".join(f"taken for the other: {text}" for text in wrong) or "self-test passed")
    return 1 if wrong else 0


def main():
    if sys.argv[1] == "--self-test":
        return self_test()

    def read(path):
        full = os.path.join(sys.argv[1], path)
        return open(full, encoding="utf-8").read() if os.path.exists(full) else None

    page = read("docs/public-cases.md")
    problems = check(page, read)
    print("\n".join(f"docs/public-cases.md: {problem}" for problem in problems) or "all tests are there")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
