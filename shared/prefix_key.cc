#include "shared/prefix_key.h"

#include "shared/cache_layout.h"

namespace holdfast {

PrefixKey RootPrefixKey(const Sha256Digest& fingerprint,
                        std::string_view salt) {
  Sha256 sha;
  return sha.Update("holdfast prefix root 1")
      .Update(fingerprint)
      .UpdateField(salt)
      .Finish();
}

PrefixKey ChainPrefixKey(const PrefixKey& parent, std::span<const KeyId> ids) {
  Sha256 sha;
  sha.Update(parent);
  for (KeyId id : ids) sha.UpdateU64(id);
  return sha.Finish();
}

void ExtendPrefixKeys(const PrefixKey& root, std::span<const KeyId> ids,
                      std::vector<PrefixKey>& keys) {
  const std::size_t blocks = ids.size() / kBlockTokens;
  for (std::size_t i = keys.size(); i < blocks; ++i) {
    keys.push_back(ChainPrefixKey(i == 0 ? root : keys[i - 1],
                                  ids.subspan(i * kBlockTokens, kBlockTokens)));
  }
}

}  // namespace holdfast
