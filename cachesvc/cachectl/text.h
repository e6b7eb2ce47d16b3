// Small texts that cachectl reads and prints.
#ifndef HOLDFAST_CACHESVC_CACHECTL_TEXT_H_
#define HOLDFAST_CACHESVC_CACHECTL_TEXT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "holdfast/v1/cache.pb.h"

namespace holdfast::cachesvc {

std::string Hex(std::string_view bytes);
// Of an even number of hexadecimal digits; nothing for anything else.
std::optional<std::string> Unhex(std::string_view hex);
// Text of another process, safe to print.
std::string Printable(std::string_view text);

// "1.5 GB", of 10^9.
std::string HumanBytes(std::uint64_t bytes);
// "3d 4h", "5m 10s".
std::string HumanSeconds(std::uint64_t seconds);
// "7d", "12h", "30m", "90s" or "90".
std::optional<std::uint64_t> ParseSeconds(std::string_view text);
// "50GB", "1.5gb", "200MB", "4096".
std::optional<std::uint64_t> ParseBytes(std::string_view text);

// "store", "disk", "spill".
std::string_view TierText(v1::Tier tier);
// TIER_UNSPECIFIED for anything else.
v1::Tier ParseTier(std::string_view text);

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_CACHECTL_TEXT_H_
