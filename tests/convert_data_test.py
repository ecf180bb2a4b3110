#!/usr/bin/env python3
"""scripts/convert-data against lm-evaluation-harness's own requests for hand-made items, and the shape of what data/ holds.

The requests are in tests/goldens/tasks.json (python/make_task_goldens.py).
"""
import glob
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FIXTURES = os.path.join(ROOT, "python", "task_fixtures")
with open(os.path.join(ROOT, "tests", "goldens", "tasks.json"), encoding="utf-8") as golden_file:
    GOLDEN = json.load(golden_file)


def run(*arguments):
    return subprocess.run([sys.executable, os.path.join(ROOT, "scripts", "convert-data"), *arguments], capture_output=True,
                          text=True, encoding="utf-8", check=False)


def converted(task):
    arguments = [task, os.path.join(FIXTURES, f"{task}.jsonl")]
    if task in ("gsm8k", "mbpp"):
        arguments += ["--shots", os.path.join(FIXTURES, f"{task}_shots.jsonl")]
    if task == "coqa":
        arguments.append("--last-turn")
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return lines[0], lines[1:]


def requests(header, item):
    """The requests that docs/data.md says follow from an item."""
    preamble = header.get("preamble", "")
    if header["kind"] == "choice":
        if "contexts" in item:
            return [[preamble + context, header["delimiter"] + item["ending"]] for context in item["contexts"]]
        return [[preamble + item["context"], header["delimiter"] + choice] for choice in item["choices"]]
    if header["metric"] == "greedy":
        return [[preamble + item["prompt"], item["target"]]]
    return [[preamble + item["prompt"], header["until"]]]


class Prompts(unittest.TestCase):
    def test_requests_are_those_of_the_harness(self):
        self.assertEqual(len(GOLDEN["requests"]), 13)
        for task, golden in GOLDEN["requests"].items():
            header, items = converted(task)
            made = [request for item in items for request in requests(header, item)]
            wanted = [[context, rest["until"] if isinstance(rest, dict) else rest] for context, rest in golden]
            self.assertEqual(made, wanted, task)

    def test_limits_are_those_of_the_harness(self):
        for task, golden in GOLDEN["requests"].items():
            if isinstance(golden[0][1], dict):
                # Where the task file is silent the harness generates up to 256 tokens.
                self.assertEqual(converted(task)[0]["max_tokens"], golden[0][1].get("max_gen_toks", 256), task)

    def test_right_choices(self):
        gold = {task: [item["gold"] for item in converted(task)[1]] for task in
                ("arc_easy", "boolq", "hellaswag", "piqa", "winogrande", "blimp")}
        self.assertEqual(gold, {"arc_easy": [1, 1], "boolq": [0, 1], "hellaswag": [0, 0], "piqa": [0], "winogrande": [0],
                                "blimp": [0]})

    def test_every_turn_of_a_conversation(self):
        done = run("coqa", os.path.join(FIXTURES, "coqa.jsonl"))
        items = [json.loads(line) for line in done.stdout.splitlines()[1:]]
        self.assertEqual([item["id"] for item in items],
                         [f"made-goats/{n}" for n in (1, 2, 3, 4)] + ["made-ferry/1", "made-ferry/2"])
        self.assertTrue(items[1]["prompt"].endswith("Q: How many goats does Mara keep?\n\nA: three\n\n"
                                                    "Q: Who is the oldest?\n\nA:"))
        self.assertEqual(items[1]["targets"], ["Bell", "the goat Bell"])  # "bell" is "Bell"
        self.assertEqual({item["cluster"] for item in items}, {"made-goats", "made-ferry"})


class Errors(unittest.TestCase):
    def expect(self, content, message, *more, task="arc_easy"):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "rows.jsonl")
            with open(path, "w", encoding="utf-8") as file:
                file.write(content)
            done = run(task, path, *more)
        self.assertEqual(done.returncode, 1)
        self.assertIn(message, done.stderr)
        self.assertNotIn("Traceback", done.stderr)

    def test_what_is_wrong_is_said_with_its_place(self):
        self.expect("{}\n", 'item 1: "question": expected str, found nothing')
        self.expect("[1]\n", ":1: expected an object, found list")
        self.expect("{\n", ":1: expected JSON")
        row = {"id": "x", "question": "?", "choices": {"text": ["a"], "label": ["A"]}, "answerKey": "E"}
        self.expect(json.dumps(row), "\"answerKey\": expected one of ['A'], found 'E'")
        self.expect('{"question": "q", "answer": "a"}', "expected --shots FILE", task="gsm8k")
        self.expect('{"story": "s", "questions": []}', "item 1: no 'answers'", task="coqa")

    def test_a_missing_file(self):
        self.assertIn("No such file", run("piqa", "/nonexistent").stderr)


class Shipped(unittest.TestCase):
    def test_the_files_are_those_that_the_readme_lists(self):
        with open(os.path.join(ROOT, "data", "README.md"), encoding="utf-8") as file:
            listed = dict(re.findall(r"^\| `([^`]+)` \|.*\| `([0-9a-f]{64})` \|$", file.read(), re.M))
        found = {}
        for name in os.listdir(os.path.join(ROOT, "data")):
            if name in listed or name.endswith(".jsonl"):
                with open(os.path.join(ROOT, "data", name), "rb") as file:
                    found[name] = hashlib.sha256(file.read()).hexdigest()
        self.assertEqual(found, listed)

    def test_every_item_has_its_fields(self):
        counts = {}
        for path in sorted(glob.glob(os.path.join(ROOT, "data", "*.jsonl"))):
            with open(path, encoding="utf-8", newline="\n") as file:
                header, *items = [json.loads(line) for line in file.read().split("\n") if line]
            self.assertIn("task", header, path)
            self.assertEqual(len({item["id"] for item in items}), len(items), f"{path}: ids are unique")
            for item in items:
                self.check(header, item)
            counts[header["task"]] = len(items)
        self.assertEqual(counts, {"arc_challenge": 586, "arc_easy": 2376, "boolq": 3270, "gsm8k": 1319, "hellaswag": 1000,
                                  "humaneval": 164, "mbpp": 250, "nq_open": 3610, "piqa": 1838, "winogrande": 1267})

    def check(self, header, item):
        if header["kind"] == "choice":
            count = len(item.get("contexts") or item["choices"])
            self.assertTrue(count >= 2 and 0 <= item["gold"] < count, item["id"])
        else:
            self.assertTrue(item["prompt"], item["id"])
            self.assertTrue(any(item.get(name) for name in ("target", "targets", "tests")), item["id"])


if __name__ == "__main__":
    unittest.main()
