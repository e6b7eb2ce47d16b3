// Stops Python code that runs too long, without tracing it.
#ifndef HOLDFAST_GATEWAY_TEMPLATE_RENDER_DEADLINE_H_
#define HOLDFAST_GATEWAY_TEMPLATE_RENDER_DEADLINE_H_

#include <Python.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace holdfast::templates {

// While it lives, Python code of the constructing thread gets `exception` once
// `deadline` has passed, again and again until it lets go. A second thread
// waits and sets the exception; the interpreter raises it between two
// bytecodes, so a single long operation in C is not interrupted.
//
// The GIL is held when it is made and when it goes (and given up meanwhile in
// the destructor). No exception is left pending afterwards.
class RenderDeadline {
 public:
  using Clock = std::chrono::steady_clock;

  // `exception` is a class derived from BaseException; borrowed.
  RenderDeadline(Clock::time_point deadline, PyObject* exception);
  RenderDeadline(const RenderDeadline&) = delete;
  RenderDeadline& operator=(const RenderDeadline&) = delete;
  ~RenderDeadline();

 private:
  void Watch();
  bool WaitUntil(Clock::time_point time);  // true: done
  void Interrupt();

  const Clock::time_point deadline_;
  PyObject* const exception_;
  const unsigned long python_thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;  // guarded by mutex_; set under the GIL
  std::thread watcher_;
};

}  // namespace holdfast::templates

#endif  // HOLDFAST_GATEWAY_TEMPLATE_RENDER_DEADLINE_H_
