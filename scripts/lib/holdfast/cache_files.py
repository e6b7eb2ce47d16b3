"""Damage to the cache service's files, for scenarios and tests. The layout is
cachesvc/FORMAT.md's."""

import struct
from pathlib import Path

KINDS = {"chunk": "chunks", "anchor": "anchors", "session": "sessions"}
REGIONS = ("header", "tokens", "payload", "footer", "index")

_KEY_IDS, _PIECE_CRCS = 5, 7  # table ids
_META_BYTES_AT, _TABLES_AT, _HEADER_BYTES, _TABLE_BYTES = 16, 208, 256, 24


def files(folder: Path, kind: str) -> list[Path]:
    return sorted((folder / KINDS[kind]).glob(f"*.{kind}"))


def corrupt(folder: Path, kind: str, region: str, nth: int) -> Path:
    """Flips a bit in a region of the nth file of that kind (of the index: of
    its nth table or log). Returns the file. ValueError: there is none."""
    if region == "index":
        found = sorted((folder / "index").glob("*.sst")) + sorted((folder / "index").glob("*.log"))
    else:
        found = files(folder, kind)
    if nth >= len(found):
        raise ValueError(f"{folder} has {len(found)} files of kind {kind}, region {region}")
    with open(found[nth], "r+b") as file:
        data = file.read()
        at = len(data) // 2 if region == "index" else _place(data, region)
        file.seek(at)
        file.write(bytes([data[at] ^ 1]))
    return found[nth]


def _place(data: bytes, region: str) -> int:
    if region == "header":
        return 20
    meta_bytes = struct.unpack_from("<Q", data, _META_BYTES_AT)[0]
    if region == "payload":
        return meta_bytes + (len(data) - meta_bytes) // 2
    wanted = _KEY_IDS if region == "tokens" else _PIECE_CRCS
    for i in range(struct.unpack_from("<I", data, _TABLES_AT)[0]):
        table, _, offset, size = struct.unpack_from("<IIQQ", data, _HEADER_BYTES + i * _TABLE_BYTES)
        if table == wanted and size > 0:
            return offset
    raise ValueError(f"the file has no region {region}")
