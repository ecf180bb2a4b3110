#!/usr/bin/env python3
"""What the object files say about rules that the sources alone cannot prove.

Usage: symbols.py weak LIST      LIST: a file with one object file per line, made for one instruction set
       symbols.py baseline LIST  LIST: object files that must run on any x86-64
       symbols.py imports LIST   LIST: all object files of the library
       symbols.py self-test COMPILER

NM and OBJDUMP of the environment name the tools of another target.

weak: no object built for an instruction set exports a weak symbol. The linker keeps one of several weak copies, so an
inline function compiled there could replace the baseline copy, and the program would die on an older machine. Nor has one
anything to run at start: constructors of its globals would run before the CPU is known.
baseline: no AVX instruction in the other objects.
imports: the library calls nothing that prints, exits, aborts or reads the environment.
"""
import os
import re
import subprocess
import sys
import tempfile

NM, OBJDUMP = os.environ.get("NM") or "nm", os.environ.get("OBJDUMP") or "objdump"

# Symbols the library must not import. C++ names are mangled.
FORBIDDEN = {
    "prints": r"v?printf|puts|putchar|putc|perror|psignal|vdprintf|dprintf|v?fprintf|fputs|fputc|fwrite|stdout|stderr|"
              r"__v?f?printf_chk|syslog|_ZSt4cout|_ZSt4cerr|_ZSt4clog|_ZNSt8ios_base4InitC1Ev|"
              r"_ZN3fmt\d+v\d+?(?:5print|6vprint|7println)[EI]\w*",
    "ends the process": r"abort|_?exit|_Exit|quick_exit|__assert_fail|raise|kill|atexit|_ZSt9terminatev",
    "reads the environment": r"(?:secure_)?getenv|environ|__environ|setenv|putenv",
    "runs programs": r"system|popen|exec[vl]p?e?|fork|posix_spawnp?",
    "has global state of the process": r"signal|sigaction|setlocale|srand|rand|chdir",
}
ALLOWED = {
    # The compiler itself plants the call where an exception leaves a noexcept function (a destructor, say).
    "_ZSt9terminatev",
}
# Vector registers beyond SSE, and mnemonics of the VEX encoding on xmm registers.
AVX = re.compile(r"^\s*[0-9a-f]+:\s+(v[a-z]\w*\s.*|.*%[yz]mm.*)$")
# Instructions that start with v and are no AVX.
NOT_AVX = re.compile(r"\b(verr|verw|vm(call|launch|resume|xon|xoff|read|write|clear|ptrld|ptrst|func|mcall|run|load|save))\b")


def objects(path):
    names = [line.strip() for line in open(path, encoding="utf-8") if line.strip()]
    if not names:
        sys.exit(f"{path}: expected object files, found none")
    missing = [name for name in names if not os.path.isfile(name)]
    if missing:
        sys.exit(f"not built: {missing[0]}")
    return names


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def weak(names):
    problems = []
    for name in names:
        for line in output(NM, "--defined-only", name).splitlines():
            kind, symbol = line.split()[-2:]
            # W and V: weak function and object; u: unique. DW.ref.* is the compiler's reference to its own tables.
            if kind in "WwVvu" and not symbol.startswith("DW.ref."):
                problems.append(f"{os.path.basename(name)}: exports the weak symbol {symbol}")
        if re.search(r"\.(init_array|ctors|preinit_array)\b", output(OBJDUMP, "-h", name)):
            problems.append(f"{os.path.basename(name)}: has constructors, which run before the CPU is known")
    return problems


def baseline(names):
    problems = []
    for name in names:
        for line in output(OBJDUMP, "-d", "--no-show-raw-insn", name).splitlines():
            if AVX.match(line) and not NOT_AVX.search(line):
                problems.append(f"{os.path.basename(name)}: {' '.join(line.split())}")
                break
    return problems


def imports(names):
    problems, defined = [], set()
    for name in names:
        defined.update(line.split()[-1] for line in output(NM, "--defined-only", name).splitlines())
    for name in names:
        for line in output(NM, "-u", name).splitlines():
            symbol = line.split()[-1].split("@")[0]
            if symbol in ALLOWED or symbol in defined:
                continue
            for what, pattern in FORBIDDEN.items():
                if re.fullmatch(pattern, symbol):
                    problems.append(f"{os.path.basename(name)}: imports {symbol}, which {what}")
    return problems


def self_test(compiler):
    cases = [
        (weak, "template <class T> T twice(T x) { return x + x; }\nint f(int x) { return twice(x); }", ["-O0"], True),
        (weak, "static int twice(int x) { return x + x; }\nint f(int x) { return twice(x); }", ["-O0"], False),
        (weak, "int g(); static int x = g(); int f() { return x; }", ["-O2"], True),
        (baseline, "void f(float* x) { for (int i = 0; i < 64; ++i) x[i] *= 2; }", ["-O3", "-mavx2"], True),
        (baseline, "void f(float* x) { for (int i = 0; i < 64; ++i) x[i] *= 2; }", ["-O3"], False),
        (imports, "#include <cstdio>\nvoid f() { std::puts(\"x\"); }", [], True),
        (imports, "#include <iostream>\nvoid f() { std::cout << 1; }", [], True),
        (imports, "#include <fmt/core.h>\nvoid f(int x) { fmt::print(\"{}\", x); }", ["-O0"], True),
        (imports, "#include <fmt/format.h>\nstd::string f(const char* x) { return fmt::format(\"{:?}\", x); }", ["-O0"],
         False),
        (imports, "#include <cstdlib>\nvoid f() { std::abort(); }", [], True),
        (imports, "#include <cstdlib>\nconst char* f() { return std::getenv(\"HOME\"); }", [], True),
        (imports, "#include <string>\nstd::string f(int x) { return std::to_string(x); }", ["-O2"], False),
    ]
    with tempfile.TemporaryDirectory() as folder:
        for number, (check, text, flags, wrong) in enumerate(cases):
            source, target = f"{folder}/{number}.cpp", f"{folder}/{number}.o"
            with open(source, "w", encoding="utf-8") as file:
                file.write(text + "\n")
            subprocess.run([*compiler, "-std=c++20", *flags, "-c", source, "-o", target], check=True)
            if bool(check([target])) != wrong:
                sys.exit(f"self-test failed: case {number} ({check.__name__}): expected {wrong}, found {check([target])}")
    print(f"self-test: {len(cases)} cases")


def main():
    mode, argument = sys.argv[1:]
    if mode == "self-test":
        return self_test([argument])
    names = objects(argument)
    problems = {"weak": weak, "baseline": baseline, "imports": imports}[mode](names)
    print("\n".join(problems) if problems else f"{len(names)} objects, nothing to report ({mode})")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
