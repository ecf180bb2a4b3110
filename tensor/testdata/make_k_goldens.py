#!/usr/bin/env python3
"""Makes k_goldens.bin: float32 values with the Q4_K and Q6_K blocks that llama.cpp's quantiser makes of them, for the error
that it leaves. Records as in dequant_goldens.bin, kind 1.

    python3 tensor/testdata/make_k_goldens.py          with llama-cpp-python 0.3.36, for its library
"""
import ctypes
import pathlib
import struct

import llama_cpp
import numpy as np

TYPES = {"Q4_K": (12, 144), "Q6_K": (14, 210)}
COLUMNS, ROWS = 512, 2


def values():
    rng = np.random.default_rng(20261130)
    yield rng.normal(0, 0.02, (ROWS, COLUMNS))                                   # like most weights
    yield rng.standard_t(3, (ROWS, COLUMNS)) * 0.02                              # with outliers
    yield rng.normal(0.01, 0.02, (ROWS, COLUMNS)) * rng.lognormal(0, 1, (ROWS, COLUMNS // 32)).repeat(32, axis=1)
    yield np.abs(rng.normal(0, 1, (ROWS, COLUMNS)))                              # no value below zero


def main():
    ggml = ctypes.CDLL(str(pathlib.Path(llama_cpp.__file__).parent / "lib" / "libggml-base.so"))
    ggml.ggml_quantize_chunk.restype = ctypes.c_size_t
    ggml.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.c_void_p]
    with open(pathlib.Path(__file__).with_name("k_goldens.bin"), "wb") as out:
        for name, (number, block_bytes) in TYPES.items():
            for x in values():
                x = np.ascontiguousarray(x, np.float32)
                blocks = np.zeros(x.size // 256 * block_bytes, np.uint8)
                size = ggml.ggml_quantize_chunk(number, x.ctypes.data, blocks.ctypes.data, 0, ROWS, COLUMNS, None)
                assert size == blocks.size
                out.write(name.encode().ljust(8, b"\0") + struct.pack("<III", 1, x.size, blocks.size) + blocks.tobytes() + x.tobytes())


if __name__ == "__main__":
    main()
