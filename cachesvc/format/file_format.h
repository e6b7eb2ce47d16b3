// The bytes of cache files; FORMAT.md (cachesvc/) says what they mean. Frozen:
// a change of any struct here raises kFormatVersion.
#ifndef HOLDFAST_CACHESVC_FORMAT_FILE_FORMAT_H_
#define HOLDFAST_CACHESVC_FORMAT_FILE_FORMAT_H_

#include <bit>
#include <cstdint>

namespace holdfast::cachesvc::format {

static_assert(std::endian::native == std::endian::little,
              "files are little-endian");

// "HFCACHE1"
inline constexpr std::uint64_t kMagic = 0x3145484341434648;
inline constexpr std::uint16_t kFormatVersion = 1;
// Header, payload and every part of it start on this boundary. A constant,
// never the machine's page size.
inline constexpr std::uint64_t kPadding = 4096;
// One CRC32C for this many bytes of payload.
inline constexpr std::uint64_t kCrcPiece = std::uint64_t{1} << 20;
// Limits of what a reader believes before it has checked a sum.
inline constexpr std::uint64_t kMaxMetaBytes = std::uint64_t{256} << 20;
inline constexpr std::uint32_t kMaxTables = 64;

enum class FileKind : std::uint32_t { kChunk = 1, kAnchor = 2, kSession = 3 };

struct Header {
  std::uint64_t magic;
  std::uint16_t version;
  std::uint16_t header_bytes;
  std::uint32_t kind;           // FileKind
  std::uint64_t meta_bytes;     // header and tables; multiple of kPadding
  std::uint64_t payload_bytes;  // after them; multiple of kPadding
  std::uint8_t file_key[32];
  std::uint8_t fingerprint[32];
  std::uint8_t prefix_key[32];
  std::uint8_t parent_key[32];
  std::uint64_t first_position;
  std::uint64_t end_position;
  std::uint64_t taint;
  std::uint32_t provenance;
  std::uint32_t grid_tokens;
  std::uint32_t block_tokens;
  std::uint32_t crc_piece_bytes;
  std::uint64_t block_bytes;
  std::uint32_t tables;
  std::uint8_t reserved[36];
  std::uint32_t meta_crc32c;
  std::uint32_t header_crc32c;
};
static_assert(sizeof(Header) == 256);

enum class TableId : std::uint32_t {
  kViews = 1,
  kSections = 2,
  kStates = 3,
  kNames = 4,
  kKeyIds = 5,
  kChunks = 6,
  kPieceCrcs = 7,
  kSession = 8,
  kSessionKey = 9,
  kRecord = 10,
};

// Follow the header, `tables` of them.
struct Table {
  std::uint32_t id;  // TableId
  std::uint32_t reserved;
  std::uint64_t offset;  // in the file; multiple of 8
  std::uint64_t bytes;
};
static_assert(sizeof(Table) == 24);

struct ViewEntry {
  std::uint64_t bytes_per_token;
  std::uint64_t sum_a;
  std::uint64_t sum_b;
  std::uint32_t parts;
  std::uint32_t name_offset;
  std::uint32_t name_bytes;
  std::uint32_t reserved;
};
static_assert(sizeof(ViewEntry) == 40);

struct SectionEntry {
  std::uint64_t bytes;
  std::uint64_t offset;  // in a state; multiple of kPadding
  std::uint32_t name_offset;
  std::uint32_t name_bytes;
};
static_assert(sizeof(SectionEntry) == 24);

struct StateEntry {
  std::uint64_t position;
  std::uint64_t payload_offset;
  std::uint32_t kind;
  std::uint32_t provenance;
  std::uint8_t block_key[32];
};
static_assert(sizeof(StateEntry) == 56);

struct ChunkEntry {
  std::uint8_t file_key[32];
  std::uint8_t prefix_key[32];
  std::uint64_t end_position;
  std::uint64_t file_bytes;
};
static_assert(sizeof(ChunkEntry) == 80);

struct SessionEntry {
  std::uint8_t session_id[32];
  std::uint64_t sequence;
};
static_assert(sizeof(SessionEntry) == 40);

// The ledger: what the cache files do not say of themselves (FORMAT.md).
// "HFLEDGR1"
inline constexpr std::uint64_t kLedgerMagic = 0x31524744454C4648;
inline constexpr std::uint16_t kLedgerVersion = 1;

// Followed by `pins` file keys of 32 bytes, `uses` LedgerUse and `residents`
// LedgerResident, then zeros up to a multiple of kPadding.
struct LedgerHeader {
  std::uint64_t magic;
  std::uint16_t version;
  std::uint16_t header_bytes;
  std::uint32_t limits_set;  // 0: the four limits are zero and mean nothing
  std::uint64_t service_seconds;
  std::uint64_t disk_budget_bytes;
  std::uint64_t spill_budget_bytes;
  std::uint64_t ttl_s;
  std::uint64_t free_floor_bytes;
  std::uint32_t pins;
  std::uint32_t uses;
  std::uint32_t residents;
  std::uint8_t reserved[52];
  std::uint32_t body_crc32c;
  std::uint32_t header_crc32c;
};
static_assert(sizeof(LedgerHeader) == 128);

// Of an anchor or session, since it was written.
struct LedgerUse {
  std::uint8_t file_key[32];
  std::uint64_t hits;
  std::uint64_t last_used_s;  // service clock
};
static_assert(sizeof(LedgerUse) == 48);

// A session that was resident when its engine's planned stop ended; those of
// one fingerprint in the order they were stored.
struct LedgerResident {
  std::uint8_t fingerprint[32];
  std::uint8_t file_key[32];
};
static_assert(sizeof(LedgerResident) == 64);

}  // namespace holdfast::cachesvc::format

#endif  // HOLDFAST_CACHESVC_FORMAT_FILE_FORMAT_H_
