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

struct Rates {
  double prefill = kFirstPrefillTokensPerS;  // tokens a second
  // Bytes a second.
  std::array<double, kTiers> read = {kFirstReadBytesPerS, kFirstReadBytesPerS,
                                     kFirstReadBytesPerS};
};

class RatedCosts : public PlannerCosts {
 public:
  explicit RatedCosts(const Rates& rates) : rates_(rates) {}
  double ReadSeconds(Tier tier, std::uint64_t bytes) const override {
    return static_cast<double>(bytes) /
           rates_.read[static_cast<std::size_t>(tier)];
  }
  double PrefillSeconds(int from, int to) const override {
    return (to - from) / rates_.prefill;
  }
  void MeasuredRead(Tier, std::uint64_t, double) override {}
  void MeasuredPrefill(int, double) override {}

 protected:
  Rates rates_;
};

class MeasuredCosts final : public RatedCosts {
 public:
  MeasuredCosts() : RatedCosts(Rates{}) {}
  void MeasuredRead(Tier tier, std::uint64_t bytes, double seconds) override {
    if (bytes < kLeastBytes || seconds <= 0) return;
    const auto i = static_cast<std::size_t>(tier);
    Average(rates_.read[i], static_cast<double>(bytes) / seconds,
            read_known_[i]);
  }
  void MeasuredPrefill(int rows, double seconds) override {
    if (rows < kLeastRows || seconds <= 0) return;
    Average(rates_.prefill, rows / seconds, prefill_known_);
  }

 private:
  static void Average(double& rate, double now, bool& known) {
    rate = known ? (1 - kNewest) * rate + kNewest * now : now;
    known = true;
  }

  std::array<bool, kTiers> read_known_{};
  bool prefill_known_ = false;
};

}  // namespace

std::unique_ptr<PlannerCosts> MakeMeasuredCosts() {
  return std::make_unique<MeasuredCosts>();
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
  Rates rates;
  const auto take = [&](const char* name, double unit, double& rate) {
    const auto found = parts.find(name);
    if (found == parts.end()) return false;
    rate = found->second * unit;
    parts.erase(found);
    return true;
  };
  bool all = take("prefill", 1, rates.prefill);
  for (int i = 0; i < kTiers; ++i) {
    all = take(TierName(static_cast<Tier>(i)), kMega, rates.read[i]) && all;
  }
  if (!all || !parts.empty()) {
    return absl::InvalidArgumentError(
        "needs prefill, store, disk and spill, and nothing else");
  }
  return std::make_unique<RatedCosts>(rates);
}

}  // namespace holdfast::engine
