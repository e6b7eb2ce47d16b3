#include "gateway/template/render_deadline.h"

#include "gateway/template/interpreter.h"

namespace holdfast::templates {
namespace {

// Between two attempts, for code that handled the first exception.
constexpr std::chrono::milliseconds kAgain{20};

}  // namespace

RenderDeadline::RenderDeadline(Clock::time_point deadline, PyObject* exception)
    : deadline_(deadline),
      exception_(exception),
      python_thread_(PyThread_get_thread_ident()),
      watcher_([this] { Watch(); }) {}

RenderDeadline::~RenderDeadline() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  changed_.notify_one();
  // The watcher may be waiting for the GIL to find out that we are done.
  PyThreadState* state = PyEval_SaveThread();
  watcher_.join();
  PyEval_RestoreThread(state);
  PyThreadState_SetAsyncExc(python_thread_, nullptr);
}

void RenderDeadline::Watch() {
  Clock::time_point next = deadline_;
  while (!WaitUntil(next)) {
    Interrupt();
    next = Clock::now() + kAgain;
  }
}

bool RenderDeadline::WaitUntil(Clock::time_point time) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, time, [this] { return done_; });
}

void RenderDeadline::Interrupt() {
  // The GIL before the mutex, as in the destructor.
  const GilLock gil;
  const std::lock_guard lock(mutex_);
  if (!done_) PyThreadState_SetAsyncExc(python_thread_, exception_);
}

}  // namespace holdfast::templates
