#!/usr/bin/env python3
"""scripts/check_skips.py must fail on a skip nobody allowed, and only then."""
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def case(name, output=None):
    skipped = "" if output is None else f'<skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/><system-out>{output}</system-out>'
    return f'<testcase name="{name}" status="{"run" if output is None else "notrun"}">{skipped}</testcase>'


def judge(cases, allowed):
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/results.xml", "w", encoding="utf-8") as file:
            file.write(f"<testsuite>{''.join(cases)}</testsuite>")
        with open(f"{folder}/allowed.txt", "w", encoding="utf-8") as file:
            file.write(allowed)
        return subprocess.run([sys.executable, f"{ROOT}/scripts/check_skips.py", f"{folder}/results.xml",
                               f"{folder}/allowed.txt"], capture_output=True, text=True, check=False)


def expect(condition, what, done):
    if not condition:
        sys.exit(f"{what}: exit code {done.returncode}, output:\n{done.stdout}{done.stderr}")


def main():
    gtest = "a_test.cpp:7: Skipped\n{}\n\n[  SKIPPED ] A.B (0 ms)\n"
    done = judge([case("a.B"), case("a.C")], "")
    expect(done.returncode == 0 and "0 skipped" in done.stdout, "no skips", done)
    done = judge([case("a.B"), case("a.C", gtest.format("no such file"))], "# nothing\n")
    expect(done.returncode == 1 and "NOT ALLOWED: a.C was skipped (no such file)" in done.stdout, "unexpected skip", done)
    done = judge([case("a.C", gtest.format("no such file"))], "a.*  needs a file\n")
    expect(done.returncode == 0, "allowed skip", done)
    done = judge([case("a.C", gtest.format("ISA avx512 is not available"))], "")
    expect(done.returncode == 0 and "skipped instruction set: avx512 (1 test" in done.stdout, "missing ISA", done)
    done = judge([case("a.C")], "a.C\n")
    expect(done.returncode != 0, "a line without a reason", done)
    print("5 cases")


if __name__ == "__main__":
    main()
