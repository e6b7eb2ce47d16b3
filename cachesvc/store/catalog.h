// What is on the disk, in memory: rows, who needs which chunk, who pays for it,
// which manifest goes next. No I/O and no locks; the chunk store owns one.
#ifndef HOLDFAST_CACHESVC_STORE_CATALOG_H_
#define HOLDFAST_CACHESVC_STORE_CATALOG_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "cachesvc/index/rows.h"
#include "cachesvc/store/candidate.h"
#include "cachesvc/store/victim_order.h"
#include "shared/prefix_key.h"

namespace holdfast::cachesvc {

struct CatalogChunk {
  ChunkRow row;
  // Of this file: another one under the same name has a higher number.
  std::uint64_t generation = 0;
  std::vector<std::uint32_t> users;  // manifests, by their number here
  std::uint32_t anchor_users = 0;
  std::uint32_t pending = 0;  // manifests being written that need it
};

struct CatalogManifest {
  ManifestRow row;
  std::uint64_t generation = 0;  // as a chunk's
  std::uint64_t hits = 0;
  std::uint64_t last_used_s = 0;
  bool pinned = false;
  std::uint64_t own_bytes = 0;  // its file and the chunks that only it needs
};

// A file that has left the catalog and must be deleted.
struct DroppedFile {
  FileKind kind = FileKind::kChunk;
  FileKey file_key{};
  Sha256Digest fingerprint{};
  std::uint64_t bytes = 0;
};

class Catalog {
 public:
  // A chunk's file bytes are charged once: to the disk tier while an anchor
  // uses it, else to the spill.
  std::uint64_t disk_bytes() const { return disk_bytes_; }
  std::uint64_t spill_bytes() const { return spill_bytes_; }
  std::uint64_t bytes(FileKind kind) const {
    return kind == FileKind::kSession ? spill_bytes_ : disk_bytes_;
  }

  // False when it was there already.
  bool AddChunk(const ChunkRow& row);
  const CatalogChunk* FindChunk(const FileKey& key) const;
  // False when a chunk it needs is missing, or it was there already.
  bool AddManifest(const ManifestRow& row, std::uint64_t hits,
                   std::uint64_t last_used_s, bool pinned);
  const CatalogManifest* FindManifest(const FileKey& key) const;

  // Takes a manifest out, with the chunks that nothing needs any more.
  std::vector<DroppedFile> RemoveManifest(const FileKey& key);
  // Takes a chunk out, with every manifest that needs it and what falls with
  // them.
  std::vector<DroppedFile> RemoveChunk(const FileKey& key);
  // From here until RemoveUnreferenced() a chunk that nothing needs stays: what
  // needs it may not be known yet.
  void KeepUnreferenced() { keep_unreferenced_ = true; }
  // Every chunk that no manifest, written or being written, needs.
  std::vector<DroppedFile> RemoveUnreferenced();
  void Clear();
  // Of the file of that name; 0: there is none.
  std::uint64_t Generation(FileKind kind, const FileKey& key) const;

  // A manifest being written needs these: they stay until Unpend(), which
  // returns those that nothing needs then. Keys without a chunk are skipped.
  void Pend(std::span<const FileKey> keys);
  std::vector<DroppedFile> Unpend(std::span<const FileKey> keys);

  // Everything a prompt could be resumed from, deepest first, at most
  // `request.most`.
  std::vector<Candidate> Lookup(const LookupRequest& request) const;

  // Counts a use.
  void Touch(const FileKey& key, std::uint64_t now_s);
  void SetPinned(const FileKey& key, bool pinned);

  // The manifest that goes first when its tier is too large, or nothing when
  // all are pinned or `busy`. `attached` is the engine's fingerprint.
  std::optional<FileKey> Victim(
      FileKind kind, const std::optional<Sha256Digest>& attached,
      const std::function<bool(const FileKey&)>& busy = nullptr) const {
    return order_.First(kind, attached, busy);
  }
  // Bytes of a tier that no eviction can give back.
  std::uint64_t PinnedBytes(FileKind kind) const;
  // Bytes that would move from the spill to the disk tier if an anchor used
  // these chunks.
  std::uint64_t MovingBytes(std::span<const FileKey> keys) const;

  // All files of a session id.
  std::vector<const CatalogManifest*> Sessions(
      const Sha256Digest& session_id) const;
  // The newest of them.
  std::optional<FileKey> NewestSession(const Sha256Digest& session_id) const;
  std::uint64_t NextSequence(const Sha256Digest& session_id) const;

  void ForEachManifest(
      const std::function<void(const CatalogManifest&)>& visit) const;
  void ForEachChunk(
      const std::function<void(const CatalogChunk&)>& visit) const;
  std::size_t chunks() const { return chunks_.size(); }
  std::size_t manifests() const { return manifests_.size(); }

 private:
  struct StateRef {
    std::uint32_t manifest;
    std::uint32_t state;
  };

  std::uint64_t& Account(const CatalogChunk& chunk) {
    return chunk.anchor_users > 0 ? disk_bytes_ : spill_bytes_;
  }
  CatalogChunk* Chunk(const FileKey& key);
  void DropChunkIfFree(const FileKey& key, std::vector<DroppedFile>& dropped);
  void IndexStates(std::uint32_t id, const ManifestRow& row, bool add);
  void ReleaseChunks(std::uint32_t id, const ManifestRow& row,
                     std::vector<DroppedFile>& dropped);
  // Its place in the order, unless it is pinned.
  void Place(const CatalogManifest& manifest);
  void Unplace(const CatalogManifest& manifest);
  // Manifests that gain (or lose) chunks which only they need.
  using OwnChange = std::unordered_map<std::uint32_t, std::int64_t>;
  void ChangeOwn(const OwnChange& changes);
  Candidate MakeCandidate(const CatalogManifest& manifest,
                          const StateRow& state) const;

  std::unordered_map<FileKey, CatalogChunk, PrefixKeyHash> chunks_;
  std::unordered_map<std::uint32_t, CatalogManifest> manifests_;
  std::unordered_map<FileKey, std::uint32_t, PrefixKeyHash> ids_;
  std::unordered_map<PrefixKey, std::vector<StateRef>, PrefixKeyHash> states_;
  std::unordered_map<Sha256Digest, std::vector<std::uint32_t>, PrefixKeyHash>
      sessions_;
  VictimOrder order_;               // of those that are not pinned
  std::set<std::uint32_t> pinned_;  // the others
  bool keep_unreferenced_ = false;
  std::uint32_t next_id_ = 1;
  std::uint64_t next_generation_ = 1;  // grows over Clear() too
  std::uint64_t disk_bytes_ = 0;
  std::uint64_t spill_bytes_ = 0;
};

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_STORE_CATALOG_H_
