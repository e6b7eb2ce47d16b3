// The process's one CPython. Internal to gateway/template.
#ifndef HOLDFAST_GATEWAY_TEMPLATE_INTERPRETER_H_
#define HOLDFAST_GATEWAY_TEMPLATE_INTERPRETER_H_

#include <Python.h>

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/status/statusor.h"

namespace holdfast::templates {

// Holds the GIL; usable on any thread.
class GilLock {
 public:
  GilLock() : state_(PyGILState_Ensure()) {}
  GilLock(const GilLock&) = delete;
  GilLock& operator=(const GilLock&) = delete;
  ~GilLock() { PyGILState_Release(state_); }

 private:
  const PyGILState_STATE state_;
};

// Python's objects are strong references and stay for the life of the process.
class Interpreter {
 public:
  // Starts it on the first call; every later one gives the same answer. CPython
  // cannot be started twice and does not stop cleanly, so it is never stopped.
  static absl::StatusOr<Interpreter*> Get();

  PyObject* compile_template() const { return compile_template_; }
  PyObject* render() const { return render_; }
  PyObject* render_error() const { return render_error_; }
  PyObject* render_timeout() const { return render_timeout_; }

  // One render at a time: they would only take turns on the GIL, and the
  // memory budget counts for one. False when `deadline` passes first. Call
  // without the GIL.
  bool Acquire(std::chrono::steady_clock::time_point deadline);
  void Release();

 private:
  Interpreter() = default;
  static absl::StatusOr<Interpreter*> Start();
  absl::Status LoadRenderer();

  PyObject* compile_template_ = nullptr;
  PyObject* render_ = nullptr;
  PyObject* render_error_ = nullptr;
  PyObject* render_timeout_ = nullptr;
  std::mutex mutex_;
  std::condition_variable released_;
  bool busy_ = false;
};

}  // namespace holdfast::templates

#endif  // HOLDFAST_GATEWAY_TEMPLATE_INTERPRETER_H_
