#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "cachesvc/format/meta.h"
#include "shared/check.h"

namespace holdfast::cachesvc {
namespace {

using format::TableId;

void CopyKey(std::uint8_t (&to)[32], const Sha256Digest& from) {
  std::copy(from.begin(), from.end(), to);
}

// Collects the tables' bytes before their places are known.
class Tables {
 public:
  template <typename Entry>
  void Add(TableId id, const std::vector<Entry>& entries) {
    AddBytes(id, entries.data(), entries.size() * sizeof(Entry));
  }
  void Add(TableId id, const std::string& text) {
    AddBytes(id, text.data(), text.size());
  }
  std::uint32_t Name(const std::string& name) {
    const auto offset = static_cast<std::uint32_t>(names_.size());
    names_ += name;
    return offset;
  }
  const std::string& names() const { return names_; }

  std::uint32_t count() const {
    return static_cast<std::uint32_t>(tables_.size());
  }
  std::uint64_t EndOffset() const {
    std::uint64_t at = Start();
    for (const auto& table : tables_) at += Padded(table.second.size());
    return at;
  }
  void Write(std::byte* meta) const {
    std::uint64_t at = Start();
    for (std::size_t i = 0; i < tables_.size(); ++i) {
      const auto& [id, bytes] = tables_[i];
      const format::Table entry = {static_cast<std::uint32_t>(id), 0, at,
                                   bytes.size()};
      std::memcpy(meta + sizeof(format::Header) + i * sizeof(entry), &entry,
                  sizeof(entry));
      if (!bytes.empty()) std::memcpy(meta + at, bytes.data(), bytes.size());
      at += Padded(bytes.size());
    }
  }

 private:
  static std::uint64_t Padded(std::uint64_t bytes) {
    return (bytes + 7) / 8 * 8;
  }
  std::uint64_t Start() const {
    return sizeof(format::Header) + tables_.size() * sizeof(format::Table);
  }
  void AddBytes(TableId id, const void* data, std::size_t bytes) {
    const auto* begin = static_cast<const char*>(data);
    tables_.emplace_back(id, std::string());
    if (bytes != 0) tables_.back().second.assign(begin, bytes);
  }

  std::vector<std::pair<TableId, std::string>> tables_;
  std::string names_;
};

void AddLayout(const FileMeta& meta, Tables& tables) {
  std::vector<format::ViewEntry> views;
  for (std::size_t i = 0; i < meta.layout.views.size(); ++i) {
    const View& view = meta.layout.views[i];
    const ContentSum sum =
        meta.view_sums.empty() ? ContentSum() : meta.view_sums[i];
    views.push_back({view.bytes_per_token, sum.a, sum.b, view.parts,
                     tables.Name(view.name),
                     static_cast<std::uint32_t>(view.name.size()), 0});
  }
  std::vector<format::SectionEntry> sections;
  const auto offsets = SectionOffsets(meta.layout);
  for (std::size_t i = 0; i < meta.layout.sections.size(); ++i) {
    const Section& section = meta.layout.sections[i];
    sections.push_back({section.bytes, offsets[i], tables.Name(section.name),
                        static_cast<std::uint32_t>(section.name.size())});
  }
  tables.Add(TableId::kViews, views);
  tables.Add(TableId::kSections, sections);
  tables.Add(TableId::kNames, tables.names());
}

void AddManifest(const FileMeta& meta, Tables& tables) {
  std::vector<format::StateEntry> states;
  for (const StateMeta& state : meta.states) {
    format::StateEntry entry{};
    entry.position = state.position;
    entry.payload_offset = state.payload_offset;
    entry.kind = static_cast<std::uint32_t>(state.kind);
    entry.provenance = static_cast<std::uint32_t>(state.provenance);
    CopyKey(entry.block_key, state.block_key);
    states.push_back(entry);
  }
  std::vector<format::ChunkEntry> chunks;
  for (const ChunkRef& chunk : meta.chunks) {
    format::ChunkEntry entry{};
    CopyKey(entry.file_key, chunk.file_key);
    CopyKey(entry.prefix_key, chunk.prefix_key);
    entry.end_position = chunk.end_position;
    entry.file_bytes = chunk.file_bytes;
    chunks.push_back(entry);
  }
  tables.Add(TableId::kStates, states);
  tables.Add(TableId::kChunks, chunks);
  if (meta.kind != FileKind::kSession) return;
  format::SessionEntry session{};
  CopyKey(session.session_id, meta.session_id);
  session.sequence = meta.sequence;
  tables.Add(TableId::kSession, std::vector{session});
  tables.Add(TableId::kSessionKey, meta.session_key);
  tables.Add(TableId::kRecord, meta.record);
}

format::Header MakeHeader(const FileMeta& meta, std::uint32_t tables) {
  format::Header header{};
  header.magic = format::kMagic;
  header.version = format::kFormatVersion;
  header.header_bytes = sizeof(format::Header);
  header.kind = static_cast<std::uint32_t>(meta.kind);
  header.meta_bytes = meta.meta_bytes;
  header.payload_bytes = meta.payload_bytes;
  CopyKey(header.file_key, meta.file_key);
  CopyKey(header.fingerprint, meta.fingerprint);
  CopyKey(header.prefix_key, meta.prefix_key);
  CopyKey(header.parent_key, meta.parent_key);
  header.first_position = meta.first_position;
  header.end_position = meta.end_position;
  header.taint = meta.taint;
  header.provenance = static_cast<std::uint32_t>(meta.provenance);
  header.grid_tokens = meta.layout.grid_tokens;
  header.block_tokens = kBlockTokens;
  header.crc_piece_bytes = format::kCrcPiece;
  header.block_bytes = meta.layout.BlockBytes();
  header.tables = tables;
  return header;
}

}  // namespace

std::vector<std::uint64_t> SectionOffsets(const CacheLayout& layout) {
  std::vector<std::uint64_t> offsets;
  std::uint64_t at = 0;
  for (const Section& section : layout.sections) {
    offsets.push_back(at);
    at += PagesUp(section.bytes);
  }
  return offsets;
}

std::uint64_t StateBytes(const CacheLayout& layout) {
  std::uint64_t sum = 0;
  for (const Section& section : layout.sections) sum += PagesUp(section.bytes);
  return sum;
}

AlignedBuffer EncodeMeta(FileMeta& meta) {
  HF_CHECK(meta.view_sums.empty() ||
           meta.view_sums.size() == meta.layout.views.size());
  Tables tables;
  AddLayout(meta, tables);
  if (meta.kind != FileKind::kAnchor) {
    tables.Add(TableId::kKeyIds, meta.key_ids);
  }
  if (meta.kind != FileKind::kChunk) AddManifest(meta, tables);
  tables.Add(TableId::kPieceCrcs, meta.piece_crcs);
  AlignedBuffer buffer(tables.EndOffset());
  meta.meta_bytes = buffer.size();
  tables.Write(buffer.data());
  format::Header header = MakeHeader(meta, tables.count());
  header.meta_crc32c = Crc32c(buffer.span().subspan(sizeof(header)));
  header.header_crc32c =
      Crc32c(std::as_bytes(std::span(&header, 1)).first(sizeof(header) - 4));
  std::memcpy(buffer.data(), &header, sizeof(header));
  return buffer;
}

}  // namespace holdfast::cachesvc
