#include "cachesvc/index/rows.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

namespace holdfast::cachesvc {
namespace {

constexpr char kVersion = 1;
constexpr std::size_t kFingerprintBytes = 16;

template <typename T>
concept Number = std::is_integral_v<T> || std::is_enum_v<T>;

class Writer {
 public:
  static constexpr bool kReads = false;
  template <Number T>
  void operator()(T& value) {
    auto number = static_cast<std::uint64_t>(value);
    out_.append(reinterpret_cast<const char*>(&number), sizeof(number));
  }
  void operator()(Sha256Digest& key) {
    out_.append(reinterpret_cast<const char*>(key.data()), key.size());
  }
  void operator()(std::string& text) {
    std::uint64_t bytes = text.size();
    (*this)(bytes);
    out_ += text;
  }
  std::string Take() { return std::move(out_); }

 private:
  std::string out_;
};

class Reader {
 public:
  static constexpr bool kReads = true;
  explicit Reader(std::string_view bytes) : in_(bytes) {}
  template <Number T>
  void operator()(T& value) {
    std::uint64_t number = 0;
    Take(&number, sizeof(number));
    value = static_cast<T>(number);
  }
  void operator()(Sha256Digest& key) { Take(key.data(), key.size()); }
  void operator()(std::string& text) {
    std::uint64_t bytes = 0;
    (*this)(bytes);
    if (bytes > in_.size()) {
      bad_ = true;
      return;
    }
    text = in_.substr(0, bytes);
    in_.remove_prefix(bytes);
  }
  bool done() const { return !bad_ && in_.empty(); }
  std::size_t left() const { return in_.size(); }
  bool bad() const { return bad_; }

 private:
  void Take(void* to, std::size_t bytes) {
    if (bad_ || bytes > in_.size()) {
      bad_ = true;
      return;
    }
    std::memcpy(to, in_.data(), bytes);
    in_.remove_prefix(bytes);
  }
  std::string_view in_;
  bool bad_ = false;
};

// A list with its length before it.
template <typename Archive, typename T, typename Visit>
void VisitList(Archive& archive, std::vector<T>& list, const Visit& visit) {
  std::uint64_t size = list.size();
  archive(size);
  if constexpr (Archive::kReads) {
    // Every entry takes at least a byte, so a wrong length ends here.
    if (archive.bad() || size > archive.left()) size = 0;
    list.resize(size);
  }
  for (T& entry : list) visit(entry);
}

template <typename Archive>
void Visit(Archive& archive, ChunkRow& row) {
  archive(row.file_key);
  archive(row.fingerprint);
  archive(row.prefix_key);
  archive(row.first_position);
  archive(row.end_position);
  archive(row.provenance);
  archive(row.file_bytes);
  archive(row.meta_bytes);
}

template <typename Archive>
void Visit(Archive& archive, ManifestRow& row) {
  archive(row.kind);
  archive(row.file_key);
  archive(row.fingerprint);
  archive(row.prefix_key);
  archive(row.end_position);
  archive(row.taint);
  archive(row.file_bytes);
  archive(row.meta_bytes);
  archive(row.state_bytes);
  archive(row.grid_tokens);
  archive(row.created_s);
  VisitList(archive, row.states, [&](StateRow& state) {
    archive(state.position);
    archive(state.kind);
    archive(state.provenance);
    archive(state.block_key);
    VisitList(archive, state.tail, [&](KeyId& id) { archive(id); });
  });
  VisitList(archive, row.chunks, [&](FileKey& key) { archive(key); });
  archive(row.session_id);
  archive(row.sequence);
  archive(row.session_key);
}

template <typename Archive>
void Visit(Archive& archive, HitRow& row) {
  archive(row.hits);
  archive(row.last_used_s);
}

template <typename Archive>
void Visit(Archive& archive, LineRow& row) {
  archive(row.count);
  archive(row.child);
  archive(row.branched);
  archive(row.last_seen_s);
}

std::uint32_t Sum(std::string_view key, std::string_view body) {
  const std::uint32_t crc = Crc32c(std::as_bytes(std::span(key)));
  return Crc32c(std::as_bytes(std::span(body)), crc);
}

template <typename Row>
std::string Encode(const std::string& key, Row row) {
  Writer writer;
  Visit(writer, row);
  std::string value = kVersion + writer.Take();
  const std::uint32_t crc = Sum(key, value);
  value.append(reinterpret_cast<const char*>(&crc), sizeof(crc));
  return value;
}

template <typename Row>
std::optional<Row> Decode(std::string_view key, std::string_view value) {
  std::uint32_t crc = 0;
  if (value.size() < 1 + sizeof(crc) || value[0] != kVersion) {
    return std::nullopt;
  }
  const auto body = value.substr(0, value.size() - sizeof(crc));
  std::memcpy(&crc, value.data() + body.size(), sizeof(crc));
  if (crc != Sum(key, body)) return std::nullopt;
  Reader reader(body.substr(1));
  Row row;
  Visit(reader, row);
  if (!reader.done()) return std::nullopt;
  return row;
}

std::string WithVersion(std::span<const std::uint8_t> bytes) {
  return kVersion +
         std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

HitRow Combine(const HitRow& a, const HitRow& b) {
  return {a.hits + b.hits, std::max(a.last_used_s, b.last_used_s)};
}

LineRow Combine(const LineRow& a, const LineRow& b) {
  LineRow row;
  row.count = a.count + b.count;
  row.child = a.child != 0 ? a.child : b.child;
  row.branched = a.branched || b.branched ||
                 (a.child != 0 && b.child != 0 && a.child != b.child);
  row.last_seen_s = std::max(a.last_seen_s, b.last_seen_s);
  return row;
}

template <typename Row>
std::string Merge(std::string_view key, const std::string_view* existing,
                  std::string_view operand) {
  const auto old =
      existing == nullptr ? std::nullopt : Decode<Row>(key, *existing);
  const auto add = Decode<Row>(key, operand);
  return Encode(std::string(key),
                Combine(old.value_or(Row()), add.value_or(Row())));
}

}  // namespace

ChunkRow ChunkRowOf(const FileMeta& meta) {
  return {meta.file_key,       meta.fingerprint,  meta.prefix_key,
          meta.first_position, meta.end_position, meta.provenance,
          meta.file_bytes(),   meta.meta_bytes};
}

ManifestRow ManifestRowOf(const FileMeta& meta, std::uint64_t created_s) {
  ManifestRow row;
  row.kind = meta.kind;
  row.file_key = meta.file_key;
  row.fingerprint = meta.fingerprint;
  row.prefix_key = meta.prefix_key;
  row.end_position = meta.end_position;
  row.taint = meta.taint;
  row.file_bytes = meta.file_bytes();
  row.meta_bytes = meta.meta_bytes;
  row.state_bytes = StateBytes(meta.layout);
  row.grid_tokens = meta.layout.grid_tokens;
  row.created_s = created_s;
  for (const StateMeta& state : meta.states) {
    StateRow out{
        state.position, state.kind, state.provenance, state.block_key, {}};
    const std::uint64_t whole = state.position / kBlockTokens * kBlockTokens;
    if (state.position <= meta.key_ids.size()) {
      out.tail.assign(
          meta.key_ids.begin() + static_cast<std::ptrdiff_t>(whole),
          meta.key_ids.begin() + static_cast<std::ptrdiff_t>(state.position));
    }
    row.states.push_back(std::move(out));
  }
  for (const ChunkRef& chunk : meta.chunks) {
    row.chunks.push_back(chunk.file_key);
  }
  row.session_id = meta.session_id;
  row.sequence = meta.sequence;
  row.session_key = meta.session_key;
  return row;
}

std::string RowKey(const Sha256Digest& fingerprint, const FileKey& file_key) {
  std::string key =
      WithVersion(std::span(fingerprint).first(kFingerprintBytes));
  key.append(reinterpret_cast<const char*>(file_key.data()), file_key.size());
  return key;
}

std::string HitKey(const FileKey& file_key) { return WithVersion(file_key); }
std::string LineKey(const PrefixKey& line) { return WithVersion(line); }

std::string TombstoneKey(FileKind kind, const FileKey& file_key) {
  std::string key = WithVersion(file_key);
  key.insert(1, 1, static_cast<char>(kind));
  return key;
}

std::optional<Tombstone> ParseTombstoneKey(std::string_view key) {
  Tombstone tombstone;
  if (key.size() != 2 + tombstone.file_key.size() || key[0] != kVersion ||
      key[1] < 1 || key[1] > 3) {
    return std::nullopt;
  }
  tombstone.kind = static_cast<FileKind>(key[1]);
  std::memcpy(tombstone.file_key.data(), key.data() + 2,
              tombstone.file_key.size());
  return tombstone;
}

Table TableOf(FileKind kind) {
  switch (kind) {
    case FileKind::kChunk:
      return Table::kChunks;
    case FileKind::kAnchor:
      return Table::kAnchors;
    case FileKind::kSession:
      break;
  }
  return Table::kSessions;
}

std::string EncodeRow(const std::string& key, const ChunkRow& row) {
  return Encode(key, row);
}
std::string EncodeRow(const std::string& key, const ManifestRow& row) {
  return Encode(key, row);
}
std::string EncodeRow(const std::string& key, const HitRow& row) {
  return Encode(key, row);
}
std::string EncodeRow(const std::string& key, const LineRow& row) {
  return Encode(key, row);
}

std::optional<ChunkRow> DecodeChunkRow(std::string_view key,
                                       std::string_view value) {
  return Decode<ChunkRow>(key, value);
}
std::optional<ManifestRow> DecodeManifestRow(std::string_view key,
                                             std::string_view value) {
  return Decode<ManifestRow>(key, value);
}
std::optional<HitRow> DecodeHitRow(std::string_view key,
                                   std::string_view value) {
  return Decode<HitRow>(key, value);
}
std::optional<LineRow> DecodeLineRow(std::string_view key,
                                     std::string_view value) {
  return Decode<LineRow>(key, value);
}

std::string MergeRows(Table table, std::string_view key,
                      const std::string_view* existing,
                      std::string_view operand) {
  return table == Table::kLines ? Merge<LineRow>(key, existing, operand)
                                : Merge<HitRow>(key, existing, operand);
}

}  // namespace holdfast::cachesvc
