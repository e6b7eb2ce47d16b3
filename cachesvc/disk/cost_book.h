// What engines measured of reading and computing: an engine that starts plans
// with it until it has measured for itself.
#ifndef HOLDFAST_CACHESVC_DISK_COST_BOOK_H_
#define HOLDFAST_CACHESVC_DISK_COST_BOOK_H_

#include <array>
#include <map>
#include <mutex>
#include <optional>

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
// read or written costs a measurement, never more. Thread-safe; lookups ask it,
// so nobody waits for another's read or write of the index.
class CostBook {
 public:
  // Smaller changes of every rate are not written again.
  static constexpr double kWorthWriting = 0.1;

  // Null: in memory only. `index` outlives this.
  explicit CostBook(Index* index) : index_(index) {}

  // A disk or spill that was not measured with that model reads as the drive
  // does.
  MeasuredRates Get(const Sha256Digest& fingerprint);
  // Rates that are 0 or no rate leave what is known.
  void Put(const Sha256Digest& fingerprint, const MeasuredRates& rates);

  // Of the folder's drive, bytes a second; 0: not measured.
  double drive();
  void PutDrive(double read_bytes_per_s);

 private:
  struct Entry {
    MeasuredRates now;
    MeasuredRates written;
  };
  // What an earlier service wrote, once.
  void Load(const Sha256Digest& fingerprint);

  Index* const index_;
  std::mutex mutex_;                       // never held over I/O
  std::map<Sha256Digest, Entry> entries_;  // guarded by mutex_
  std::optional<double> drive_;            // guarded by mutex_; when it is read
};

}  // namespace holdfast::cachesvc

#endif  // HOLDFAST_CACHESVC_DISK_COST_BOOK_H_
