"""The cache service's files from outside, for scenarios and tests: damage, and
what they hold. The layout is cachesvc/FORMAT.md's."""

import struct
from pathlib import Path

KINDS = {"chunk": "chunks", "anchor": "anchors", "session": "sessions"}
REGIONS = ("header", "tokens", "payload", "footer", "index")

_STATES, _KEY_IDS, _CHUNKS, _PIECE_CRCS = 3, 5, 6, 7  # table ids
_STATE_BYTES, _CHUNK_ENTRY_BYTES, _FILE_KEY_BYTES = 56, 80, 32
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
    offset, size = _table(data, _KEY_IDS if region == "tokens" else _PIECE_CRCS)
    if size == 0:
        raise ValueError(f"the file has no region {region}")
    return offset


def _table(data: bytes, wanted: int) -> tuple[int, int]:
    """Its offset and bytes; (0, 0) where the file has none."""
    for i in range(struct.unpack_from("<I", data, _TABLES_AT)[0]):
        table, _, offset, size = struct.unpack_from("<IIQQ", data, _HEADER_BYTES + i * _TABLE_BYTES)
        if table == wanted and size > 0:
            return offset, size
    return 0, 0


def resume_points(folder: Path) -> list[tuple[list[int], list[int]]]:
    """Of every anchor and session file: its key ids, and the positions at which
    a prompt that begins with them can be resumed."""
    out = []
    for kind in ("anchor", "session"):
        for file in files(folder, kind):
            data = file.read_bytes()
            offset, size = _table(data, _STATES)
            positions = [struct.unpack_from("<Q", data, offset + at)[0]
                         for at in range(0, size, _STATE_BYTES)]
            out.append((_key_ids(folder, data), positions))
    return out


def _key_ids(folder: Path, data: bytes) -> list[int]:
    """A session's own, or those of an anchor's chunks."""
    offset, size = _table(data, _KEY_IDS)
    if size:
        return list(struct.unpack_from(f"<{size // 8}Q", data, offset))
    ids: list[int] = []
    offset, size = _table(data, _CHUNKS)
    for at in range(offset, offset + size, _CHUNK_ENTRY_BYTES):
        chunk = folder / KINDS["chunk"] / f"{data[at:at + _FILE_KEY_BYTES].hex()}.chunk"
        ids += _key_ids(folder, chunk.read_bytes())
    return ids
