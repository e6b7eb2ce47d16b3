#include "engine/cache/planner_costs.h"

#include <cmath>
#include <cstdlib>
#include <map>
#include <sstream>

#include "fmt/format.h"

namespace holdfast::engine {
namespace {

constexpr double kMega = 1e6;
// Weight of the newest measurement.
constexpr double kNewest = 0.25;
// Before anything was measured.
constexpr double kFirstReadBytesPerS = 500 * kMega;
constexpr double kFirstPrefillTokensPerS = 1000;
// Shorter ones say more of calls and waits than of bytes and rows.
constexpr std::uint64_t kLeastBytes = std::uint64_t{4} << 20;
constexpr int kLeastRows = 16;

class RatedCosts : public PlannerCosts {
 public:
  explicit RatedCosts(const PlannerRates& rates) : rates_(rates) {}
  double ReadSeconds(Tier tier, std::uint64_t bytes) const override {
    return static_cast<double>(bytes) /
           rates_.read_bytes[static_cast<std::size_t>(tier)];
  }
  double PrefillSeconds(int from, int to) const override {
    return (to - from) / rates_.prefill_tokens;
  }
  void MeasuredRead(Tier, std::uint64_t, double) override {}
  void MeasuredPrefill(int, double) override {}
  PlannerRates Measured() const override { return {}; }
  void Remember(const PlannerRates&) override {}
  PlannerRates Used() const override { return rates_; }

 protected:
  PlannerRates rates_;
};

PlannerRates FirstRates(const PlannerRates& first) {
  PlannerRates rates = first;
  if (rates.prefill_tokens <= 0) rates.prefill_tokens = kFirstPrefillTokensPerS;
  for (double& read : rates.read_bytes) {
    if (read <= 0) read = kFirstReadBytesPerS;
  }
  return rates;
}

class MeasuredCosts final : public RatedCosts {
 public:
  explicit MeasuredCosts(const PlannerRates& first)
      : RatedCosts(FirstRates(first)) {}
  void MeasuredRead(Tier tier, std::uint64_t bytes, double seconds) override {
    if (bytes < kLeastBytes || seconds <= 0) return;
    const auto i = static_cast<std::size_t>(tier);
    Average(rates_.read_bytes[i], known_.read_bytes[i],
            static_cast<double>(bytes) / seconds);
    if (tier == Tier::kStore) return;
    // Both are files of one drive: what was measured of one holds for the
    // other, and chance does not choose between copies of the same rows.
    const auto other = static_cast<std::size_t>(
        tier == Tier::kDisk ? Tier::kSpill : Tier::kDisk);
    rates_.read_bytes[other] = rates_.read_bytes[i];
    known_.read_bytes[other] = known_.read_bytes[i];
  }
  void MeasuredPrefill(int rows, double seconds) override {
    if (rows < kLeastRows || seconds <= 0) return;
    Average(rates_.prefill_tokens, known_.prefill_tokens, rows / seconds);
  }
  PlannerRates Measured() const override { return known_; }
  void Remember(const PlannerRates& rates) override {
    const auto take = [](double& used, double& known, double remembered) {
      if (known == 0 && remembered > 0) used = known = remembered;
    };
    take(rates_.prefill_tokens, known_.prefill_tokens, rates.prefill_tokens);
    for (int i = 0; i < kTiers; ++i)
      take(rates_.read_bytes[i], known_.read_bytes[i], rates.read_bytes[i]);
  }

 private:
  static void Average(double& used, double& known, double now) {
    used = known == 0 ? now : (1 - kNewest) * known + kNewest * now;
    known = used;
  }

  PlannerRates known_;  // as rates_ where something was measured, else 0
};

}  // namespace

std::unique_ptr<PlannerCosts> MakeMeasuredCosts(const PlannerRates& first) {
  return std::make_unique<MeasuredCosts>(first);
}

absl::StatusOr<std::unique_ptr<PlannerCosts>> ParsePlannerCosts(
    const std::string& text) {
  std::map<std::string, double> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) {
    const std::size_t at = part.find('=');
    const std::string number =
        at == std::string::npos ? "" : part.substr(at + 1);
    char* end = nullptr;
    const double value = std::strtod(number.c_str(), &end);
    if (number.empty() || *end != '\0' || !std::isfinite(value) || value <= 0) {
      return absl::InvalidArgumentError(
          fmt::format("\"{}\": must be NAME=NUMBER above 0", part));
    }
    parts[part.substr(0, at)] = value;
  }
  PlannerRates rates;
  const auto take = [&](const char* name, double unit, double& rate) {
    const auto found = parts.find(name);
    if (found == parts.end()) return false;
    rate = found->second * unit;
    parts.erase(found);
    return true;
  };
  bool all = take("prefill", 1, rates.prefill_tokens);
  for (int i = 0; i < kTiers; ++i) {
    all =
        take(TierName(static_cast<Tier>(i)), kMega, rates.read_bytes[i]) && all;
  }
  if (!all || !parts.empty()) {
    return absl::InvalidArgumentError(
        "needs prefill, store, disk and spill, and nothing else");
  }
  return std::make_unique<RatedCosts>(rates);
}

}  // namespace holdfast::engine
