// Names of cached prefixes: SHA-256 chained over blocks of key ids. A key is a
// hint: whoever finds a block by it compares the key ids one by one.
//
// The bytes hashed are part of file formats:
//   root     = SHA-256("holdfast prefix root 1" fingerprint u64(salt size)
//   salt) key(i)   = SHA-256(key(i-1) u64(id) ...)        ids little-endian
#ifndef HOLDFAST_SHARED_PREFIX_KEY_H_
#define HOLDFAST_SHARED_PREFIX_KEY_H_

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "shared/sha256.h"

namespace holdfast {

// A token id, or an id made from a digest where a token alone does not say what
// its row depends on (images).
using KeyId = std::uint64_t;

using PrefixKey = Sha256Digest;

// The digest is uniform, so its first bytes are a hash.
struct PrefixKeyHash {
  std::size_t operator()(const PrefixKey& key) const {
    std::size_t hash;
    std::memcpy(&hash, key.data(), sizeof(hash));
    return hash;
  }
};

PrefixKey RootPrefixKey(const Sha256Digest& fingerprint, std::string_view salt);

// `ids` are those of one whole block (kBlockTokens of them), or fewer for the
// last, partial block of a session.
PrefixKey ChainPrefixKey(const PrefixKey& parent, std::span<const KeyId> ids);

// Extends `keys` so that it holds the key of every whole block of `ids`;
// entries already there must be those of the same ids.
void ExtendPrefixKeys(const PrefixKey& root, std::span<const KeyId> ids,
                      std::vector<PrefixKey>& keys);

}  // namespace holdfast

#endif  // HOLDFAST_SHARED_PREFIX_KEY_H_
