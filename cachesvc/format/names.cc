#include "cachesvc/format/names.h"

#include "shared/check.h"
#include "shared/sha256.h"

namespace holdfast::cachesvc {
namespace {

std::string Suffix(FileKind kind) {
  switch (kind) {
    case FileKind::kChunk:
      return ".chunk";
    case FileKind::kAnchor:
      return ".anchor";
    case FileKind::kSession:
      return ".session";
  }
  HF_CHECK(false);
}

}  // namespace

FileKey ChunkFileKey(const PrefixKey& prefix_key, Provenance provenance,
                     std::span<const ContentSum> sums) {
  Sha256 hash;
  hash.Update("holdfast chunk file 1").Update(prefix_key);
  hash.UpdateU64(static_cast<std::uint64_t>(provenance));
  if (provenance == Provenance::kSession) {
    for (const ContentSum& sum : sums) hash.UpdateU64(sum.a).UpdateU64(sum.b);
  }
  return hash.Finish();
}

FileKey AnchorFileKey(const PrefixKey& prefix_key) {
  return Sha256().Update("holdfast anchor file 1").Update(prefix_key).Finish();
}

FileKey SessionFileKey(const Sha256Digest& session_id, std::uint64_t sequence,
                       const PrefixKey& end_key) {
  return Sha256()
      .Update("holdfast session file 1")
      .Update(session_id)
      .UpdateU64(sequence)
      .Update(end_key)
      .Finish();
}

FileKey FileKeyOf(const FileMeta& meta) {
  switch (meta.kind) {
    case FileKind::kChunk:
      return ChunkFileKey(meta.prefix_key, meta.provenance, meta.view_sums);
    case FileKind::kAnchor:
      return AnchorFileKey(meta.prefix_key);
    case FileKind::kSession:
      return SessionFileKey(meta.session_id, meta.sequence, meta.prefix_key);
  }
  HF_CHECK(false);
}

std::string FolderOf(FileKind kind) {
  switch (kind) {
    case FileKind::kChunk:
      return "chunks";
    case FileKind::kAnchor:
      return "anchors";
    case FileKind::kSession:
      return "sessions";
  }
  HF_CHECK(false);
}

std::string FileName(FileKind kind, const FileKey& key) {
  return ToHex(key) + Suffix(kind);
}

std::optional<FileKey> ParseKey(const std::string& hex) {
  FileKey key;
  if (hex.size() != 2 * key.size()) return std::nullopt;
  for (std::size_t i = 0; i < hex.size(); ++i) {
    const char c = hex[i];
    int digit;
    if (c >= '0' && c <= '9') {
      digit = c - '0';
    } else if (c >= 'a' && c <= 'f') {
      digit = c - 'a' + 10;
    } else {
      return std::nullopt;
    }
    key[i / 2] =
        static_cast<std::uint8_t>(i % 2 == 0 ? digit << 4 : key[i / 2] | digit);
  }
  return key;
}

std::optional<FileKey> ParseFileName(FileKind kind, const std::string& name) {
  const std::string suffix = Suffix(kind);
  if (name.size() != 64 + suffix.size() || !name.ends_with(suffix)) {
    return std::nullopt;
  }
  return ParseKey(name.substr(0, 64));
}

}  // namespace holdfast::cachesvc
