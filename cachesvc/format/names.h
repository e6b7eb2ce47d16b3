// Names of cache files: the one module that makes and parses them.
#ifndef HOLDFAST_CACHESVC_FORMAT_NAMES_H_
#define HOLDFAST_CACHESVC_FORMAT_NAMES_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "cachesvc/format/meta.h"

namespace holdfast::cachesvc {

// `sums` count for session chunks only: a grid chunk's rows follow from its
// prefix.
FileKey ChunkFileKey(const PrefixKey& prefix_key, Provenance provenance,
                     std::span<const ContentSum> sums);
FileKey AnchorFileKey(const PrefixKey& prefix_key);
FileKey SessionFileKey(const Sha256Digest& session_id, std::uint64_t sequence,
                       const PrefixKey& end_key);
// What `meta`'s own fields say its key must be.
FileKey FileKeyOf(const FileMeta& meta);

// "chunks", "anchors", "sessions", under the cache folder.
std::string FolderOf(FileKind kind);
inline constexpr char kTmpFolder[] = "tmp";
inline constexpr FileKind kAllKinds[] = {FileKind::kChunk, FileKind::kAnchor,
                                         FileKind::kSession};

std::string FileName(FileKind kind, const FileKey& key);
// The key of a name that FileName(kind) could have made.
std::optional<FileKey> ParseFileName(FileKind kind, const std::string& name);
// 64 hexadecimal digits, lower case.
std::optional<FileKey> ParseKey(const std::string& hex);

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_FORMAT_NAMES_H_
