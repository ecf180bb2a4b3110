#!/usr/bin/env python3
"""Proves that includes go one way (docs/architecture.md), and a few rules that show in the text of the sources.

Usage: include_direction.py ROOT          checks the sources below ROOT
       include_direction.py --self-test   checks that the checker finds what it must
"""
import os
import re
import sys
import tempfile

LIBRARY = ["base", "tensor", "text", "formats", "kernels", "prune", "model", "engine"]
# The table of docs/architecture.md. A folder may always include itself.
MAY_INCLUDE = {
    "base": [],
    "tensor": ["base"],
    "text": ["base"],
    "formats": ["tensor", "base"],
    "kernels": ["tensor", "base"],
    "prune": ["kernels", "tensor", "base"],
    "model": ["formats", "kernels", "prune", "tensor", "base"],
    "engine": ["model", "prune", "kernels", "formats", "text", "tensor", "base"],
    # base: errors, sizes, CPU features and the version are everybody's vocabulary.
    "apps": ["engine", "prune", "base"],
    "apps/eval": ["engine", "prune", "model", "kernels", "formats", "text", "tensor", "base"],
    "apps/convert": ["engine", "model", "formats", "text", "tensor", "base"],
    "apps/bench": ["engine", "prune", "model", "kernels", "formats", "tensor", "base"],
    "bindings": ["engine", "prune", "base"],
    "tests": LIBRARY + ["apps", "tests"],
}
SOURCE = re.compile(r"\.(cpp|cc|c|h|hpp|inc|cu|cuh|in)$")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]')
# What a compiler defines for one instruction set. __x86_64__ is the architecture, not an instruction set.
ISA_MACRO = re.compile(r"^\s*#\s*(?:el)?if.*\b(__(?:AVX|SSE|SSSE|FMA|F16C|BMI|ARM_NEON|ARM_FEATURE)\w*)")
ISA_HEADERS = {"immintrin.h", "x86intrin.h", "emmintrin.h", "xmmintrin.h", "smmintrin.h", "tmmintrin.h", "avxintrin.h",
               "arm_neon.h", "arm_sve.h"}


def owner(path):
    """The row of the table that a file belongs to: "apps/eval" for apps/eval/x.cpp, else the first folder."""
    parts = path.split("/")
    two = "/".join(parts[:2])
    return two if len(parts) > 2 and two in MAY_INCLUDE else parts[0]


def allowed(source, target):
    source_owner, target_owner = owner(source), owner(target)
    if source_owner == target_owner or target_owner in MAY_INCLUDE[source_owner]:
        return True
    # Parts of one program, and a test of it, may see each other; the table is about the library below them.
    return source.startswith("apps/") and target.startswith("apps/")


def check_file(root, path, problems):
    for number, line in enumerate(open(os.path.join(root, path), encoding="utf-8"), 1):
        where = f"{path}:{number}"
        macro = ISA_MACRO.match(line)
        if macro and owner(path) not in ("kernels", "tests"):
            problems.append(f"{where}: {macro.group(1)}: instruction-set macros belong into kernels/ only")
        match = INCLUDE.match(line)
        if not match:
            continue
        kind, target = match.groups()
        if kind == "<":
            if target in ISA_HEADERS and owner(path) != "kernels":
                problems.append(f"{where}: <{target}>: intrinsics belong into kernels/ only")
            if target.split("/")[0] in MAY_INCLUDE:
                problems.append(f'{where}: <{target}>: write our own headers with "", so that this test sees them')
            continue
        if not os.path.isfile(os.path.join(root, target)):
            problems.append(f'{where}: "{target}": expected a path from the repository root, found no such file')
        elif target.split("/")[0] not in MAY_INCLUDE:
            problems.append(f'{where}: "{target}": this folder has no row in the include table')
        elif not allowed(path, target):
            names = ", ".join(MAY_INCLUDE[owner(path)]) or "nothing"
            problems.append(f'{where}: "{target}": {owner(path)} may include {names}')


def check(root):
    problems, files = [], 0
    for folder in [name for name in MAY_INCLUDE if "/" not in name]:
        for current, folders, names in os.walk(os.path.join(root, folder)):
            folders[:] = [name for name in folders if not name.startswith((".", "build"))]
            for name in sorted(names):
                path = os.path.relpath(os.path.join(current, name), root)
                if path.startswith("tests/install/"):
                    continue  # a program of somebody else, who has the installed header only
                if SOURCE.search(name):
                    files += 1
                    check_file(root, path, problems)
    return problems, files


def self_test():
    cases = [  # file, its text, whether it is wrong
        ("base/a.h", "#include <vector>\n", False),
        ("tensor/a.cpp", '#include "base/a.h"\n', False),
        ("base/bad.h", '#include "tensor/t.h"\n', True),
        ("text/bad.cpp", '#include "tensor/t.h"\n', True),
        ("prune/bad.cpp", '#include "model/m.h"\n', True),
        ("model/bad.cpp", '  #  include "text/x.h"\n', True),
        ("model/good.cpp", '#include "prune/p.h"\n#include "model/m.h"\n', False),
        ("apps/good.cpp", '#include "engine/e.h"\n#include "apps/options.h"\n', False),
        ("apps/bad.cpp", '#include "kernels/k.h"\n', True),
        ("apps/bench/good.cpp", '#include "kernels/k.h"\n#include "apps/options.h"\n', False),
        ("engine/bad.cpp", '#include "apps/options.h"\n', True),
        ("model/sneaky.cpp", "#include <text/x.h>\n", True),
        ("model/relative.cpp", '#include "m.h"\n', True),
        ("model/macro.cpp", "#if defined(__AVX512F__)\n#endif\n", True),
        ("model/arch.cpp", "#if defined(__x86_64__)\n#endif\n", False),
        ("engine/intrinsics.cpp", "#include <immintrin.h>\n", True),
        ("kernels/good.cpp", "#include <immintrin.h>\n#ifdef __AVX2__\n#endif\n", False),
    ]
    with tempfile.TemporaryDirectory() as root:
        headers = ["tensor/t.h", "text/x.h", "model/m.h", "prune/p.h", "engine/e.h", "kernels/k.h", "apps/options.h"]
        for path, text in [(header, "") for header in headers] + [case[:2] for case in cases]:
            os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        problems, _ = check(root)
    found = {problem.split(":")[0] for problem in problems}
    expected = {path for path, _, wrong in cases if wrong}
    if found != expected:
        sys.exit(f"self-test failed: missed {sorted(expected - found)}, wrongly named {sorted(found - expected)}")
    print(f"self-test: {len(expected)} wrong files found, {len(cases) - len(expected)} right ones let through")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    problems, files = check(sys.argv[1])
    print("\n".join(problems) if problems else f"{files} files, includes go one way")
    if files == 0:
        sys.exit("found no sources")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
