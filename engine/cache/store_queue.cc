#include "engine/cache/store_queue.h"

#include <chrono>
#include <utility>

#include "engine/cache/tier_protos.h"
#include "grpcpp/grpcpp.h"
#include "holdfast/v1/cache.grpc.pb.h"
#include "spdlog/spdlog.h"

namespace holdfast::engine {

StoreQueue::StoreQueue(const attach::AttachClient& client)
    : client_(client), thread_([this] { Run(); }) {}

StoreQueue::~StoreQueue() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    if (calling_ != nullptr) calling_->TryCancel();
  }
  changed_.notify_all();
  thread_.join();
}

void StoreQueue::Add(StoreJob job, std::function<void(StoreOutcome)> done) {
  {
    const std::lock_guard lock(mutex_);
    if (!stopping_ && waiting_.size() < kMostWaiting) {
      waiting_.push_back({std::move(job), std::move(done)});
      changed_.notify_all();
      return;
    }
  }
  done(StoreOutcome::kDropped);
}

void StoreQueue::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    const bool dropped = stopping_;
    lock.unlock();
    next.done(dropped ? StoreOutcome::kDropped : Send(next.job));
    lock.lock();
  }
}

StoreOutcome StoreQueue::Send(const StoreJob& job) {
  const auto session = client_.session();
  if (session == nullptr) return StoreOutcome::kDropped;
  const auto start = std::chrono::steady_clock::now();
  const auto stub = v1::Cache::NewStub(session->channel);
  const v1::StoreRequest request = ToProto(job, session->epoch);
  v1::StoreResponse response;
  grpc::Status status;
  {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + job.deadline);
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return StoreOutcome::kDropped;
      calling_ = &context;
    }
    status = stub->Store(&context, request, &response);
    const std::lock_guard lock(mutex_);
    calling_ = nullptr;
  }
  const StoreOutcome outcome =
      status.ok() ? FromProto(response.outcome()) : StoreOutcome::kFailed;
  spdlog::info(
      "store tier={} rows={} outcome={} reason={} bytes={} ms={} detail=\"{}\"",
      TierName(job.tier), job.ids.size(), StoreOutcomeName(outcome),
      response.reason(), response.bytes_written(),
      std::chrono::duration_cast<std::chrono::milliseconds>(
          std::chrono::steady_clock::now() - start)
          .count(),
      status.ok() ? response.detail() : status.error_message());
  if (response.reason() == "device" && session->device_mapped.exchange(false)) {
    spdlog::warn("arena kind=pinned reason=\"no cuda_ipc any more: {}\"",
                 response.detail());
  }
  return outcome;
}

}  // namespace holdfast::engine
