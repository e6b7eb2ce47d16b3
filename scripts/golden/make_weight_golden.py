"""Writes golden numbers of the quantised weight formats, from other readers of them.

The file tests/golden/weights/blocks.bin is committed; the tests need nothing of
this. To make it again:

    python3 -m venv ~/golden-venv
    ~/golden-venv/bin/pip install torch gguf numpy
    ~/golden-venv/bin/python scripts/golden/make_weight_golden.py

GGUF's types are dequantised by the gguf package, F8_E4M3 by torch. Blocks are
random bits under finite scales, from subnormal to the largest half.

The file is little-endian: "HFW1", u32 number of types; for each type u32 length
of its name and the name, u32 rows, u32 columns, u32 number of scales (of 128 x
128 numbers, F8_E4M3 alone) and the scales (f32), u32 length of the data and the
data, and the rows x columns numbers (f32).
"""

import argparse
import pathlib
import struct

import gguf
import numpy as np
import torch

# Where a block has its halves.
HALVES = {
    "Q8_0": [0],
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
}
BLOCKS_OF_32 = 16
BLOCKS_OF_256 = 4
ROWS = 2


def random_halves(random, count):
    """Finite, of every exponent; the ends of the range are sure to be among them."""
    bits = random.integers(0, 0x7C00, count, dtype=np.uint16)
    bits |= random.integers(0, 2, count, dtype=np.uint16) << np.uint16(15)
    bits[:4] = [0x0000, 0x7BFF, 0x0001, 0xFBFF][: len(bits[:4])]
    return random.permutation(bits)


def gguf_case(random, name):
    kind = gguf.GGMLQuantizationType[name]
    block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    count = ROWS * (BLOCKS_OF_32 if block == 32 else BLOCKS_OF_256)
    data = random.integers(0, 256, (count, block_bytes), dtype=np.uint8)
    for at in HALVES[name]:
        data[:, at : at + 2] = random_halves(random, count).view(np.uint8).reshape(count, 2)
    data = data.reshape(ROWS, -1)
    return [], data, gguf.quants.dequantize(data, kind)


def f8_case(random):
    rows, cols = 130, 160  # blocks of scales that are cut short
    codes = random.integers(0, 0x7F, (rows, cols), dtype=np.uint8)
    codes |= random.integers(0, 2, (rows, cols), dtype=np.uint8) << np.uint8(7)
    scales = np.array([[0.0123, -3.5e-40], [1e30, 0.5]], dtype=np.float32)
    numbers = torch.from_numpy(codes).view(torch.float8_e4m3fn).float().numpy()
    wide = np.repeat(np.repeat(scales, 128, 0), 128, 1)[:rows, :cols]
    return scales.ravel(), codes, numbers * wide


def main():
    parser = argparse.ArgumentParser(description="Writes tests/golden/weights/blocks.bin.")
    parser.parse_args()
    random = np.random.default_rng(20)
    cases = {name: gguf_case(random, name) for name in HALVES}
    cases["F8_E4M3"] = f8_case(random)
    out = b"HFW1" + struct.pack("<I", len(cases))
    for name, (scales, data, numbers) in cases.items():
        assert np.isfinite(numbers).all() and numbers.dtype == np.float32
        out += struct.pack("<I", len(name)) + name.encode()
        out += struct.pack("<III", *numbers.shape, len(scales))
        out += np.asarray(scales, dtype="<f4").tobytes()
        out += struct.pack("<I", data.size) + data.tobytes()
        out += numbers.astype("<f4").tobytes()
    path = pathlib.Path("tests/golden/weights/blocks.bin")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(out)


if __name__ == "__main__":
    main()
