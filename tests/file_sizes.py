#!/usr/bin/env python3
"""Files that stay readable: headers <= 250 lines, sources <= 500, kernel sources <= 400.

Usage: file_sizes.py ROOT

Tables of cases (testdata/) are data, and may be long. A file that must be longer is named in tests/file_size_exceptions.txt with its own limit and the reason.
"""
import os
import subprocess
import sys

FOLDERS = ["apps", "base", "bindings", "engine", "formats", "kernels", "model", "prune", "python", "scripts", "tensor", "tests", "text"]


def limit_of(path):
    if path.endswith(".h"):
        return 250
    # Tests of kernels are not kernels.
    if path.startswith("kernels/") and not path.endswith("_test.cpp"):
        return 400
    return 500


def exceptions(path):
    table = {}
    for number, line in enumerate(open(path, encoding="utf-8"), 1):
        if line.strip() and not line.startswith("#"):
            parts = line.split(None, 2)
            if len(parts) != 3 or not parts[1].isdigit():
                sys.exit(f"{path}:{number}: expected FILE LINES REASON, found '{line.strip()}'")
            table[parts[0]] = int(parts[1])
    return table


def sources(root):
    try:  # what git tracks or would track; a source archive has no git: then every file
        listing = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True,
                                 check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        listing = [os.path.relpath(os.path.join(folder, name), root)
                   for top in FOLDERS for folder, _, names in os.walk(os.path.join(root, top)) for name in names]
    return [path for path in listing
            if path.split("/")[0] in FOLDERS and "/testdata/" not in path and path.endswith((".h", ".cpp", ".inc", ".py")) and
            os.path.isfile(os.path.join(root, path))]


def main():
    root = sys.argv[1]
    allowed = exceptions(os.path.join(root, "tests/file_size_exceptions.txt"))
    problems, files = [], sources(root)
    for path in files:
        with open(os.path.join(root, path), encoding="utf-8") as file:
            lines = file.read().splitlines()
        limit = allowed.get(path, limit_of(path))
        if len(lines) > limit:
            problems.append(f"{path}: expected at most {limit} lines, found {len(lines)}: split it by reason to change")
    problems += [f"tests/file_size_exceptions.txt: {path} is not there" for path in allowed if path not in files]
    print("\n".join(problems) if problems else f"{len(files)} files within their limits")
    if not files:
        sys.exit("found no sources")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
