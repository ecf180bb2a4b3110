#!/usr/bin/env python3
"""The arithmetic of the benchmark scripts: ratios, tables, the fit of the bandwidth model; the source of the peer. Nothing is timed."""
import io
import pathlib
import tarfile
import tempfile
import unittest

import compare_peers
import documents
import rows
import tables


def peer(engine, number, rate, **more):
    return dict({"model": "m", "type": "q4_0", "layers": "8", "threads": "2", "test": "tg32@128", "batch": "1", "engine": engine,
                 "round": str(number), "tokens_per_s": str(rate), "share_of_roof": ""}, **more)


class Ratios(unittest.TestCase):
    def test_rounds_are_compared_with_themselves(self):
        self.assertEqual(rows.ratios({"1": 10.0, "2": 30.0}, {"1": 5.0, "2": 10.0, "3": 1.0}), [2.0, 3.0])
        self.assertEqual(rows.ratios({"1": 10.0}, {"1": 0.0}), [])

    def test_spread(self):
        self.assertEqual(rows.spread([3.0, 1.0, 2.0]), (2.0, 1.0, 3.0))

    def test_a_slow_moment_that_hits_both_leaves_the_ratio(self):
        lines = [peer("pop", 1, 20), peer("llama.cpp", 1, 10), peer("pop", 2, 10), peer("llama.cpp", 2, 5),
                 peer("pop", 3, 30, share_of_roof="0.9"), peer("llama.cpp", 3, 10)]
        table = rows.peers_table(lines)
        self.assertEqual(table[0], ["model", "weights", "threads", "test", "batch", "pop", "llama.cpp", "pop / llama.cpp", "of roof"])
        self.assertEqual(table[1], ["m, 8 layers", "q4_0", "2", "tg32@128", "1", "20.0", "10.0", "2.00 (2.00-3.00)", "90%"])

    def test_a_missing_engine_is_a_dash(self):
        lines = [peer("pop", 1, 20), peer("llama.cpp", 1, 10), peer("pop", 1, 7, test="pp128"), peer("ik_llama.cpp", 1, 8)]
        table = rows.peers_table(lines)
        self.assertEqual(table[2][5:], ["7.0", "-", "-", "-", "-", ""])
        self.assertEqual(table[1][8:], ["2.00 (2.00-2.00)", "2.50 (2.50-2.50)", ""])


class Files(unittest.TestCase):
    def test_csv_round_trip(self):
        with tempfile.TemporaryDirectory() as folder:
            path = folder + "/new/rows.csv"
            rows.append_csv(path, ["a", "b"], [{"a": 1, "b": "x, y"}])
            rows.append_csv(path, ["a", "b"], [{"a": 2}])
            self.assertEqual(rows.read_csv(path), [{"a": "1", "b": "x, y"}, {"a": "2", "b": ""}])
        self.assertEqual(rows.read_csv("/nowhere.csv"), [])

    def test_markdown(self):
        self.assertEqual(list(rows.markdown([["a", "b", "c"], ["1", "2", "3"]])), ["| a | b | c |", "|---|---|---:|", "| 1 | 2 | 3 |"])


class Peers(unittest.TestCase):
    SOURCE = "static bool done;\n    _tile_loadconfig(&tc);\n    done = true;\n"
    EDITED = 'static bool done;\n    asm volatile("" ::: "memory"); _tile_loadconfig(&tc);\n    done = true;\n'

    def archive(self, folder, text):
        path, data = folder + "/llama_cpp_python.tar.gz", text.encode()
        with tarfile.open(path, "w:gz") as tar:
            entry = tarfile.TarInfo("llama_cpp_python-0.3/" + compare_peers.TILE_SOURCE)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
        return path

    def test_the_source_of_llama_cpp_gets_its_barrier(self):
        with tempfile.TemporaryDirectory() as folder:
            source = compare_peers.unpack_source(self.archive(folder, self.SOURCE), folder + "/source")
            self.assertEqual((source / compare_peers.TILE_SOURCE).read_text(encoding="utf-8"), self.EDITED)

    def test_a_source_that_looks_otherwise_is_refused(self):
        for text in ("", self.SOURCE * 2):
            with tempfile.TemporaryDirectory() as folder, self.assertRaisesRegex(ValueError, "mmq.cpp: expected .* once"):
                compare_peers.unpack_source(self.archive(folder, text), folder + "/source")


class Tables(unittest.TestCase):
    def test_only_what_stands_between_markers_is_replaced(self):
        text = "before\n<!-- bench:pop -->\nold\n<!-- /bench:pop -->\nafter <!-- bench:paper -->kept<!-- /bench:paper -->\n"
        made = documents.with_tables(text, "bench", {"pop": [["a"], ["1"]], "paper": None, "batch": [["x"]]})
        self.assertEqual(made, "before\n<!-- bench:pop -->\n| a |\n|---|\n| 1 |\n<!-- /bench:pop -->\nafter "
                               "<!-- bench:paper -->kept<!-- /bench:paper -->\n")
        self.assertEqual(documents.with_tables(made, "bench", {"pop": [["a"], ["1"]]}), made)
        with self.assertRaises(ValueError):
            documents.with_tables("<!-- bench:pop -->", "bench", {"pop": [["a"]]})

    def test_the_bandwidth_model_finds_what_made_the_numbers(self):
        # 20 GB/s and 5 ms a token with 1 thread, 30 GB/s and 4 ms with 2
        lines = []
        for threads, rate, fixed in ((1, 20e9, 5e-3), (2, 30e9, 4e-3)):
            for i, size in enumerate((1e9, 0.8e9, 0.6e9)):
                lines.append({"threads": str(threads), "method": "pop" if i else "dense", "weight_bytes_per_token": str(size),
                              "kv_bytes_per_token": "0", "decode_tokens_per_s": repr(1 / (size / rate + fixed))})
        found = tables.bandwidth_model(lines)
        for threads, rate, fixed in ((1, 20e9, 5e-3), (2, 30e9, 4e-3)):
            self.assertAlmostEqual(found[threads][0] / rate, 1, 6)
            self.assertAlmostEqual(found[threads][1], fixed, 9)

    def test_time_added_by_a_context_stands_beside_its_bytes(self):
        with tempfile.TemporaryDirectory() as folder:
            fields = ["model", "method", "ratio", "context", "decode_tokens_per_s", "weight_bytes_per_token", "kv_bytes_per_token",
                      "roof_gbps", "read_gbps", "share_of_roof"]
            line = {"model": "synthetic x q4_0, 4 layers, seed 1", "method": "dense", "ratio": "0", "roof_gbps": "10", "read_gbps": "9",
                    "share_of_roof": "0.9", "weight_bytes_per_token": "1e9"}
            rows.append_csv(folder + "/context-x.csv", fields, [
                dict(line, context="128", decode_tokens_per_s="10", kv_bytes_per_token="0"),
                dict(line, context="8192", decode_tokens_per_s="8", kv_bytes_per_token="2e8")])
            table = tables.context(pathlib.Path(folder))
        self.assertEqual(table[1][:2] + table[1][7:], ["x q4_0, 4 layers", "128", "0.00 ms", "-"])
        self.assertEqual(table[2][7:], ["25.00 ms", "1.25"])  # 1/8 - 1/10 s for 2e8 bytes at 1e10 a second

    def test_a_mixture_says_what_its_ratio_came_to(self):
        with tempfile.TemporaryDirectory() as folder:
            fields = ["model", "method", "ratio", "layout", "threads", "decode_tokens_per_s", "weight_bytes_per_token", "kv_bytes_per_token",
                      "realised_ratio_active", "realised_ratio_blocks", "mark"]
            line = {"model": "synthetic x q4_0, 4 layers, seed 1", "layout": "rows", "threads": "2", "weight_bytes_per_token": "1e9",
                    "kv_bytes_per_token": "0", "decode_tokens_per_s": "10", "realised_ratio_active": "0", "realised_ratio_blocks": "0"}
            rows.append_csv(folder + "/moe-x.csv", fields, [
                dict(line, method="dense", ratio="0"),
                dict(line, method="pop", ratio="0.2", realised_ratio_active="0.1375", realised_ratio_blocks="0.2")])
            table = tables.moe(pathlib.Path(folder))
        self.assertEqual([row[2:5] for row in table], [["layout", "left out of a token's blocks", "of all"], ["rows", "-", "-"],
                                                       ["rows", "0.138", "0.200"]])

    def test_documents_say_what_the_results_say(self):
        made = tables.all_of_it()
        for document in tables.DOCUMENTS:
            text = (tables.ROOT / document).read_text(encoding="utf-8")
            self.assertEqual(documents.with_tables(text, "bench", made), text, f"{document}: run bench/tables.py")


if __name__ == "__main__":
    unittest.main()
