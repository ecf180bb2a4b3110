#!/usr/bin/env python3
"""Every command the documents show must work: the ```sh blocks of README.md, HACKING.md and docs/.

Usage: docs_commands.py ROOT PROGRAM

A block with a `pop` command in it is run, line after line as one shell script, offline, in an empty folder where build/
and models/ are those of the repository; it must exit with 0. A block after a line `<!-- not run: REASON -->` is only
read: the command and each of its options must be known to `pop COMMAND --help`. Of other commands (scripts, cmake,
ctest) the script, the preset and the options must exist.
"""
import glob
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

MODEL = "models/SmolLM2-135M-Instruct.Q4_1.gguf"
OTHER_COMMANDS = {"git", "cd", "ctest", "cmake", "ninja", "pkg-config", "g++", "clang-tidy", "man", "apt-get", "sudo",
                  "python3", "pip", "mkdir", "ls", "source", "export", ".venv/bin/python"}
HELPERS = {"echo", "printf", "cat", "head", "seq", "export"}  # may stand beside pop commands in a block that is run
TIMEOUT_S = 240


class Block:
    def __init__(self, where, lines, reason):
        self.where, self.lines, self.reason = where, lines, reason


def blocks(root):
    paths = [f"{root}/README.md", f"{root}/HACKING.md"] + sorted(glob.glob(f"{root}/docs/**/*.md", recursive=True))
    for path in paths:
        lines = open(path, encoding="utf-8").read().splitlines()
        start, reason = None, None
        for number, line in enumerate(lines):
            if start is None and line.strip() == "```sh":
                before = [text for text in lines[max(0, number - 2):number] if text.strip()]
                match = re.match(r"<!-- not run: (.+) -->", before[-1]) if before else None
                start, reason = number + 1, match and match.group(1)
            elif start is not None and line.strip() == "```":
                body = "\n".join(lines[start:number]).replace("\\\n", " ").splitlines()
                yield Block(f"{os.path.relpath(path, root)}:{start + 1}", body, reason)
                start = None


def commands(line):
    """The simple commands of a line: comments, pipes, lists and redirections taken apart."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    current = []
    for token in lexer:
        if re.fullmatch(r"[|&;]+", token):
            if current:
                yield current
            current = []
        elif not re.fullmatch(r"[<>]+", token):
            current.append(token)
    if current:
        yield current


def is_pop(words):
    return words[0] in ("pop", "build/pop")


class Checker:
    def __init__(self, root, program):
        self.root, self.program, self.help, self.problems, self.ran, self.read = root, program, {}, [], 0, 0
        self.presets = {entry["name"] for entry in json.load(open(f"{root}/CMakePresets.json"))["configurePresets"]}

    def help_of(self, *command):
        if command not in self.help:
            done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self.root)
            self.help[command] = done.stdout if done.returncode == 0 else ""
        return self.help[command]

    def read_pop(self, where, words):
        self.read += 1
        names = [self.program]
        for word in words[1:3]:  # at most two: `pop bench decode`
            if not re.fullmatch(r"[a-z]+", word) or not self.help_of(*names, word, "--help"):
                break
            names.append(word)
        text = self.help_of(*names, "--help")
        if not text or (len(names) == 1 and len(words) > 1 and not words[1].startswith("-")):
            self.problems.append(f"{where}: no such command: {shlex.join(words)}")
        for word in words[1:]:
            option = word.split("=")[0]
            if re.fullmatch(r"--?[a-z][a-z0-9-]*", option) and not re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", text):
                self.problems.append(f"{where}: {' '.join(names[1:]) or 'pop'} --help does not know {option}")

    def read_other(self, where, words):
        self.read += 1
        name = words[0]
        path = os.path.join(self.root, name)
        if "/" in name and name not in OTHER_COMMANDS:
            if not os.access(path, os.X_OK):
                self.problems.append(f"{where}: {name}: no such program in the repository")
            elif name.startswith("scripts/"):
                text = self.help_of(path, "--help")
                for option in words[1:]:
                    if option == "--":
                        break
                    if option.startswith("--") and option not in text:
                        self.problems.append(f"{where}: {name} --help does not know {option}")
        elif name not in OTHER_COMMANDS | HELPERS:
            self.problems.append(f"{where}: {name}: not a command that this test knows how to check")
        if "--preset" in words and words[words.index("--preset") + 1] not in self.presets:
            self.problems.append(f"{where}: no such preset: {shlex.join(words)}")

    def run(self, block):
        with tempfile.TemporaryDirectory(prefix="pop-docs-") as folder:
            os.symlink(os.path.dirname(self.program), f"{folder}/build")
            os.symlink(f"{self.root}/models", f"{folder}/models")
            environment = dict(os.environ, PATH=f"{os.path.dirname(self.program)}:{os.environ['PATH']}", NO_COLOR="1")
            script = "set -euo pipefail\n" + "\n".join(block.lines)
            try:
                done = subprocess.run(["bash", "-c", script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd=folder,
                                      stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT_S, check=False, env=environment)
                if done.returncode != 0:
                    self.problems.append(f"{block.where}: exit code {done.returncode}\n{done.stdout[-2000:]}")
            except subprocess.TimeoutExpired:
                self.problems.append(f"{block.where}: still running after {TIMEOUT_S} s")

    def check(self, block):
        parsed = [words for line in block.lines for words in commands(line)]
        runs = any(is_pop(words) for words in parsed) and not block.reason
        for words in parsed:
            if is_pop(words):
                self.read_pop(block.where, words)
            elif not runs or words[0] not in HELPERS:
                self.read_other(block.where, words)
            if runs and not is_pop(words) and words[0] not in HELPERS:
                self.problems.append(f"{block.where}: {words[0]} stands beside pop commands: move it to a block of its own")
        if runs and not self.problems:
            self.ran += sum(map(is_pop, parsed))
            self.run(block)


def main():
    root, program = map(os.path.abspath, sys.argv[1:])
    if not os.path.exists(f"{root}/{MODEL}"):
        print(f"Skipped\n{MODEL} is not there\n")
        return 77
    checker = Checker(root, program)
    for block in blocks(root):
        checker.check(block)
    print("\n".join(checker.problems) or f"{checker.ran} pop commands run, {checker.read} commands read")
    if not checker.problems and checker.ran == 0:
        sys.exit("no pop command was run: are the documents there?")
    return 1 if checker.problems else 0


if __name__ == "__main__":
    sys.exit(main())
