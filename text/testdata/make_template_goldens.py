#!/usr/bin/env python3
"""Writes template_goldens.json: templates, contexts and what Python's jinja2, set up as Hugging Face transformers does,
makes of them (text, or an error). Needs jinja2 3.1.6 and gguf:

    python3 make_template_goldens.py MODEL.gguf

Expected values come from jinja2 alone. Cases whose output depends on addresses or on Python itself are left out.
"""
import copy
import datetime
import json
import pathlib
import random
import re
import sys

import gguf
import jinja2
import jinja2.ext
import jinja2.sandbox

from template_expressions import DATA, ERRORS, EXPRESSIONS, TEMPLATES
from template_styles import CONVERSATIONS, STYLES

NOW = datetime.datetime(2026, 3, 7, 9, 5, 2)  # given to the C++ test as "now"


class Generation(jinja2.ext.Extension):
    """{% generation %}: marks what the assistant wrote; the text is rendered as a call block renders it."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def environment(optimized=True):
    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, optimized=optimized, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda format: NOW.strftime(format)
    return env


ENV = environment()
UNOPTIMIZED = environment(optimized=False)


def expected(template, context, env=None):
    """{"out": text} or {"error": message of raise_exception, or ""}."""
    try:
        out = (env or ENV).from_string(template).render(**copy.deepcopy(context))  # `indent` would change a list
        out.encode("utf-8")
        return {"out": out}
    except jinja2.exceptions.TemplateError as e:
        plain = type(e) is jinja2.exceptions.TemplateError
        return {"error": e.message if plain and isinstance(e.message, str) else ""}
    except Exception:
        return {"error": ""}


def model_template(path):
    field = gguf.GGUFReader(path).fields["tokenizer.chat_template"]
    return bytes(field.parts[field.data[0]]).decode("utf-8")


class Expressions:
    """Random small expressions over DATA."""
    NAMES = ["n", "m", "f", "s", "t", "u", "l", "k", "d", "b", "nil", "msgs", "missing"]
    TEXTS = ["''", "'a'", "'Hello World'", "' x '", "'é漢🦙'", "'a,b,,c'", "'1'", "'3.5'", "'%s'", "'\\n'"]
    NUMBERS = ["0", "1", "2", "-1", "3", "7", "10", "2.5", "-0.5", "1e3", "0.1"]
    FILTERS = ["trim", "upper", "lower", "title", "capitalize", "length", "first", "last", "list", "sort", "unique|list",
               "reverse|list", "string", "int", "float", "abs", "round", "tojson", "join", "join('-')", "default('D')",
               "default('D', true)", "sum", "min", "max", "items|list", "dictsort", "select|list", "reject|list",
               "map('string')|list", "batch(2)|list", "replace('a', 'Z')", "indent(2)", "wordcount", "tojson(indent=1)",
               "map('upper')|join(',')", "select('string')|list", "reject('none')|list", "round(1)", "count", "d",
               "sort(reverse=true)", "urlencode", "slice(2)|list", "center(9)", "truncate(5, true, '')", "e"]
    TESTS = ["defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "number", "integer", "float",
             "boolean", "true", "false", "odd", "even", "lower", "upper", "in [1, 'a', none]", "eq 1", "divisibleby 2",
             "lt 3", "ge 1", "ne 'a'", "callable"]
    METHODS = ["strip()", "lstrip('a ')", "rstrip()", "split()", "split(',')", "split(',', 1)", "rsplit(',', 1)",
               "splitlines()", "startswith('a')", "endswith(('d', 'c'))", "replace('l', 'L', 1)", "upper()", "title()",
               "capitalize()", "find('b')", "count('l')", "isdigit()", "zfill(4)", "center(7, '*')", "partition(',')",
               "index('b')", "items()", "keys()", "values()", "get('a')", "get('zz', 5)", "isupper()", "islower()",
               "format(1, 2)", "join(['x', 'y'])", "index(1)", "count(1)", "isalpha()", "rfind('l')", "ljust(5)"]
    BINARY = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or", "**"]

    def __init__(self, seed):
        self.random = random.Random(seed)

    def atom(self):
        r = self.random
        kind = r.randrange(8)
        if kind < 3:
            return r.choice(self.NAMES)
        if kind == 3:
            return r.choice(self.NUMBERS)
        if kind == 4:
            return r.choice(self.TEXTS)
        if kind == 5:
            return r.choice(["true", "false", "none", "[]", "{}", "(1, 2)", "range(4)", "()"])
        if kind == 6:
            return "[" + ", ".join(r.choice(self.NUMBERS + self.TEXTS + self.NAMES) for _ in range(r.randrange(4))) + "]"
        return "{" + ", ".join("'%s': %s" % (r.choice("abc"), r.choice(self.NUMBERS + self.TEXTS))
                               for _ in range(r.randrange(3))) + "}"

    def index(self):
        r = self.random
        part = lambda: r.choice(["", "", "0", "1", "2", "-1", "-2", "5"])
        return r.choice(["[0]", "[-1]", "[9]", "['a']", "[n]", ".a", ".b", "[%s:%s]" % (part(), part()),
                         "[%s:%s:%s]" % (part(), part(), r.choice(["", "1", "2", "-1", "-2"]))])

    def expression(self, depth):
        r = self.random
        if depth == 0:
            return self.atom()
        sub = lambda: self.expression(r.randrange(depth))
        kind = r.randrange(10)
        if kind < 2:
            return "%s %s %s" % (sub(), r.choice(self.BINARY), sub())
        if kind == 2:
            return "(%s) %s (%s)" % (sub(), r.choice(self.BINARY), sub())
        if kind == 3:
            return "(%s)|%s" % (sub(), r.choice(self.FILTERS))
        if kind == 4:
            return "%s|%s" % (sub(), r.choice(self.FILTERS))
        if kind == 5:
            return "(%s) is %s%s" % (sub(), r.choice(["", "not "]), r.choice(self.TESTS))
        if kind == 6:
            return "(%s)%s" % (sub(), self.index())
        if kind == 7:
            return "(%s).%s" % (sub(), r.choice(self.METHODS))
        if kind == 8:
            return "%s if %s else %s" % (sub(), sub(), sub())
        return r.choice(["not ", "-", "+"]) + sub()


SET = re.compile(r"(items|keys)\(\).* - | - .*(items|keys)\(\)")


def random_cases(count, seed):
    """Distinct ones; of the errors only a sample, of the results those that show something. Left out: what Jinja's
    constant folding changes (it slices literals that cannot be sliced), and sets, whose order is by chance."""
    made = Expressions(seed)
    kept, seen, outcomes = [], set(), {}
    for k in range(count):
        text = made.expression(1 + k % 3)
        if text in seen or len(text) > 90:
            continue
        seen.add(text)
        template = "{{ " + text + " }}"
        result = expected(template, DATA)
        unfolded = expected("{% set q = " + text + " %}{{ q }}", DATA, UNOPTIMIZED)
        if result != unfolded or SET.search(text):
            continue
        if " at 0x" in result.get("out", "") or "object " in result.get("out", "") or len(result.get("out", "")) > 300:
            continue
        key = result.get("out", "error")
        outcomes[key] = outcomes.get(key, 0) + 1
        limit = 500 if key == "error" else 8
        if outcomes[key] <= limit:
            kept.append([text, result.get("out")])
    return kept


def conversation_cases(name, template):
    """The contexts transformers would give, with the template's name in place of its text."""
    cases = []
    for label, conversation in CONVERSATIONS.items():
        context = {"tools": None, "documents": None, "add_generation_prompt": True, "bos_token": "<s>",
                   "eos_token": "</s>", **conversation}
        cases.append({"style": name, "conversation": label, **expected(template, context)})
    return cases


def main():
    styles = {"model": model_template(sys.argv[1]), **STYLES}
    goldens = {
        "data": DATA, "styles": styles, "conversations": CONVERSATIONS,
        "chats": [case for name, template in styles.items() for case in conversation_cases(name, template)],
        "expressions": [[e, expected("{{ " + e + " }}", DATA).get("out")] for e in EXPRESSIONS],
        "templates": [{"template": t, **expected(t, DATA)} for t in TEMPLATES],
        "errors": [{"template": t, **expected(t, DATA)} for t in ERRORS],
        "random": random_cases(6000, 3),
    }
    for e, out in goldens["expressions"]:
        if out is None or " at 0x" in out:
            print("not an expression with a result:", e, file=sys.stderr)
    for case in goldens["errors"]:
        if "error" not in case:
            print("not an error:", case, file=sys.stderr)
    for case in goldens["templates"]:
        if "error" in case:
            print("an error:", case, file=sys.stderr)
    lines = ["{"]
    for k, (name, value) in enumerate(goldens.items()):
        end = "," if k + 1 < len(goldens) else ""
        if isinstance(value, list):
            lines.append('"%s": [' % name)
            lines += [json.dumps(item, ensure_ascii=False) + ("," if j + 1 < len(value) else "")
                      for j, item in enumerate(value)]
            lines.append("]" + end)
        else:
            lines.append('"%s": %s%s' % (name, json.dumps(value, ensure_ascii=False), end))
    lines.append("}")
    target = pathlib.Path(__file__).parent / "template_goldens.json"
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(target.stat().st_size, "bytes", {k: len(v) for k, v in goldens.items()})


if __name__ == "__main__":
    main()
