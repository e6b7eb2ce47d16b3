// What a cache file says of itself, decoded; see cachesvc/FORMAT.md.
#ifndef HOLDFAST_CACHESVC_FORMAT_META_H_
#define HOLDFAST_CACHESVC_FORMAT_META_H_

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cachesvc/format/file_format.h"
#include "shared/aligned_buffer.h"
#include "shared/cache_layout.h"
#include "shared/content_sum/content_sum.h"
#include "shared/prefix_key.h"
#include "shared/sha256.h"

namespace holdfast::cachesvc {

using format::FileKind;
using FileKey = Sha256Digest;

enum class Provenance : std::uint32_t { kGrid = 1, kSession = 2 };
enum class StateKind : std::uint32_t {
  kLine = 1,
  kEnd = 2,
  kMessage = 3,
  kTurn = 4,
};

inline constexpr std::uint64_t kNoTaint =
    std::numeric_limits<std::uint64_t>::max();

// All sections at one position.
struct StateMeta {
  std::uint64_t position = 0;
  std::uint64_t payload_offset = 0;
  StateKind kind = StateKind::kLine;
  Provenance provenance = Provenance::kGrid;
  PrefixKey block_key{};  // of the last whole block at or below position
};

struct ChunkRef {
  FileKey file_key{};
  PrefixKey prefix_key{};
  std::uint64_t end_position = 0;
  std::uint64_t file_bytes = 0;
};

struct FileMeta {
  FileKind kind = FileKind::kChunk;
  FileKey file_key{};
  Sha256Digest fingerprint{};
  PrefixKey prefix_key{};
  PrefixKey parent_key{};
  std::uint64_t first_position = 0;
  std::uint64_t end_position = 0;
  std::uint64_t taint = kNoTaint;
  Provenance provenance = Provenance::kGrid;
  CacheLayout layout;
  std::vector<ContentSum> view_sums;  // as many as views
  std::vector<KeyId> key_ids;
  std::vector<StateMeta> states;
  std::vector<ChunkRef> chunks;
  Sha256Digest session_id{};
  std::uint64_t sequence = 0;
  std::string session_key;
  std::string record;
  std::uint64_t payload_bytes = 0;
  std::vector<std::uint32_t> piece_crcs;

  // Set by the encoder and the decoder.
  std::uint64_t meta_bytes = 0;
  std::uint64_t file_bytes() const { return meta_bytes + payload_bytes; }
};

// Bytes of one state in a payload, and where its sections begin.
std::uint64_t StateBytes(const CacheLayout& layout);
std::vector<std::uint64_t> SectionOffsets(const CacheLayout& layout);

// The meta region, whole pages. Sets meta.meta_bytes.
AlignedBuffer EncodeMeta(FileMeta& meta);

// meta_bytes of a file, from its first page. DataLoss when that page is not the
// start of a cache file of this version.
absl::StatusOr<std::uint64_t> MetaBytes(std::span<const std::byte> first_page);

// `bytes` is the whole meta region of a file that is `file_bytes` long.
// DataLoss, with the reason, for whatever is not as FORMAT.md says.
absl::StatusOr<FileMeta> DecodeMeta(std::span<const std::byte> bytes,
                                    std::uint64_t file_bytes);

// CRC32C of a buffer; `crc` goes on from an earlier part.
std::uint32_t Crc32c(std::span<const std::byte> bytes, std::uint32_t crc = 0);

// One CRC for each piece of the payload that `parts` make up together.
std::vector<std::uint32_t> PieceCrcs(
    std::span<const std::span<const std::byte>> parts);

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_FORMAT_META_H_
