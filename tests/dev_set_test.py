#!/usr/bin/env python3
"""The parts of scripts/dev-set that need no package: cutting, halves, mixing, and reading R's database."""
import importlib.machinery
import importlib.util
import os
import struct
import sys
import unittest
import zlib

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("dev_set", os.path.join(ROOT, "scripts", "dev-set"))
dev_set = importlib.util.module_from_spec(importlib.util.spec_from_loader("dev_set", loader))
loader.exec_module(dev_set)


def serialized(kind, strings):
    """R's XDR serialisation, version 3, of a vector; written from the manual "R Internals", section 1.8."""
    out = b"X\n" + struct.pack(">iii", 3, 0x040201, 0x030500) + struct.pack(">i", 5) + b"UTF-8"
    out += struct.pack(">ii", kind, len(strings))
    for text in strings:
        data = text.encode() if text is not None else b""
        out += struct.pack(">ii", 0x00040009, len(data) if text is not None else -1) + data
    return struct.pack(">I", len(out)) + zlib.compress(out)


class DevSet(unittest.TestCase):
    def test_halves_do_not_move(self):
        self.assertEqual(dev_set.half("open.2"), "calibrate" if HASHES["open.2"] % 2 == 0 else "choose")
        self.assertEqual(dev_set.half("printf.3"), "calibrate" if HASHES["printf.3"] % 2 == 0 else "choose")
        names = [f"page{n}.3" for n in range(1000)]
        self.assertTrue(400 < sum(dev_set.half(name) == "choose" for name in names) < 600)

    def test_pieces_are_the_text(self):
        text = "".join(f"Paragraph {n}.\nIts second line.\n\n" for n in range(2000))
        cut = dev_set.pieces("book", text)
        self.assertGreater(len(cut), 5)
        self.assertEqual("\n".join(piece for _, piece in cut), text.rstrip("\n") + "\n")
        self.assertEqual([name for name, _ in cut[:2]], ["book/0", "book/1"])
        self.assertTrue(all(len(piece) < dev_set.PIECE + 100 for _, piece in cut))
        self.assertEqual(dev_set.pieces("empty", ""), [])

    def test_mixed_takes_one_of_each_in_turn(self):
        first, second = [("a", "A one\n"), ("b", "A two\n")], [("c", "B one\n"), ("d", "B two\n"), ("e", "B three\n")]
        words = [line.split()[0] for line in dev_set.mixed([first, second]).split("\n") if line]
        self.assertEqual(words, ["A", "B", "A", "B"])

    def test_squeeze(self):
        self.assertEqual(dev_set.squeeze("\n\nA   b\tc  \n\n\n\n       d    e\n\n"), "A b c\n\n       d e\n")

    def test_r_database(self):
        data = serialized(16, ["One", "", "Löwe"]) + serialized(13, []) + serialized(16, ["Two", None])
        self.assertEqual(list(dev_set.r_texts(data)), [["One", "", "Löwe"], ["Two", ""]])


# printf NAME | sha256sum
HASHES = {"open.2": 0x00, "printf.3": 0x0b}

if __name__ == "__main__":
    unittest.main()
