// One counter of calls that several fakes share, so that a test can fail, or
// crash the machine at, the k-th call of all of them together.
#ifndef HOLDFAST_SHARED_TESTING_FAULT_POINT_H_
#define HOLDFAST_SHARED_TESTING_FAULT_POINT_H_

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace holdfast::testing {

// What becomes of a call.
struct Fault {
  enum class Kind { kNone, kError, kShort, kCrash };
  Kind kind = Kind::kNone;
  int error = 0;  // an errno, of kError
};

// Thread-safe.
class FaultPoint {
 public:
  // Calls are counted from 0. Only one fault is set at a time.
  void FailAt(std::int64_t k, int error) { Set(k, Fault::Kind::kError, error); }
  // Every call from the k-th on.
  void FailFrom(std::int64_t k, int error) {
    Set(k, Fault::Kind::kError, error);
    const std::lock_guard lock(mutex_);
    from_ = true;
  }
  // A write at or after the k-th call does half its work, once.
  void ShortAt(std::int64_t k) { Set(k, Fault::Kind::kShort, 0); }
  void CrashAt(std::int64_t k) { Set(k, Fault::Kind::kCrash, 0); }
  // Every call whose name begins so.
  void FailCalls(const std::string& prefix, int error) {
    Set(-1, Fault::Kind::kError, error);
    const std::lock_guard lock(mutex_);
    prefix_ = prefix;
  }
  // No fault; the count starts anew.
  void Clear() { Set(-1, Fault::Kind::kNone, 0); }

  // Called by the fakes, once for each call that may fail.
  Fault Next(const std::string& call) {
    const std::lock_guard lock(mutex_);
    const std::int64_t k = calls_++;
    names_.push_back(call);
    if (crashed_) return {Fault::Kind::kCrash, 0};
    if (!prefix_.empty() && call.starts_with(prefix_)) return {kind_, error_};
    if (kind_ == Fault::Kind::kNone || at_ < 0) return {};
    if (k == at_ || (from_ && k > at_)) {
      if (kind_ == Fault::Kind::kCrash) crashed_ = true;
      return {kind_, error_};
    }
    return {};
  }

  // After a crash every call fails until the fakes were rebooted.
  bool crashed() const {
    const std::lock_guard lock(mutex_);
    return crashed_;
  }
  std::int64_t calls() const {
    const std::lock_guard lock(mutex_);
    return calls_;
  }
  // Names of the calls so far, for messages.
  std::string CallName(std::int64_t k) const {
    const std::lock_guard lock(mutex_);
    const auto i = static_cast<std::size_t>(k);
    return i < names_.size() ? names_[i] : "none";
  }

 private:
  void Set(std::int64_t k, Fault::Kind kind, int error) {
    const std::lock_guard lock(mutex_);
    at_ = k;
    kind_ = kind;
    error_ = error;
    from_ = false;
    prefix_.clear();
    crashed_ = false;
    calls_ = 0;
    names_.clear();
  }

  mutable std::mutex mutex_;
  std::int64_t at_ = -1;
  Fault::Kind kind_ = Fault::Kind::kNone;
  int error_ = 0;
  bool from_ = false;
  std::string prefix_;
  bool crashed_ = false;
  std::int64_t calls_ = 0;
  std::vector<std::string> names_;
};

}  // namespace holdfast::testing

#endif  // HOLDFAST_SHARED_TESTING_FAULT_POINT_H_
