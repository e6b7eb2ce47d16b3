#include "cachesvc/cachectl/text.h"

#include <array>
#include <charconv>
#include <cmath>
#include <iterator>

#include "fmt/format.h"

namespace holdfast::cachesvc {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};
constexpr std::array<Unit, 5> kBytes = {
    {{"B", 1}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}}};
constexpr std::array<Unit, 4> kSeconds = {
    {{"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}}};

bool SameLetters(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if ((a[i] | 0x20) != (b[i] | 0x20)) return false;
  }
  return true;
}

template <std::size_t N>
std::optional<std::uint64_t> Parse(std::string_view text,
                                   const std::array<Unit, N>& units) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || !std::isfinite(value) || value < 0) return {};
  const std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  double factor = unit.empty() ? 1 : 0;
  for (const Unit& known : units) {
    if (SameLetters(unit, known.name)) factor = known.factor;
  }
  constexpr double kMost = 1e18;
  if (factor == 0 || value * factor > kMost) return {};
  return static_cast<std::uint64_t>(value * factor);
}

int Digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

}  // namespace

std::string Hex(std::string_view bytes) {
  std::string hex;
  for (unsigned char byte : bytes)
    fmt::format_to(std::back_inserter(hex), "{:02x}", byte);
  return hex;
}

std::optional<std::string> Unhex(std::string_view hex) {
  if (hex.size() % 2 != 0) return {};
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    const int high = Digit(hex[i]);
    const int low = Digit(hex[i + 1]);
    if (high < 0 || low < 0) return {};
    bytes.push_back(static_cast<char>(high * 16 + low));
  }
  return bytes;
}

std::string Printable(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) c = '?';
  }
  return out;
}

std::string HumanBytes(std::uint64_t bytes) {
  std::size_t unit = 0;
  double value = static_cast<double>(bytes);
  while (unit + 1 < kBytes.size() && value >= 1000) {
    value /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes)
                   : fmt::format("{:.1f} {}", value, kBytes[unit].name);
}

std::string HumanSeconds(std::uint64_t seconds) {
  if (seconds < 60) return fmt::format("{}s", seconds);
  if (seconds < 3600) return fmt::format("{}m {}s", seconds / 60, seconds % 60);
  if (seconds < 86400) {
    return fmt::format("{}h {}m", seconds / 3600, seconds / 60 % 60);
  }
  return fmt::format("{}d {}h", seconds / 86400, seconds / 3600 % 24);
}

std::optional<std::uint64_t> ParseSeconds(std::string_view text) {
  return Parse(text, kSeconds);
}

std::optional<std::uint64_t> ParseBytes(std::string_view text) {
  return Parse(text, kBytes);
}

std::string_view TierText(v1::Tier tier) {
  switch (tier) {
    case v1::TIER_STORE:
      return "store";
    case v1::TIER_DISK:
      return "disk";
    case v1::TIER_SPILL:
      return "spill";
    default:
      return "";
  }
}

v1::Tier ParseTier(std::string_view text) {
  for (const v1::Tier tier : {v1::TIER_STORE, v1::TIER_DISK, v1::TIER_SPILL}) {
    if (text == TierText(tier)) return tier;
  }
  return v1::TIER_UNSPECIFIED;
}

}  // namespace holdfast::cachesvc
