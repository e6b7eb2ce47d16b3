// Errors of kernels/ and engine/model/, which build on the C++ standard library
// alone. The engine converts them to absl::Status at its edge
// (engine/model_status.h); the codes are a subset of absl's, by name.
#ifndef HOLDFAST_KERNELS_STATUS_H_
#define HOLDFAST_KERNELS_STATUS_H_

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace holdfast::kernels {

enum class StatusCode {
  kOk,
  kInvalidArgument,     // a broken file or configuration; the message names it
  kNotFound,            // a file, tensor or key that is absent
  kUnimplemented,       // well-formed, but nothing here computes it
  kResourceExhausted,   // memory
  kFailedPrecondition,  // this machine or state cannot do it
  kDataLoss,            // a read failed or came short
  kInternal,
};

// Success, or a code with a message that says what failed on which object.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message)
      : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status OkStatus() { return Status(); }
inline Status InvalidArgument(std::string message) {
  return Status(StatusCode::kInvalidArgument, std::move(message));
}
inline Status NotFound(std::string message) {
  return Status(StatusCode::kNotFound, std::move(message));
}
inline Status Unimplemented(std::string message) {
  return Status(StatusCode::kUnimplemented, std::move(message));
}
inline Status ResourceExhausted(std::string message) {
  return Status(StatusCode::kResourceExhausted, std::move(message));
}
inline Status FailedPrecondition(std::string message) {
  return Status(StatusCode::kFailedPrecondition, std::move(message));
}
inline Status DataLoss(std::string message) {
  return Status(StatusCode::kDataLoss, std::move(message));
}
inline Status Internal(std::string message) {
  return Status(StatusCode::kInternal, std::move(message));
}

// A value or the Status that says why there is none. Access to the value of an
// error is a bug of ours and aborts with the message.
template <typename T>
class [[nodiscard]] StatusOr {
 public:
  // Implicit on purpose: functions return either a value or a Status.
  StatusOr(T value) : value_(std::move(value)) {}
  StatusOr(Status status) : status_(std::move(status)) {
    if (status_.ok()) status_ = Internal("StatusOr made from an OK status");
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & { return Checked(), *value_; }
  const T& value() const& { return Checked(), *value_; }
  T&& value() && { return Checked(), std::move(*value_); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  void Checked() const {
    if (value_.has_value()) return;
    std::fprintf(stderr, "value of an error: %s\n", status_.message().c_str());
    std::abort();
  }

  Status status_;
  std::optional<T> value_;
};

}  // namespace holdfast::kernels

#define HF_KERNELS_CONCAT_(a, b) a##b
#define HF_KERNELS_CONCAT(a, b) HF_KERNELS_CONCAT_(a, b)

#define HF_RETURN_IF_ERROR(expression)                      \
  do {                                                      \
    if (auto hf_status_ = (expression); !hf_status_.ok()) { \
      return hf_status_;                                    \
    }                                                       \
  } while (false)

#define HF_ASSIGN_OR_RETURN(declaration, expression)                     \
  HF_ASSIGN_OR_RETURN_(HF_KERNELS_CONCAT(hf_or_, __LINE__), declaration, \
                       expression)
#define HF_ASSIGN_OR_RETURN_(result, declaration, expression) \
  auto result = (expression);                                 \
  if (!result.ok()) return result.status();                   \
  declaration = std::move(result).value()

#endif  // HOLDFAST_KERNELS_STATUS_H_
