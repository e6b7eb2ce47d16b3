"""Golden files of models: what the scripts here have in common.

A golden file is little-endian: "HFG2", u32 number of cases; for each case u32
number of ids, the ids (i32), u32 number of rows; for each row u32 position and
an array, the logits after that position; then u32 number of sections and an
array for each. An array is u32 stride, u32 count and the numbers (f32) 0,
stride, 2 x stride, ... of it.
"""

import pathlib
import struct

import numpy as np

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests/golden/model"


def pseudo_random_ids(count: int, vocabulary: int, seed: int) -> list[int]:
    ids, state = [], seed
    for _ in range(count):
        state = (6364136223846793005 * state + 1442695040888963407) % 2**64
        ids.append((state >> 33) % vocabulary)
    return ids


def _array(values: np.ndarray, stride: int) -> bytes:
    picked = np.ascontiguousarray(values, dtype=np.float32).reshape(-1)[::stride]
    return struct.pack("<II", stride, len(picked)) + picked.astype("<f4").tobytes()


def write(path: pathlib.Path, cases) -> None:
    """cases: (ids, [(position, stride, logits)], [(stride, section)])"""
    with open(path, "wb") as out:
        out.write(b"HFG2" + struct.pack("<I", len(cases)))
        for ids, rows, sections in cases:
            out.write(struct.pack(f"<I{len(ids)}iI", len(ids), *ids, len(rows)))
            for position, stride, logits in rows:
                out.write(struct.pack("<I", position) + _array(logits, stride))
            out.write(struct.pack("<I", len(sections)))
            for stride, section in sections:
                out.write(_array(section, stride))
    print(path, path.stat().st_size, "bytes")
