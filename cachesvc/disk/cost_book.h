// What engines measured of reading and computing: an engine that starts plans
// with it until it has measured for itself.
#ifndef HOLDFAST_CACHESVC_DISK_COST_BOOK_H_
#define HOLDFAST_CACHESVC_DISK_COST_BOOK_H_

#include <array>
#include <map>
#include <mutex>

#include "cachesvc/index/index.h"
#include "shared/sha256.h"

namespace holdfast::cachesvc {

// Rates; 0: not measured.
struct MeasuredRates {
  double prefill_tokens_per_s = 0;
  std::array<double, 3> read_bytes_per_s{};  // store, disk, spill

  bool operator==(const MeasuredRates&) const = default;
};

// By model (its fingerprint), in the index's meta table. A row that cannot be
// read or written costs a measurement, never more. Thread-safe.
class CostBook {
 public:
  // Smaller changes of every rate are not written again.
  static constexpr double kWorthWriting = 0.1;

  // Null: in memory only. `index` outlives this.
  explicit CostBook(Index* index) : index_(index) {}

  MeasuredRates Get(const Sha256Digest& fingerprint);
  // Rates that are 0 or no rate leave what is known.
  void Put(const Sha256Digest& fingerprint, const MeasuredRates& rates);

 private:
  struct Entry {
    MeasuredRates now;
    MeasuredRates written;
  };
  Entry& Load(const Sha256Digest& fingerprint);  // needs mutex_

  Index* const index_;
  std::mutex mutex_;
  std::map<Sha256Digest, Entry> entries_;  // guarded by mutex_
};

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_DISK_COST_BOOK_H_
