// Where a prompt could be resumed from the disk.
#ifndef HOLDFAST_CACHESVC_STORE_CANDIDATE_H_
#define HOLDFAST_CACHESVC_STORE_CANDIDATE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "cachesvc/format/meta.h"
#include "shared/prefix_key.h"

namespace holdfast::cachesvc {

struct LookupRequest {
  Sha256Digest fingerprint{};
  PrefixKey root{};
  // Of every whole block of the prompt, ascending.
  std::span<const PrefixKey> block_keys;
  std::size_t most = 64;
};

struct Candidate {
  FileKind kind = FileKind::kAnchor;  // kAnchor: disk tier; kSession: spill
  FileKey file_key{};
  std::uint64_t position = 0;
  StateKind state = StateKind::kLine;
  Provenance provenance = Provenance::kGrid;
  // Rows at or above it are `session`; kNoTaint: none.
  std::uint64_t taint = kNoTaint;
  std::uint64_t bytes = 0;  // to read: state and chunks below the position
  // Key ids from the prompt's last whole block up to the position. The keys say
  // nothing of them: the caller compares them with its prompt's and drops the
  // candidate when one differs or is not there.
  std::vector<KeyId> tail;
  Sha256Digest session_id{};  // of a session
  std::uint64_t sequence = 0;
};

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_STORE_CANDIDATE_H_
