#!/usr/bin/env python3
"""Judges the skipped tests of a CTest run (JUnit file) by the list of allowed ones.

Usage: check_skips.py RESULTS.xml ALLOWED.txt

Prints every skip with its reason, counts the instruction sets that were skipped, and exits 1 if a skip is neither in
the list nor about an instruction set that this machine does not have.
"""
import collections
import fnmatch
import re
import sys
import xml.etree.ElementTree as ElementTree

ISA = re.compile(r"ISA (\w+) is not available")


def read_allowed(path):
    patterns = []
    for number, line in enumerate(open(path, encoding="utf-8"), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        parts = re.split(r"\s{2,}", line, maxsplit=1)
        if len(parts) != 2:
            sys.exit(f"{path}:{number}: expected a name pattern, two spaces and a reason, found '{line}'")
        patterns.append(tuple(parts))
    return patterns


def reason_of(output):
    """What GoogleTest printed after "file:line: Skipped", or the last line of the output."""
    match = re.search(r"Skipped\s*\n(.*?)\n\s*\n", output, re.S)
    if match:
        return " ".join(match.group(1).split())
    lines = output.strip().splitlines()
    return lines[-1] if lines else "no reason given"


def main():
    results, allowed_path = sys.argv[1:]
    allowed = read_allowed(allowed_path)
    isas, unexpected, skipped = collections.Counter(), [], 0
    for case in ElementTree.parse(results).iter("testcase"):
        name = case.get("name")
        if case.get("status") == "disabled":
            unexpected.append((name, "the test is disabled"))
        if case.find("skipped") is None:
            continue
        skipped += 1
        output = case.findtext("system-out") or ""
        reason = reason_of(output)
        found = ISA.findall(output)
        if found:
            isas.update(set(found))
        elif not any(fnmatch.fnmatchcase(name, pattern) for pattern, _ in allowed):
            unexpected.append((name, reason))
        print(f"skipped: {name}: {reason}")
    for isa, count in sorted(isas.items()):
        print(f"skipped instruction set: {isa} ({count} tests; this machine does not have it)")
    print(f"{skipped} skipped, {len(isas)} instruction sets skipped")
    for name, reason in unexpected:
        print(f"NOT ALLOWED: {name} was skipped ({reason}) and is not in {allowed_path}")
    return 1 if unexpected else 0


if __name__ == "__main__":
    sys.exit(main())
