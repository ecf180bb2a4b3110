#!/usr/bin/env python3
"""The one program runs on any x86-64: qemu-user plays CPUs without AVX, and one with AVX2 but without AVX-512.

Usage: old_cpu_test.py PROGRAM ROOT COMPILER

On each CPU `pop --version` must list what that CPU has, and a short greedy run must give the bits that this machine gives
with the same instruction set. That the emulation refuses what the CPU lacks is checked first, with a program of one AVX
instruction: else nothing here could fail.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

EMULATOR = "qemu-x86_64"
# core2duo has SSSE3 and nothing newer, Opteron_G1 (2003) no more than the x86-64 baseline.
CPUS = {"core2duo": ["scalar"], "Opteron_G1": ["scalar"], "Haswell": ["scalar", "avx2"]}
# Models of tests/goldens and activations. Float activations on 4-bit blocks are left out: they gather, and qemu 7.2 ignores
# the index of a gather that stands in register 4 (docs/portability.md).
RUNS = [("tiny-linear", "f32"), ("tiny-q4_1", "i16")]


def main():
    program, root, compiler = map(os.path.abspath, sys.argv[1:3] + [shutil.which(sys.argv[3]) or sys.argv[3]])
    if shutil.which(EMULATOR) is None:
        print(f"Skipped\n{EMULATOR} is not installed\n")
        return 77

    def run(cpu, *command, check=True):
        prefix = [EMULATOR, "-cpu", cpu] if cpu else []
        done = subprocess.run([*prefix, *command], capture_output=True, text=True, check=False)
        if check and done.returncode != 0:
            sys.exit(f"{cpu}: {' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    with tempfile.TemporaryDirectory(prefix="pop-old-cpu-") as folder:
        with open(f"{folder}/avx.cpp", "w", encoding="utf-8") as file:
            file.write('int main() { asm volatile("vpxor %ymm0, %ymm0, %ymm0"); }\n')
        subprocess.run([compiler, f"{folder}/avx.cpp", "-o", f"{folder}/avx"], check=True)
        for cpu, isas in CPUS.items():
            died = run(cpu, f"{folder}/avx", check=False).returncode != 0
            if died != ("avx2" not in isas):
                sys.exit(f"{EMULATOR} -cpu {cpu}: an AVX2 instruction {'ends' if died else 'does not end'} the program")

    def logits_hash(cpu, model, activations, isa):
        return json.loads(run(cpu, program, "run", "-m", f"{root}/tests/goldens/{model}.gguf", "--ids", "97,98,99,100,101",
                              "-n", "6", "--ignore-eos", "--temp", "0", "--json", "--threads", "2", "--isa", isa,
                              "--activations", activations).stdout)["logits_hash"]

    here = run("", program, "--version").stdout.rpartition(":")[2].split()
    compared = 0
    for cpu, isas in CPUS.items():
        found = run(cpu, program, "--version").stdout.rpartition(":")[2].split()
        if found != isas:
            sys.exit(f"{cpu}: pop --version: expected the instruction sets {isas}, found {found}")
        for isa in set(isas) & set(here):
            for model, activations in RUNS:
                got, want = logits_hash(cpu, model, activations, isa), logits_hash("", model, activations, isa)
                if got != want:
                    sys.exit(f"{cpu}, {isa}, {model}, {activations}: expected logits_hash {want} as here, found {got}")
                compared += 1
        refused = run(cpu, program, "run", "-m", f"{root}/tests/goldens/tiny-q4_1.gguf", "--ids", "97", "--isa", "avx512",
                      check=False)
        if refused.returncode <= 0 or "avx512" not in refused.stderr:
            sys.exit(f"{cpu}: --isa avx512: expected an error line, found exit code {refused.returncode}: {refused.stderr}")
    print(f"{len(CPUS)} CPUs, {compared} runs with the bits of this machine")
    return 0


if __name__ == "__main__":
    sys.exit(main())
