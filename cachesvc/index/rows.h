// The index's rows as bytes: version, fields, CRC32C over key and value. A row
// that does not decode is treated as absent, and counted.
#ifndef HOLDFAST_CACHESVC_INDEX_ROWS_H_
#define HOLDFAST_CACHESVC_INDEX_ROWS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cachesvc/format/meta.h"
#include "cachesvc/index/index.h"

namespace holdfast::cachesvc {

struct ChunkRow {
  FileKey file_key{};
  Sha256Digest fingerprint{};
  PrefixKey prefix_key{};
  std::uint64_t first_position = 0;
  std::uint64_t end_position = 0;
  Provenance provenance = Provenance::kGrid;
  std::uint64_t file_bytes = 0;
  std::uint64_t meta_bytes = 0;
};

struct StateRow {
  std::uint64_t position = 0;
  StateKind kind = StateKind::kLine;
  Provenance provenance = Provenance::kGrid;
  PrefixKey block_key{};
  // Key ids from the last whole block to the position; fewer than
  // kBlockTokens.
  std::vector<KeyId> tail;
};

// An anchor or a session file.
struct ManifestRow {
  FileKind kind = FileKind::kAnchor;
  FileKey file_key{};
  Sha256Digest fingerprint{};
  PrefixKey prefix_key{};
  std::uint64_t end_position = 0;
  std::uint64_t taint = kNoTaint;
  std::uint64_t file_bytes = 0;
  std::uint64_t meta_bytes = 0;
  std::uint64_t state_bytes = 0;  // of one state in the payload
  std::uint32_t grid_tokens = 0;
  std::uint64_t created_s = 0;  // service clock
  std::vector<StateRow> states;
  std::vector<FileKey> chunks;  // ascending; all but the last a grid long
  Sha256Digest session_id{};
  std::uint64_t sequence = 0;
  std::string session_key;
};

// What a file says of itself, as rows.
ChunkRow ChunkRowOf(const FileMeta& meta);
ManifestRow ManifestRowOf(const FileMeta& meta, std::uint64_t created_s);

struct HitRow {
  std::uint64_t hits = 0;
  std::uint64_t last_used_s = 0;

  bool operator==(const HitRow&) const = default;
};

// A grid line, as prompts passed it.
struct LineRow {
  std::uint64_t count = 0;  // times it was forwarded cold
  // The start of the next line's key in the first prompt that went on, and
  // whether another went on differently.
  std::uint64_t child = 0;
  bool branched = false;
  std::uint64_t last_seen_s = 0;
};

// Rows live under: version byte, first half of the fingerprint, file key.
std::string RowKey(const Sha256Digest& fingerprint, const FileKey& file_key);
std::string HitKey(const FileKey& file_key);
std::string LineKey(const PrefixKey& line);
std::string TombstoneKey(FileKind kind, const FileKey& file_key);
struct Tombstone {
  FileKind kind;
  FileKey file_key;
};
std::optional<Tombstone> ParseTombstoneKey(std::string_view key);

Table TableOf(FileKind kind);

std::string EncodeRow(const std::string& key, const ChunkRow& row);
std::string EncodeRow(const std::string& key, const ManifestRow& row);
std::string EncodeRow(const std::string& key, const HitRow& row);
std::string EncodeRow(const std::string& key, const LineRow& row);
std::optional<ChunkRow> DecodeChunkRow(std::string_view key,
                                       std::string_view value);
std::optional<ManifestRow> DecodeManifestRow(std::string_view key,
                                             std::string_view value);
std::optional<HitRow> DecodeHitRow(std::string_view key,
                                   std::string_view value);
std::optional<LineRow> DecodeLineRow(std::string_view key,
                                     std::string_view value);

// The row after `operand` was merged into `existing` (none: nullptr); of kHits
// and kLines. Associative. A side that does not decode is left out.
std::string MergeRows(Table table, std::string_view key,
                      const std::string_view* existing,
                      std::string_view operand);

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_INDEX_ROWS_H_
