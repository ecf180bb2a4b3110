"""Reads and writes golden files: NAME.json (what was run, and where each array lies) with NAME.bin (the arrays' bytes).

The layout is described for readers in other languages in tests/goldens/README.md.
"""

import json
from pathlib import Path

import numpy as np

TYPES = {"f32": "<f4", "i32": "<i4", "u8": "u1"}


def write(path, about, arrays):
    """`about`: a JSON object; `arrays`: name -> (type, values)."""
    path, blob = Path(path), bytearray()
    table = {}
    for name, (kind, values) in arrays.items():
        values = np.ascontiguousarray(values, dtype=TYPES[kind])
        blob.extend(bytes(-len(blob) % 4))            # every array starts at a multiple of four
        table[name] = {"type": kind, "shape": list(values.shape), "offset": len(blob)}
        blob.extend(values.tobytes())
    path.with_suffix(".bin").write_bytes(blob)
    about = dict(about, bytes=len(blob), arrays=table)
    path.with_suffix(".json").write_text(json.dumps(about, indent=1, sort_keys=True, ensure_ascii=True) + "\n")


def read(path):
    """The JSON object and the arrays by name."""
    path = Path(path)
    about = json.loads(path.with_suffix(".json").read_text())
    blob = path.with_suffix(".bin").read_bytes()
    if len(blob) != about["bytes"]:
        raise ValueError(f"{path}.bin: expected {about['bytes']} bytes, found {len(blob)}")
    arrays = {}
    for name, a in about["arrays"].items():
        count = int(np.prod(a["shape"], dtype=np.int64))
        arrays[name] = np.frombuffer(blob, TYPES[a["type"]], count, a["offset"]).reshape(a["shape"])
    return about, arrays
