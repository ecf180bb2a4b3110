#!/usr/bin/env python3
"""What the compiled kernels must contain: prefetches where weights stream from memory (compilers have deleted them), and
the instructions for which an instruction set's table exists.

Usage: kernel_code.py LIST    LIST: a file with one object file per line, made for one instruction set
       kernel_code.py --self-test COMPILER

OBJDUMP of the environment names the tool of another target. Functions are taken together by weight type, because what is
inlined where is the compiler's choice. clang leaves fewer functions of a type to look at than there are types (it inlines
them into what chooses the type): of its objects the whole must then contain the instruction.
"""
import collections
import os
import re
import subprocess
import sys
import tempfile

OBJDUMP = os.environ.get("OBJDUMP") or "objdump"
PREFETCH = r"prefetch\w*|prfm"
ROWS = r"\b(dot_blocks|dot_floats|BlockDot|FloatDot)<"
COLUMNS = r"\b(axpy_blocks|add_part|axpy_plain|add_plain|add_columns)<"
INTEGER_ROWS = r"\b(dot_blocks|BlockDot)<"
FLOAT_ROWS = r"\b(dot_floats|FloatDot)<"
# (instruction sets, source, functions, instruction that each weight type's functions contain, weight types at least)
RULES = [
    (r"avx2|avx512|neon|dotprod", "dot", ROWS, PREFETCH, 12),
    (r"avx2|avx512", "axpy", COLUMNS, PREFETCH, 6),
    (r"neon|dotprod", "axpy", COLUMNS, PREFETCH, 3),
    (r"avx2|avx512", "dot", FLOAT_ROWS, r"vfmadd\w+ps", 3),
    (r"neon|dotprod", "dot", FLOAT_ROWS, r"fmla", 3),
    (r"avx512", "dot", INTEGER_ROWS, r"vpdpbusd", 9),
    (r"avx512", "axpy", r"\b(axpy_blocks|add_part)<", r"vpdp(busd|wssd)", 3),
    (r"avx512", "gemm", r"\badd_integer<", r"vpdpbusd", 3),
    (r"avx2", "dot", INTEGER_ROWS, r"vpmaddubsw", 9),
    (r"dotprod", "dot", INTEGER_ROWS, r"sdot", 9),
    (r"neon", "dot", INTEGER_ROWS, r"smull2?", 9),
]


def functions(path):
    """Demangled name -> the set of its mnemonics."""
    text = subprocess.run([OBJDUMP, "-d", "-C", "--no-show-raw-insn", path], capture_output=True, text=True, check=True).stdout
    found, name = collections.defaultdict(set), None
    for line in text.splitlines():
        head = re.match(r"[0-9a-f]+ <(.*)>:$", line)
        if head:
            name = head.group(1).replace("(anonymous namespace)::", "")
            continue
        code = re.match(r"\s+[0-9a-f]+:\s+(\S+)", line)
        if code and name:
            found[name].add(code.group(1))
    return found


def is_clang(path):
    notes = subprocess.run([OBJDUMP, "-s", "-j", ".comment", path], capture_output=True, text=True, check=False).stdout
    return "clang" in "".join(line.split("  ")[-1].strip() for line in notes.splitlines())


def check(isa, source, found, whole_is_enough=False):
    problems, rules = [], 0
    for isas, where, pattern, instruction, least in RULES:
        if where != source or not re.fullmatch(isas, isa):
            continue
        rules += 1
        types = collections.defaultdict(set)
        for name, mnemonics in found.items():
            dtype = re.search(pattern + r"\(pop::DType\)(\d+)", name)
            if dtype:
                types[dtype.groups()[-1]] |= mnemonics
        if len(types) < least and whole_is_enough:
            types = {"any": set().union(*found.values())}
        elif len(types) < least:
            problems.append(f"{isa}/{source}: expected functions {pattern} for {least} weight types, found {len(types)}")
        for dtype, mnemonics in sorted(types.items()):
            if not any(re.fullmatch(instruction, mnemonic) for mnemonic in mnemonics):
                problems.append(f"{isa}/{source}: {pattern} of DType {dtype}: no instruction {instruction}")
    return problems, rules


def self_test(compiler):
    text = ("namespace pop { enum class DType { A }; template <DType> __attribute__((noinline)) void add_plain(char* p) { %s p[0] = 1; }"
            " void f(char* p) { add_plain<DType::A>(p); } }")
    with tempfile.TemporaryDirectory() as folder:
        for body, wrong in [("__builtin_prefetch(p + 4096);", 1), ("", 2)]:  # one weight type of six; that one without, too
            with open(f"{folder}/axpy.cpp", "w", encoding="utf-8") as file:
                file.write(text % body)
            subprocess.run([compiler, "-O2", "-c", f"{folder}/axpy.cpp", "-o", f"{folder}/axpy.o"], check=True)
            problems, _ = check("avx2", "axpy", functions(f"{folder}/axpy.o"))
            if len(problems) != wrong:
                sys.exit(f"self-test failed: expected {wrong} problems, found {problems}")
    print("self-test: 2 cases")


def main():
    if sys.argv[1] == "--self-test":
        return self_test(sys.argv[2])
    problems, rules = [], 0
    for line in open(sys.argv[1], encoding="utf-8"):
        match = re.search(r"pop_kernels_(\w+)\.dir/.*?(\w+)\.cpp\.o$", line.strip())
        if match and any(where == match.group(2) for _, where, *_ in RULES):
            more, count = check(match.group(1), match.group(2), functions(line.strip()), is_clang(line.strip()))
            problems += more
            rules += count
    if rules == 0:
        sys.exit(f"{sys.argv[1]}: expected objects of kernels that a rule is about, found none")
    print("\n".join(problems) or f"{rules} rules hold")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
