#include "cachesvc/store/catalog.h"

#include <algorithm>
#include <utility>

#include "shared/cache_layout.h"
#include "shared/check.h"

namespace holdfast::cachesvc {
namespace {

DroppedFile Dropped(const CatalogChunk& chunk) {
  return {FileKind::kChunk, chunk.row.file_key, chunk.row.fingerprint,
          chunk.row.file_bytes};
}

}  // namespace

bool Catalog::AddChunk(const ChunkRow& row) {
  const auto [it, added] = chunks_.try_emplace(row.file_key);
  if (!added) return false;
  it->second.row = row;
  it->second.generation = next_generation_++;
  spill_bytes_ += row.file_bytes;
  return true;
}

const CatalogChunk* Catalog::FindChunk(const FileKey& key) const {
  const auto it = chunks_.find(key);
  return it == chunks_.end() ? nullptr : &it->second;
}

CatalogChunk* Catalog::Chunk(const FileKey& key) {
  const auto it = chunks_.find(key);
  return it == chunks_.end() ? nullptr : &it->second;
}

bool Catalog::AddManifest(const ManifestRow& row, std::uint64_t hits,
                          std::uint64_t last_used_s, bool pinned) {
  if (ids_.contains(row.file_key)) return false;
  for (const FileKey& key : row.chunks) {
    if (!chunks_.contains(key)) return false;
  }
  const std::uint32_t id = next_id_++;
  ids_[row.file_key] = id;
  std::uint64_t own_bytes = row.file_bytes;
  OwnChange shared;
  for (const FileKey& key : row.chunks) {
    CatalogChunk& chunk = *Chunk(key);
    Account(chunk) -= chunk.row.file_bytes;
    if (chunk.users.empty()) {
      own_bytes += chunk.row.file_bytes;
    } else if (chunk.users.size() == 1) {
      shared[chunk.users.front()] -=
          static_cast<std::int64_t>(chunk.row.file_bytes);
    }
    chunk.users.push_back(id);
    if (row.kind == FileKind::kAnchor) ++chunk.anchor_users;
    Account(chunk) += chunk.row.file_bytes;
  }
  (row.kind == FileKind::kAnchor ? disk_bytes_ : spill_bytes_) +=
      row.file_bytes;
  IndexStates(id, row, true);
  if (row.kind == FileKind::kSession) sessions_[row.session_id].push_back(id);
  manifests_[id] = {row,    next_generation_++,
                    hits,   std::max(last_used_s, row.created_s),
                    pinned, own_bytes};
  if (pinned) pinned_.insert(id);
  Place(manifests_[id]);
  ChangeOwn(shared);
  return true;
}

void Catalog::Place(const CatalogManifest& manifest) {
  if (manifest.pinned) return;
  const ManifestRow& row = manifest.row;
  order_.Add({row.kind, row.fingerprint, row.file_key, manifest.last_used_s,
              AnchorWorth(manifest.hits, row.end_position, manifest.own_bytes,
                          manifest.last_used_s)});
}

void Catalog::Unplace(const CatalogManifest& manifest) {
  if (manifest.pinned) return;
  const ManifestRow& row = manifest.row;
  order_.Remove({row.kind, row.fingerprint, row.file_key, manifest.last_used_s,
                 AnchorWorth(manifest.hits, row.end_position,
                             manifest.own_bytes, manifest.last_used_s)});
}

void Catalog::ChangeOwn(const OwnChange& changes) {
  for (const auto& [id, bytes] : changes) {
    CatalogManifest& manifest = manifests_.at(id);
    Unplace(manifest);
    manifest.own_bytes += static_cast<std::uint64_t>(bytes);
    Place(manifest);
  }
}

void Catalog::IndexStates(std::uint32_t id, const ManifestRow& row, bool add) {
  for (std::uint32_t i = 0; i < row.states.size(); ++i) {
    const PrefixKey& key = row.states[i].block_key;
    auto& refs = states_[key];
    if (add) {
      refs.push_back({id, i});
      continue;
    }
    std::erase_if(refs,
                  [&](const StateRef& ref) { return ref.manifest == id; });
    if (refs.empty()) states_.erase(key);
  }
}

const CatalogManifest* Catalog::FindManifest(const FileKey& key) const {
  const auto it = ids_.find(key);
  return it == ids_.end() ? nullptr : &manifests_.at(it->second);
}

void Catalog::DropChunkIfFree(const FileKey& key,
                              std::vector<DroppedFile>& dropped) {
  const auto it = chunks_.find(key);
  if (keep_unreferenced_ || it == chunks_.end() || !it->second.users.empty() ||
      it->second.pending > 0) {
    return;
  }
  dropped.push_back(Dropped(it->second));
  Account(it->second) -= it->second.row.file_bytes;
  chunks_.erase(it);
}

void Catalog::ReleaseChunks(std::uint32_t id, const ManifestRow& row,
                            std::vector<DroppedFile>& dropped) {
  OwnChange left;
  for (const FileKey& key : row.chunks) {
    CatalogChunk* chunk = Chunk(key);
    if (chunk == nullptr) continue;
    Account(*chunk) -= chunk->row.file_bytes;
    const auto user = std::find(chunk->users.begin(), chunk->users.end(), id);
    HF_CHECK(user != chunk->users.end());
    *user = chunk->users.back();
    chunk->users.pop_back();
    if (row.kind == FileKind::kAnchor) --chunk->anchor_users;
    Account(*chunk) += chunk->row.file_bytes;
    if (chunk->users.size() == 1) {
      left[chunk->users.front()] +=
          static_cast<std::int64_t>(chunk->row.file_bytes);
    }
    DropChunkIfFree(key, dropped);
  }
  ChangeOwn(left);
}

std::vector<DroppedFile> Catalog::RemoveManifest(const FileKey& key) {
  std::vector<DroppedFile> dropped;
  const auto it = ids_.find(key);
  if (it == ids_.end()) return dropped;
  const std::uint32_t id = it->second;
  Unplace(manifests_.at(id));
  pinned_.erase(id);
  const ManifestRow row = std::move(manifests_.at(id).row);
  ids_.erase(it);
  manifests_.erase(id);
  IndexStates(id, row, false);
  if (row.kind == FileKind::kSession) {
    auto& files = sessions_[row.session_id];
    std::erase(files, id);
    if (files.empty()) sessions_.erase(row.session_id);
  }
  (row.kind == FileKind::kAnchor ? disk_bytes_ : spill_bytes_) -=
      row.file_bytes;
  dropped.push_back({row.kind, key, row.fingerprint, row.file_bytes});
  ReleaseChunks(id, row, dropped);
  return dropped;
}

std::vector<DroppedFile> Catalog::RemoveChunk(const FileKey& key) {
  std::vector<DroppedFile> dropped;
  CatalogChunk* chunk = Chunk(key);
  if (chunk == nullptr) return dropped;
  const std::vector<std::uint32_t> users = chunk->users;
  for (const std::uint32_t id : users) {
    const FileKey manifest = manifests_.at(id).row.file_key;
    const auto more = RemoveManifest(manifest);
    dropped.insert(dropped.end(), more.begin(), more.end());
  }
  // It stays only where a manifest being written still needs it; that one is
  // refused later, for it finds the chunk gone.
  chunk = Chunk(key);
  if (chunk != nullptr) {
    dropped.push_back(Dropped(*chunk));
    Account(*chunk) -= chunk->row.file_bytes;
    chunks_.erase(key);
  }
  return dropped;
}

std::vector<DroppedFile> Catalog::RemoveUnreferenced() {
  keep_unreferenced_ = false;
  std::vector<FileKey> keys;
  for (const auto& [key, chunk] : chunks_) {
    if (chunk.users.empty()) keys.push_back(key);
  }
  std::vector<DroppedFile> dropped;
  for (const FileKey& key : keys) DropChunkIfFree(key, dropped);
  return dropped;
}

void Catalog::Clear() {
  const std::uint64_t next = next_generation_;
  *this = Catalog();
  next_generation_ = next;
}

std::uint64_t Catalog::Generation(FileKind kind, const FileKey& key) const {
  if (kind == FileKind::kChunk) {
    const CatalogChunk* chunk = FindChunk(key);
    return chunk == nullptr ? 0 : chunk->generation;
  }
  const CatalogManifest* manifest = FindManifest(key);
  return manifest == nullptr ? 0 : manifest->generation;
}

void Catalog::Pend(std::span<const FileKey> keys) {
  for (const FileKey& key : keys) {
    if (CatalogChunk* chunk = Chunk(key)) ++chunk->pending;
  }
}

std::vector<DroppedFile> Catalog::Unpend(std::span<const FileKey> keys) {
  std::vector<DroppedFile> dropped;
  for (const FileKey& key : keys) {
    CatalogChunk* chunk = Chunk(key);
    if (chunk == nullptr || chunk->pending == 0) continue;
    --chunk->pending;
    DropChunkIfFree(key, dropped);
  }
  return dropped;
}

Candidate Catalog::MakeCandidate(const CatalogManifest& manifest,
                                 const StateRow& state) const {
  const ManifestRow& row = manifest.row;
  Candidate candidate;
  candidate.kind = row.kind;
  candidate.file_key = row.file_key;
  candidate.position = state.position;
  candidate.state = state.kind;
  candidate.provenance = state.provenance;
  candidate.taint = row.taint;
  candidate.bytes = row.meta_bytes + row.state_bytes;
  for (std::size_t i = 0;
       i < row.chunks.size() && i * row.grid_tokens < state.position; ++i) {
    candidate.bytes += chunks_.at(row.chunks[i]).row.file_bytes;
  }
  candidate.tail = state.tail;
  candidate.session_id = row.session_id;
  candidate.sequence = row.sequence;
  return candidate;
}

std::vector<Candidate> Catalog::Lookup(const LookupRequest& request) const {
  std::vector<Candidate> found;
  const auto add = [&](const PrefixKey& key, std::uint64_t tokens) {
    const auto it = states_.find(key);
    if (it == states_.end()) return;
    for (const StateRef& ref : it->second) {
      // Many conversations may have an anchor at one line of a common head.
      if (found.size() >= 2 * request.most) return;
      const CatalogManifest& manifest = manifests_.at(ref.manifest);
      const StateRow& state = manifest.row.states[ref.state];
      // Keys chain from the fingerprint, so another's cannot be equal; the rows
      // come from files, and are not believed.
      if (manifest.row.fingerprint != request.fingerprint ||
          state.position / kBlockTokens * kBlockTokens != tokens ||
          state.position == 0) {
        continue;
      }
      found.push_back(MakeCandidate(manifest, state));
    }
  };
  for (std::size_t i = request.block_keys.size(); i > 0; --i) {
    if (found.size() >= request.most) break;
    add(request.block_keys[i - 1], i * kBlockTokens);
  }
  if (found.size() < request.most) add(request.root, 0);
  std::stable_sort(found.begin(), found.end(),
                   [](const Candidate& a, const Candidate& b) {
                     return a.position > b.position;
                   });
  if (found.size() > request.most) found.resize(request.most);
  return found;
}

void Catalog::Touch(const FileKey& key, std::uint64_t now_s) {
  const auto it = ids_.find(key);
  if (it == ids_.end()) return;
  CatalogManifest& manifest = manifests_.at(it->second);
  Unplace(manifest);
  ++manifest.hits;
  manifest.last_used_s = std::max(manifest.last_used_s, now_s);
  Place(manifest);
}

void Catalog::SetPinned(const FileKey& key, bool pinned) {
  const auto it = ids_.find(key);
  if (it == ids_.end()) return;
  CatalogManifest& manifest = manifests_.at(it->second);
  Unplace(manifest);
  manifest.pinned = pinned;
  if (pinned) {
    pinned_.insert(it->second);
  } else {
    pinned_.erase(it->second);
  }
  Place(manifest);
}

std::uint64_t Catalog::PinnedBytes(FileKind kind) const {
  std::uint64_t sum = 0;
  std::unordered_map<FileKey, bool, PrefixKeyHash> counted;
  for (const std::uint32_t id : pinned_) {
    const CatalogManifest& manifest = manifests_.at(id);
    if (manifest.row.kind != kind) continue;
    sum += manifest.row.file_bytes;
    for (const FileKey& key : manifest.row.chunks) {
      const CatalogChunk& chunk = chunks_.at(key);
      const bool charged_here =
          kind == FileKind::kAnchor || chunk.anchor_users == 0;
      if (charged_here && counted.try_emplace(key).second) {
        sum += chunk.row.file_bytes;
      }
    }
  }
  return sum;
}

std::uint64_t Catalog::MovingBytes(std::span<const FileKey> keys) const {
  std::uint64_t sum = 0;
  for (const FileKey& key : keys) {
    const CatalogChunk* chunk = FindChunk(key);
    if (chunk != nullptr && chunk->anchor_users == 0) {
      sum += chunk->row.file_bytes;
    }
  }
  return sum;
}

std::vector<const CatalogManifest*> Catalog::Sessions(
    const Sha256Digest& session_id) const {
  std::vector<const CatalogManifest*> files;
  const auto it = sessions_.find(session_id);
  if (it == sessions_.end()) return files;
  for (const std::uint32_t id : it->second) files.push_back(&manifests_.at(id));
  return files;
}

std::optional<FileKey> Catalog::NewestSession(
    const Sha256Digest& session_id) const {
  const CatalogManifest* newest = nullptr;
  for (const CatalogManifest* manifest : Sessions(session_id)) {
    if (newest == nullptr || manifest->row.sequence > newest->row.sequence) {
      newest = manifest;
    }
  }
  if (newest == nullptr) return std::nullopt;
  return newest->row.file_key;
}

std::uint64_t Catalog::NextSequence(const Sha256Digest& session_id) const {
  const auto newest = NewestSession(session_id);
  return newest ? FindManifest(*newest)->row.sequence + 1 : 1;
}

void Catalog::ForEachManifest(
    const std::function<void(const CatalogManifest&)>& visit) const {
  for (const auto& [id, manifest] : manifests_) visit(manifest);
}

void Catalog::ForEachChunk(
    const std::function<void(const CatalogChunk&)>& visit) const {
  for (const auto& [key, chunk] : chunks_) visit(chunk);
}

}  // namespace holdfast::cachesvc
