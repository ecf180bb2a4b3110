#!/usr/bin/env python3
"""scripts/reproduce with a stand-in for pop: what is there is not run again, tables and intervals are the rows', differences are seen."""
import json
import pathlib
import stat
import sys
import tempfile
import unittest

import plan
import records
import reproduce
import tables
from tables import documents  # of bench/

STAND_IN = """#!{python}
import json, pathlib, sys
words = sys.argv[1:]
with open({log!r}, "a") as log:
    log.write(" ".join(words) + "\\n")
value = lambda flag, default="": words[words.index(flag) + 1] if flag in words else default
if words[0] == "calibrate":
    pathlib.Path(value("-o")).write_text("statistics")
    print("{{}}")
    sys.exit()
if value("--prune") == "cats":
    sys.exit("no such thing")
common = dict(isa="amx", activations="i16", layout="rows", version="1", model_sha256="m", weights_read_share=0.9, block_weights_read_share=0.85,
              selected_share=0.8, weight_bytes_per_token=1e6)
count = int(value("--sequences", "3"))
ratios = value("--ratios")
for ratio in ratios.split(",") if ratios else [""]:
    path = pathlib.Path(value("--per-item") + ("." + ratio if ratio else ""))
    kls = [float(ratio or 0) + i / 8 for i in range(count)]
    path.write_text("".join(json.dumps(dict(doc_id=i, kl=kl)) + "\\n" for i, kl in reversed(list(enumerate(kls)))))
    mean = sum(kls) / count
    one = dict(mean=mean, ci95=[mean - 0.1, mean + 0.1])
    print(json.dumps(dict(common, kl=one, same_top=one, ln_ppl_ratio=one, ppl_dense=10.0, ppl_pruned=11.0,
                          by_position=[{{"from": 1, "to": 16, "kl": mean}}])))
"""


class Folder(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        for name in [reproduce.MODEL, plan.DEVELOPMENT, plan.CALIBRATION, *plan.TEXTS.values()]:
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text("one line\nanother\nand a third\n")
        self.pop, self.log = self.folder / "pop", self.folder / "log"
        self.write_program("")

    def write_program(self, more):
        self.pop.write_text(STAND_IN.format(python=sys.executable, log=str(self.log)) + more)
        self.pop.chmod(self.pop.stat().st_mode | stat.S_IEXEC)

    def runner(self):
        return reproduce.Runner(self.pop, self.folder / "scratch", self.folder)

    def calls(self):
        return self.log.read_text().splitlines() if self.log.exists() else []


class Reproduce(Folder):
    RUN = plan.Run("main", "code", "pop", (0.1, 0.2), windows=3)

    def test_what_is_there_is_not_run_again(self):
        first = self.runner().rows(self.RUN)
        self.assertEqual(len(self.calls()), 1)
        self.assertIn("--ratios 0.1,0.2 -t 1 --json", self.calls()[0])
        self.assertEqual(self.runner().rows(self.RUN), first)
        self.assertEqual(len(self.calls()), 1)
        (self.folder / plan.TEXTS["code"]).write_text("another text\n")
        self.runner().rows(self.RUN)
        self.assertEqual(len(self.calls()), 2)  # another text is another run
        self.write_program("# another build\n")
        self.runner().rows(self.RUN)
        self.assertEqual(len(self.calls()), 3)

    def test_more_windows_go_on_with_the_same_items(self):
        more = plan.Run("main", "code", "pop", (0.1, 0.2), windows=4)
        for run in (self.RUN, more):
            self.runner().rows(run)
        paths = [call.split("--per-item ")[1] for call in self.calls()]
        self.assertEqual(len(paths), 2)
        self.assertEqual(paths[0], paths[1])

    def test_a_calibration_is_made_once(self):
        runner = self.runner()
        for ratio in (0.1, 0.2):
            runner.rows(plan.Run("main", "code", "flap", (ratio,), calibration="in-domain", windows=2))
        self.assertEqual(sum(call.startswith("calibrate") for call in self.calls()), 1)
        self.assertEqual((self.folder / "scratch" / "files" / "second-half-test_code.txt").read_text(), "and a third\n")

    def test_a_failure_is_said_and_the_rest_runs(self):
        bad = plan.Run("main", "code", "cats", (0.1,))
        found, failed = reproduce.run_all(self.runner(), [bad, self.RUN], 2, lambda rows: None)
        self.assertEqual(len(found), 2)
        self.assertEqual(len(failed), 1)
        self.assertIn("no such thing", failed[0])

    def test_there_runs_nothing(self):
        there = reproduce.Runner(self.pop, self.folder / "scratch", self.folder, there=True)
        self.assertEqual(reproduce.run_all(there, [self.RUN], 1, lambda rows: None), ([], []))
        rows = self.runner().rows(self.RUN)
        self.assertEqual(reproduce.run_all(there, [self.RUN], 1, lambda rows: None), (rows, []))
        self.assertEqual(len(self.calls()), 1)

    def test_a_row_holds_windows_in_order(self):
        row = self.runner().rows(self.RUN)[1]
        self.assertEqual(row["by_window"], "0.2 0.325 0.45")
        self.assertEqual((row["ratio"], row["kl"], row["positions"]), ("0.2", "0.325", "1-16:0.325"))
        self.assertNotIn(str(self.folder), row["command"])


class Records(Folder):
    def test_differences(self):
        rows = self.runner().rows(Reproduce.RUN)
        records.write(self.folder / "results", rows)
        committed = records.read(self.folder / "results")
        self.assertEqual(records.differences(rows, committed), [])
        new = [dict(rows[0], method="pop+")]
        self.assertEqual((records.differences(new, committed), records.uncommitted(new, committed)), ([], new))
        self.assertEqual(records.uncommitted(rows, committed), [])
        near = dict(rows[0], by_window="0.1000005 0.225 0.35")
        far = dict(rows[0], by_window="0.10001 0.225 0.35")
        self.assertEqual(records.differences([near], committed), [])
        self.assertIn("differs by 1e-05", records.differences([far], committed)[0])
        self.assertEqual(records.differences([dict(far, isa="avx2")], committed), [])  # the interval is 0.2 wide
        self.assertEqual(len(records.differences([dict(far, isa="avx2", by_window="0.3 0.425 0.55")], committed)), 1)
        fewer = dict(rows[0], windows="1", by_window="0.1")
        self.assertEqual(records.differences([fewer], committed), [])

    def test_rows_are_replaced_by_key(self):
        rows = self.runner().rows(Reproduce.RUN)
        records.write(self.folder / "results", rows)
        records.write(self.folder / "results", [dict(rows[0], kl="7")])
        self.assertEqual([row["kl"] for row in records.read(self.folder / "results")], ["7", "0.325"])

    def test_interval_of_paired_differences(self):
        mean, low, high = records.interval([0.5] * 8)
        self.assertEqual((mean, low, high), (0.5, 0.5, 0.5))
        # Eight windows of 0 and 1: the sum of a sample is binomial(8, 1/2), whose 2.5 % and 97.5 % points are 1 and 7.
        self.assertEqual(records.interval([0, 1] * 4), (0.5, 1 / 8, 7 / 8))


class Tables(Folder):
    def lines(self):
        runs = [plan.Run("main", "code", method, tuple(plan.RATIOS), windows=3) for method in ("pop", "random")]
        runs += [plan.Run("main", "code", "flap", tuple(plan.RATIOS), calibration=kind, windows=3) for kind in ("development", "in-domain")]
        runs.append(plan.Run("equal", "code", "random", (0.2, 0.4), ("--match", "pop"), windows=3))
        runner = self.runner()
        rows = [row for run in runs for row in runner.rows(run)]
        for row in rows:
            if row["calibration"] == "in-domain":
                row["kl"] = str(float(row["kl"]) - 0.01)
            if row["set"] == "equal":
                row["by_window"] = " ".join(str(float(value) + 0.5) for value in row["by_window"].split())
        records.write(self.folder / "results", rows)
        return records.read(self.folder / "results")

    def test_main_table_has_the_better_calibration(self):
        table = tables.main_table(self.lines(), "code")
        self.assertEqual([row[0] for row in table[1:]], ["`pop`", "`flap` (in)", "`random`"])
        self.assertEqual(table[1][1:5], ["0.800", "0.850", "0.225 [0.125, 0.325]", "0.325 [0.225, 0.425]"])
        self.assertEqual(table[2][3], "0.215 [0.125, 0.325]")
        self.assertIsNone(tables.main_table(self.lines(), "man7"))

    def test_equal_table_pairs_windows(self):
        table = tables.equal_table(self.lines(), 0.2)
        self.assertEqual(table[1][-2:], ["-", "-"])
        self.assertEqual(table[2][0], "`random`")
        self.assertEqual(table[2][-2:], ["+0.500 [+0.500, +0.500]", "-"])

    def test_marked_places_are_filled_and_the_rest_stays(self):
        lines = self.lines()
        text = "before\n<!-- evidence:main_code -->\nold\n<!-- /evidence:main_code -->\n<!-- evidence:main_man7 -->\nkept\n<!-- /evidence:main_man7 -->\n"
        made = documents.with_tables(text, "evidence", tables.all_of_it(lines))
        self.assertTrue(made.startswith("before\n<!-- evidence:main_code -->\n| method |"))
        self.assertIn("\nkept\n", made)
        self.assertNotIn("old", made)
        self.assertEqual(documents.with_tables(made, "evidence", tables.all_of_it(lines)), made)
        self.assertRaises(ValueError, documents.with_tables, "<!-- evidence:main_code -->", "evidence", tables.all_of_it(lines))

    def test_the_documents_are_what_the_results_say(self):
        lines = records.read(records.FOLDER)
        for document in tables.DOCUMENTS:
            text = (tables.ROOT / document).read_text(encoding="utf-8")
            self.assertEqual(documents.with_tables(text, "evidence", tables.all_of_it(lines)), text, f"{document}: run evidence/tables.py")


class Plan(unittest.TestCase):
    def test_every_run_has_a_row_of_its_own(self):
        keys = [(run.name(), run.context, run.windows, ratio) for make in plan.SETS.values() for run in make() for ratio in run.ratios or ("",)]
        self.assertEqual(len(keys), len(set(keys)))

    def test_options_are_not_chosen_on_test_texts(self):
        for name in ("gamma", "metric", "prompt", "long"):  # not the sets that report
            self.assertEqual({run.file() for run in plan.SETS[name]()}, {plan.DEVELOPMENT})
        self.assertNotIn(plan.CALIBRATION, {run.file() for make in plan.SETS.values() for run in make()})

    def test_scored_windows_do_not_reach_the_text_for_calibration(self):
        for name, make in plan.SETS.items():
            for run in make():
                path = tables.ROOT / run.file()
                if run.text in plan.TEXTS and path.exists():
                    self.assertLess(8 * run.windows * (run.context + run.decode), path.stat().st_size / 2, run.name())


if __name__ == "__main__":
    unittest.main()
