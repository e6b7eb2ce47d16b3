#include "engine/service/generate_stream.h"

#include <utility>

#include "engine/service/convert.h"

namespace holdfast::engine {
namespace {

std::size_t TokenBytesEstimate(const OutputToken& token) {
  return 16 + (token.logprobs ? 12 * token.logprobs->top.size() : 0);
}

}  // namespace

// Lives until gRPC says OnDone, which comes after the end and every write.
class GenerateStream::Reactor final : public GenerateReactor {
 public:
  Reactor(std::function<void()> on_cancel, std::shared_ptr<GenerateStream> sink)
      : on_cancel_(std::move(on_cancel)), sink_(std::move(sink)) {}

  void OnWriteDone(bool ok) override { sink_->OnWriteDone(ok); }
  void OnCancel() override { on_cancel_(); }
  void OnDone() override { delete this; }

 private:
  const std::function<void()> on_cancel_;
  const std::shared_ptr<GenerateStream> sink_;
};

GenerateReactor* GenerateStream::Open(
    std::function<void()> on_cancel,
    const std::shared_ptr<GenerateStream>& sink) {
  auto* reactor = new Reactor(std::move(on_cancel), sink);
  std::lock_guard lock(sink->mutex_);
  sink->reactor_ = reactor;
  return reactor;
}

void GenerateStream::OnRefused(const Refusal& refusal) {
  v1::GenerateEvent event;
  ToProto(refusal, event.mutable_refused());
  Push(std::move(event), true);
}

void GenerateStream::OnProgress(int done, int total) {
  v1::GenerateEvent event;
  event.mutable_progress()->set_done_tokens(done);
  event.mutable_progress()->set_total_tokens(total);
  Push(std::move(event), false);
}

void GenerateStream::OnStarted(const CacheReport& cache, const Timing& timing) {
  v1::GenerateEvent event;
  v1::Started* started = event.mutable_started();
  ToProto(cache, started->mutable_cache());
  started->set_queue_ms(timing.queue_ms);
  started->set_prefill_ms(timing.prefill_ms);
  Push(std::move(event), false);
}

bool GenerateStream::OnToken(const OutputToken& token) {
  v1::GenerateEvent event;
  ToProto(token, event.mutable_tokens()->add_tokens());
  {
    std::lock_guard lock(mutex_);
    if (pending_bytes_ > kMaxPendingBytes) return false;
    pending_bytes_ += TokenBytesEstimate(token);
  }
  Push(std::move(event), false);
  return true;
}

void GenerateStream::OnFinished(const Result& result) {
  v1::GenerateEvent event;
  ToProto(result, event.mutable_finished());
  Push(std::move(event), true);
}

void GenerateStream::Push(v1::GenerateEvent event, bool last) {
  std::unique_lock lock(mutex_);
  last_taken_ = last;
  v1::GenerateEvent* newest = pending_.empty() ? nullptr : &pending_.back();
  if (broken_) {
    pending_bytes_ = 0;
  } else if (newest && newest->has_progress() && event.has_progress()) {
    *newest = std::move(event);
  } else if (newest && newest->has_tokens() && event.has_tokens()) {
    newest->mutable_tokens()->MergeFrom(event.tokens());
  } else {
    pending_.push_back(std::move(event));
  }
  Advance(std::move(lock));
}

void GenerateStream::OnWriteDone(bool ok) {
  std::unique_lock lock(mutex_);
  writing_ = false;
  if (!ok) {
    broken_ = true;
    pending_.clear();
    pending_bytes_ = 0;
  }
  Advance(std::move(lock));
}

void GenerateStream::Advance(std::unique_lock<std::mutex> lock) {
  if (writing_ || reactor_ == nullptr) return;
  if (!pending_.empty()) {
    current_ = std::move(pending_.front());
    pending_.pop_front();
    if (current_.has_tokens()) pending_bytes_ = 0;
    writing_ = true;
    // Without the lock: gRPC may call back from here. The reactor lives until
    // this write is done.
    Reactor* const reactor = reactor_;
    lock.unlock();
    reactor->StartWrite(&current_);
    return;
  }
  if (!last_taken_) return;
  Reactor* const reactor = std::exchange(reactor_, nullptr);
  const bool broken = broken_;
  lock.unlock();
  reactor->Finish(
      broken ? grpc::Status(grpc::StatusCode::CANCELLED, "the client has gone")
             : grpc::Status::OK);
}

}  // namespace holdfast::engine
