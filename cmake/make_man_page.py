#!/usr/bin/env python3
"""Writes the man page pop(1) from what the program itself says: `pop --help`, then `pop COMMAND --help`.

Usage: make_man_page.py PROGRAM VERSION OUTPUT
"""
import os
import re
import subprocess
import sys


def help_text(program, *command):
    environment = dict(os.environ, NO_COLOR="1", COLUMNS="80")
    done = subprocess.run([program, *command, "--help"], capture_output=True, text=True, env=environment, timeout=60)
    if done.returncode != 0 or not done.stdout.strip():
        sys.exit(f"{program} {' '.join(command)} --help: expected text and exit code 0, found {done.returncode}")
    return done.stdout.rstrip()


def commands(text):
    """The names listed in the help under a heading that ends in "commands:" (of any case)."""
    names, inside = [], False
    for line in text.splitlines():
        if re.match(r"^\S.*:\s*$", line):
            inside = line.strip().lower().endswith("commands:")
        elif inside:
            match = re.match(r"^ {1,4}([a-z][a-z0-9-]*)\b", line)
            if match:
                names.append(match.group(1))
    return names


def verbatim(text):
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    lines = [("\\&" + line) if line.startswith((".", "'")) else line for line in escaped.splitlines()]
    return ".nf\n" + "\n".join(lines) + "\n.fi\n"


def main():
    program, version, output = sys.argv[1:]
    top = help_text(program)
    names = commands(top)
    if not names:
        sys.exit(f"{program} --help: expected a list of commands, found none")
    page = [f'.TH POP 1 "" "pop {version}" "User Commands"\n', ".SH NAME\n",
            "pop \\- run large language models, dense or pruned online by POP\n",
            ".SH SYNOPSIS\n.B pop\n.I COMMAND\n[options]\n", ".SH DESCRIPTION\n", verbatim(top), ".SH COMMANDS\n"]
    for name in names:
        page += [f".SS pop {name}\n", verbatim(help_text(program, name))]
    page.append(".SH EXIT STATUS\n0 done; 1 bad input, model or state; 2 bad usage; 130 interrupted.\n")
    with open(output + ".new", "w", encoding="utf-8") as file:
        file.write("".join(page))
    os.replace(output + ".new", output)


if __name__ == "__main__":
    main()
