#!/usr/bin/env python3
"""Makes package.gguf with the `gguf` package: every metadata type, nested arrays, an alignment of its own, tensors of
1 to 4 dimensions. The C++ tests read it, and GgufWriter must write the same bytes.

    pip install gguf==0.19.0 && python3 formats/testdata/make_gguf_golden.py
"""
import pathlib

import gguf
import numpy as np

T = gguf.GGUFValueType


def write(path):
    w = gguf.GGUFWriter(path, "llama")  # adds general.architecture
    w.add_uint8("t.u8", 200)
    w.add_int8("t.i8", -100)
    w.add_uint16("t.u16", 60000)
    w.add_int16("t.i16", -30000)
    w.add_uint32("t.u32", 4000000000)
    w.add_int32("t.i32", -2000000000)
    w.add_float32("t.f32", 0.1)
    w.add_bool("t.bool", True)
    w.add_string("t.string", "Grüße, 漢字\n")
    w.add_uint64("t.u64", 2**64 - 1)
    w.add_int64("t.i64", -2**63)
    w.add_float64("t.f64", 0.1)
    w.add_array("t.strings", ["a", "", "ccc"])
    w.add_array("t.ints", [1, -2, 3])
    w.add_array("t.floats", [0.5, -1.25])
    w.add_array("t.bools", [True, False, True])
    w.add_array("t.nested", [[1, 2], [3]])
    w.add_custom_alignment(64)          # adds general.alignment
    w.add_tensor("vector", np.arange(5, dtype=np.float32))
    w.add_tensor("matrix", (np.arange(6, dtype=np.float16) / 4).reshape(2, 3))
    w.add_tensor("cube", np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4))
    blocks = gguf.quants.quantize(np.arange(-32, 32, dtype=np.float32).reshape(2, 32), gguf.GGMLQuantizationType.Q8_0)
    w.add_tensor("quantised", blocks, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def check(path):
    reader = gguf.GGUFReader(path)
    shapes = {t.name: t.shape.tolist() for t in reader.tensors}
    assert shapes == {"vector": [5], "matrix": [3, 2], "cube": [4, 3, 2, 1], "quantised": [32, 2]}, shapes
    assert reader.fields["t.u64"].contents() == 2**64 - 1 and reader.alignment == 64


if __name__ == "__main__":
    golden = pathlib.Path(__file__).with_name("package.gguf")
    write(golden)
    check(golden)
