#!/usr/bin/env python3
"""The documents name things that exist: relative links, files in backticks, and the functions of "A token's life".

Usage: docs_links.py ROOT
"""
import glob
import os
import re
import sys

FOLDERS = "apps|base|cmake|docs|engine|formats|kernels|model|prune|python|scripts|tensor|tests|text|\\.ci"


def check(root, path, problems):
    text = open(os.path.join(root, path), encoding="utf-8").read()
    prose = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", prose):
        if not re.match(r"[a-z]+:", target) and not os.path.exists(os.path.join(root, os.path.dirname(path), target)):
            problems.append(f"{path}: the link to {target} leads nowhere")
    for name in re.findall(rf"`((?:{FOLDERS})/[\w./-]*)`", prose):
        if "NAME" not in name and not os.path.exists(os.path.join(root, name)):
            problems.append(f"{path}: {name} is not there")
    for function, file in re.findall(r"^\| \d+ \| `([\w:]+)` \| `([^`]+)`", prose, re.M):
        source = os.path.join(root, file)
        name = function.split("::")[-1]
        if os.path.exists(source) and not re.search(rf"\b{name}\(", open(source, encoding="utf-8").read()):
            problems.append(f"{path}: {file} has no function {function}")


def main():
    root = sys.argv[1]
    paths = ["README.md", "HACKING.md", "CHANGELOG.md"] + [os.path.relpath(path, root) for path in
                                                         glob.glob(f"{root}/docs/**/*.md", recursive=True)]
    problems = []
    for path in paths:
        check(root, path, problems)
    print("\n".join(problems) or f"{len(paths)} documents")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
