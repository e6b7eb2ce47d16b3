#include "cachesvc/store/victim_order.h"

#include <algorithm>
#include <cmath>

namespace holdfast::cachesvc {
namespace {

constexpr double kSecondsADay = 86400;

template <typename Order>
auto FirstFree(const Order& order,
               const std::function<bool(const FileKey&)>& busy) {
  return std::find_if(order.begin(), order.end(), [&](const auto& entry) {
    return !busy || !busy(entry.second);
  });
}

}  // namespace

double AnchorWorth(std::uint64_t hits, std::uint64_t tokens,
                   std::uint64_t bytes, std::uint64_t last_used_s) {
  return std::log2((static_cast<double>(hits) + 1) *
                   static_cast<double>(tokens) /
                   static_cast<double>(std::max<std::uint64_t>(bytes, 1))) +
         static_cast<double>(last_used_s) / kSecondsADay;
}

void VictimOrder::Add(const VictimPlace& place) {
  OfModel& model = models_[{place.kind, place.fingerprint}];
  model.by_use.emplace(place.last_used_s, place.file_key);
  if (place.kind == FileKind::kAnchor) {
    model.by_worth.emplace(place.worth, place.file_key);
  }
}

void VictimOrder::Remove(const VictimPlace& place) {
  const auto model = models_.find({place.kind, place.fingerprint});
  if (model == models_.end()) return;
  model->second.by_use.erase({place.last_used_s, place.file_key});
  model->second.by_worth.erase({place.worth, place.file_key});
  if (model->second.by_use.empty()) models_.erase(model);
}

std::optional<FileKey> VictimOrder::First(
    FileKind kind, const std::optional<Sha256Digest>& attached,
    const std::function<bool(const FileKey&)>& busy) const {
  std::optional<std::pair<std::uint64_t, FileKey>> foreign;
  const OfModel* ours = nullptr;
  for (auto model = models_.lower_bound({kind, Sha256Digest{}});
       model != models_.end() && model->first.first == kind; ++model) {
    if (model->first.second == attached) {
      ours = &model->second;
      continue;
    }
    const auto& by_use = model->second.by_use;
    const auto first = FirstFree(by_use, busy);
    if (first != by_use.end() && (!foreign || *first < *foreign)) {
      foreign = *first;
    }
  }
  if (foreign) return foreign->second;
  if (ours == nullptr) return std::nullopt;
  if (kind == FileKind::kAnchor) {
    const auto first = FirstFree(ours->by_worth, busy);
    if (first == ours->by_worth.end()) return std::nullopt;
    return first->second;
  }
  const auto first = FirstFree(ours->by_use, busy);
  if (first == ours->by_use.end()) return std::nullopt;
  return first->second;
}

}  // namespace holdfast::cachesvc
