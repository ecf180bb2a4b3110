#!/usr/bin/env python3
"""Makes dequant_goldens.bin: blocks of every tensor type with the float32 values the `gguf` package gives them, and
float32 rows with the blocks the package makes of them.

    pip install gguf==0.19.0 && python3 tensor/testdata/make_dequant_goldens.py

A record is: 8 bytes type name (zero-padded), uint32 kind (0: blocks to values, 1: values to blocks), uint32 elements,
uint32 bytes of blocks, the blocks, the values (float32). All little-endian.
"""
import pathlib
import struct

import gguf
import numpy as np

# Byte offsets of the half-precision fields of a block, and how many blocks to make.
TYPES = {
    "F32": ([], 128), "F16": ([0], 512), "BF16": ([], 512),
    "Q4_0": ([0], 10), "Q4_1": ([0, 2], 10), "Q5_0": ([0], 10), "Q5_1": ([0, 2], 10), "Q8_0": ([0], 10),
    "Q2_K": ([80, 82], 3), "Q3_K": ([108], 3), "Q4_K": ([0, 2], 3), "Q5_K": ([0, 2], 3), "Q6_K": ([208], 3),
    "IQ4_NL": ([0], 10), "IQ4_XS": ([0], 3),
}
SPECIAL_HALVES = np.array([0x0000, 0x8000, 0x0001, 0x83ff, 0x7bff, 0x7c00, 0xfc00, 0x7e00], np.uint16)
QUANTISED = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"]


def record(out, name, kind, blocks, values):
    blocks, values = blocks.tobytes(), np.ascontiguousarray(values, np.float32)
    out.write(name.encode().ljust(8, b"\0") + struct.pack("<III", kind, values.size, len(blocks)) + blocks)
    out.write(values.tobytes())


def blocks_to_values(out, rng, name):
    qtype = gguf.GGMLQuantizationType[name]
    _, block_bytes = gguf.GGML_QUANT_SIZES[qtype]
    halves, count = TYPES[name]
    sane = rng.integers(0, 256, (count, block_bytes), np.uint8)
    for at in halves:  # scales of the size real weights have
        sane[:, at:at + 2] = rng.normal(0, 0.02, (count, 1)).astype(np.float16).view(np.uint8)
    raw = rng.integers(0, 256, (count, block_bytes), np.uint8)
    special = np.repeat(rng.integers(0, 256, (1, block_bytes), np.uint8), len(SPECIAL_HALVES), axis=0)
    for k, at in enumerate(halves):  # zeros, subnormals, the largest number, infinities, NaN
        special[:, at:at + 2] = np.roll(SPECIAL_HALVES, k).reshape(-1, 1).view(np.uint8)
    blocks = np.concatenate([sane, raw, special])
    with np.errstate(all="ignore"):
        record(out, name, 0, blocks, gguf.quants.dequantize(blocks.reshape(1, -1), qtype))


def values_to_blocks(out, rng, name):
    rows = [rng.normal(0, 1, 512), rng.normal(0, 1e-3, 512), rng.uniform(-300, 300, 512), np.zeros(32), np.full(32, -1.5),
            np.arange(-16, 16), np.arange(-127, 127.5, 8), np.arange(32) + 0.5, -np.arange(32) / 2 - 0.25, np.full(32, 3e4)]
    values = np.concatenate(rows).astype(np.float32)
    values = values[:values.size // 32 * 32]
    record(out, name, 1, gguf.quants.quantize(values.reshape(1, -1), gguf.GGMLQuantizationType[name]), values)


def main():
    rng = np.random.default_rng(20260801)
    with open(pathlib.Path(__file__).with_name("dequant_goldens.bin"), "wb") as out:
        for name in TYPES:
            blocks_to_values(out, rng, name)
        for name in QUANTISED:
            values_to_blocks(out, rng, name)


if __name__ == "__main__":
    main()
