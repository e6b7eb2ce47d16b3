#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "cachesvc/format/meta.h"
#include "cachesvc/format/names.h"
#include "fmt/format.h"

namespace holdfast::cachesvc {
namespace {

using format::TableId;

absl::Status Bad(const std::string& what) {
  return absl::DataLossError("not a valid cache file: " + what);
}

Sha256Digest Key(const std::uint8_t (&from)[32]) {
  Sha256Digest key;
  std::copy(std::begin(from), std::end(from), key.begin());
  return key;
}

absl::StatusOr<format::Header> ReadHeader(std::span<const std::byte> bytes) {
  format::Header header;
  if (bytes.size() < sizeof(header)) return Bad("shorter than its header");
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != format::kMagic) return Bad("another magic number");
  if (header.version != format::kFormatVersion) {
    return Bad(fmt::format("version {}", header.version));
  }
  if (header.header_crc32c != Crc32c(bytes.first(sizeof(header) - 4))) {
    return Bad("the header's sum is wrong");
  }
  if (header.header_bytes != sizeof(header) ||
      header.meta_bytes % format::kPadding != 0 || header.meta_bytes == 0 ||
      header.meta_bytes > format::kMaxMetaBytes ||
      header.payload_bytes % format::kPadding != 0 ||
      header.tables > format::kMaxTables) {
    return Bad("sizes in the header");
  }
  return header;
}

// The tables of a meta region whose sum was right: what is wrong here was
// written wrong, but must not be believed either.
class TableReader {
 public:
  static absl::StatusOr<TableReader> Open(std::span<const std::byte> bytes,
                                          std::uint32_t count) {
    TableReader reader(bytes);
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::size_t at = sizeof(format::Header) + i * sizeof(format::Table);
      if (at + sizeof(format::Table) > bytes.size()) return Bad("table list");
      format::Table table;
      std::memcpy(&table, bytes.data() + at, sizeof(table));
      if (table.offset > bytes.size() ||
          table.bytes > bytes.size() - table.offset) {
        return Bad(fmt::format("table {} lies outside", table.id));
      }
      reader.tables_.push_back(table);
    }
    return reader;
  }

  template <typename Entry>
  absl::StatusOr<std::vector<Entry>> Get(TableId id) const {
    const auto bytes = Bytes(id);
    if (bytes.size() % sizeof(Entry) != 0) {
      return Bad(fmt::format("size of table {}", static_cast<int>(id)));
    }
    std::vector<Entry> entries(bytes.size() / sizeof(Entry));
    if (!bytes.empty()) {
      std::memcpy(entries.data(), bytes.data(), bytes.size());
    }
    return entries;
  }
  std::string Text(TableId id) const {
    const auto bytes = Bytes(id);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

 private:
  explicit TableReader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  // Empty for a table that is not there.
  std::span<const std::byte> Bytes(TableId id) const {
    for (const format::Table& table : tables_) {
      if (table.id == static_cast<std::uint32_t>(id)) {
        return bytes_.subspan(table.offset, table.bytes);
      }
    }
    return {};
  }
  std::span<const std::byte> bytes_;
  std::vector<format::Table> tables_;
};

absl::Status ReadLayout(const TableReader& tables, FileMeta& meta) {
  const auto views = tables.Get<format::ViewEntry>(TableId::kViews);
  const auto sections = tables.Get<format::SectionEntry>(TableId::kSections);
  if (!views.ok()) return views.status();
  if (!sections.ok()) return sections.status();
  const std::string names = tables.Text(TableId::kNames);
  const auto name = [&](std::uint32_t offset, std::uint32_t bytes) {
    return offset <= names.size() ? names.substr(offset, bytes) : "";
  };
  constexpr std::uint64_t kMost = std::uint64_t{1} << 40;
  for (const format::ViewEntry& view : *views) {
    if (view.bytes_per_token > kMost) return Bad("a view's size");
    meta.layout.views.push_back({name(view.name_offset, view.name_bytes),
                                 view.bytes_per_token, view.parts});
    meta.view_sums.push_back({view.sum_a, view.sum_b});
  }
  for (const format::SectionEntry& section : *sections) {
    if (section.bytes > kMost) return Bad("a section's size");
    meta.layout.sections.push_back(
        {name(section.name_offset, section.name_bytes), section.bytes});
  }
  const auto offsets = SectionOffsets(meta.layout);
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    if ((*sections)[i].offset != offsets[i]) return Bad("a section's offset");
  }
  return absl::OkStatus();
}

absl::Status ReadStates(const TableReader& tables, FileMeta& meta) {
  const auto states = tables.Get<format::StateEntry>(TableId::kStates);
  if (!states.ok()) return states.status();
  const std::uint64_t bytes = StateBytes(meta.layout);
  std::uint64_t at = 0;
  for (const format::StateEntry& state : *states) {
    if (state.payload_offset != at || state.position > meta.end_position ||
        state.kind < 1 || state.kind > 4 || state.provenance < 1 ||
        state.provenance > 2) {
      return Bad("a state");
    }
    meta.states.push_back(
        {state.position, at, static_cast<StateKind>(state.kind),
         static_cast<Provenance>(state.provenance), Key(state.block_key)});
    at += bytes;
  }
  if (at != meta.payload_bytes || meta.states.empty()) {
    return Bad("states and payload differ");
  }
  return absl::OkStatus();
}

absl::Status ReadManifest(const TableReader& tables, FileMeta& meta) {
  if (auto s = ReadStates(tables, meta); !s.ok()) return s;
  const auto chunks = tables.Get<format::ChunkEntry>(TableId::kChunks);
  if (!chunks.ok()) return chunks.status();
  std::uint64_t at = 0;
  for (const format::ChunkEntry& chunk : *chunks) {
    if (chunk.end_position <= at ||
        chunk.end_position - at > meta.layout.grid_tokens ||
        at % meta.layout.grid_tokens != 0) {
      return Bad("its chunks leave a gap");
    }
    at = chunk.end_position;
    meta.chunks.push_back(
        {Key(chunk.file_key), Key(chunk.prefix_key), at, chunk.file_bytes});
  }
  if (at != meta.end_position) return Bad("its chunks end elsewhere");
  if (meta.kind == FileKind::kAnchor) {
    if (meta.states.size() != 1) return Bad("an anchor has one state");
    return absl::OkStatus();
  }
  const auto session = tables.Get<format::SessionEntry>(TableId::kSession);
  if (!session.ok()) return session.status();
  if (session->size() != 1) return Bad("no session id");
  meta.session_id = Key(session->front().session_id);
  meta.sequence = session->front().sequence;
  meta.session_key = tables.Text(TableId::kSessionKey);
  meta.record = tables.Text(TableId::kRecord);
  return absl::OkStatus();
}

absl::Status CheckRows(const FileMeta& meta) {
  if (meta.kind == FileKind::kAnchor) return absl::OkStatus();
  if (meta.end_position <= meta.first_position ||
      meta.key_ids.size() != meta.end_position - meta.first_position) {
    return Bad("key ids and positions differ");
  }
  if (meta.kind == FileKind::kSession) return absl::OkStatus();
  const std::uint64_t blocks =
      (meta.key_ids.size() + kBlockTokens - 1) / kBlockTokens;
  if (meta.key_ids.size() > meta.layout.grid_tokens ||
      meta.payload_bytes != blocks * meta.layout.BlockBytes()) {
    return Bad("rows and payload differ");
  }
  return absl::OkStatus();
}

absl::Status FromHeader(const format::Header& header, FileMeta& meta) {
  if (header.kind < 1 || header.kind > 3) return Bad("an unknown kind");
  if (header.provenance < 1 || header.provenance > 2) return Bad("provenance");
  if (header.block_tokens != kBlockTokens || header.grid_tokens == 0 ||
      header.grid_tokens % kBlockTokens != 0 ||
      header.crc_piece_bytes != format::kCrcPiece ||
      header.end_position > std::numeric_limits<std::int64_t>::max() ||
      header.first_position > header.end_position) {
    return Bad("tokens in the header");
  }
  meta.kind = static_cast<FileKind>(header.kind);
  meta.file_key = Key(header.file_key);
  meta.fingerprint = Key(header.fingerprint);
  meta.prefix_key = Key(header.prefix_key);
  meta.parent_key = Key(header.parent_key);
  meta.first_position = header.first_position;
  meta.end_position = header.end_position;
  meta.taint = header.taint;
  meta.provenance = static_cast<Provenance>(header.provenance);
  meta.layout.grid_tokens = header.grid_tokens;
  meta.meta_bytes = header.meta_bytes;
  meta.payload_bytes = header.payload_bytes;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::uint64_t> MetaBytes(std::span<const std::byte> first_page) {
  const auto header = ReadHeader(first_page);
  if (!header.ok()) return header.status();
  return header->meta_bytes;
}

absl::StatusOr<FileMeta> DecodeMeta(std::span<const std::byte> bytes,
                                    std::uint64_t file_bytes) {
  const auto header = ReadHeader(bytes);
  if (!header.ok()) return header.status();
  if (bytes.size() != header->meta_bytes || file_bytes < header->meta_bytes ||
      header->payload_bytes != file_bytes - header->meta_bytes) {
    return Bad("its size is not the header's");
  }
  if (header->meta_crc32c != Crc32c(bytes.subspan(sizeof(*header)))) {
    return Bad("the tables' sum is wrong");
  }
  FileMeta meta;
  if (auto s = FromHeader(*header, meta); !s.ok()) return s;
  const auto tables = TableReader::Open(bytes, header->tables);
  if (!tables.ok()) return tables.status();
  if (auto s = ReadLayout(*tables, meta); !s.ok()) return s;
  if (header->block_bytes != meta.layout.BlockBytes()) return Bad("block size");
  auto ids = tables->Get<KeyId>(TableId::kKeyIds);
  if (!ids.ok()) return ids.status();
  meta.key_ids = *std::move(ids);
  if (auto s = CheckRows(meta); !s.ok()) return s;
  if (meta.kind != FileKind::kChunk) {
    if (auto s = ReadManifest(*tables, meta); !s.ok()) return s;
  }
  auto crcs = tables->Get<std::uint32_t>(TableId::kPieceCrcs);
  if (!crcs.ok()) return crcs.status();
  meta.piece_crcs = *std::move(crcs);
  if (meta.piece_crcs.size() !=
      (meta.payload_bytes + format::kCrcPiece - 1) / format::kCrcPiece) {
    return Bad("sums and payload differ");
  }
  if (meta.file_key != FileKeyOf(meta)) return Bad("its key is another file's");
  return meta;
}

}  // namespace holdfast::cachesvc
