// Every wait between processes, in one table. Nothing waits without one.
#ifndef HOLDFAST_SHARED_DEADLINES_H_
#define HOLDFAST_SHARED_DEADLINES_H_

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace holdfast::deadlines {

using std::chrono::milliseconds;

// The whole attach handshake of engine and cache service.
inline constexpr milliseconds kAttach{5000};
// Between two attempts to attach.
inline constexpr milliseconds kAttachRetry{500};
// The engine asks the cache service where a prompt could be resumed, or which
// lines to store, while a request waits.
inline constexpr milliseconds kLookup{100};
// After a lookup that was too late the cache service is not asked for this
// long: a stopped one costs a request its deadline once, not each time.
inline constexpr milliseconds kLookupPause{1000};
// Emptying a cache: behind a running request, or a folder of files.
inline constexpr milliseconds kCacheClear{30000};
// The gateway reads a session's records before it renders a prompt, or writes
// what it sent before the answer's end is sent.
inline constexpr milliseconds kRecords{500};
// Any control call (status, layout, metrics).
inline constexpr milliseconds kControl{2000};
// The gateway waits this long for an engine that is not there, then answers
// 503 with Retry-After.
inline constexpr milliseconds kEngineAbsent{30000};
// Between two attempts of the gateway to reach the engine.
inline constexpr milliseconds kEngineRetry{250};
// Between two Status polls of an engine that answers.
inline constexpr milliseconds kEnginePoll{1000};
// An engine that answered no Status for this long (stopped, not dead) fails the
// streams that wait for it.
inline constexpr milliseconds kEngineSilent{30000};
// A request that runs gives an event at least this often: each step gives one.
inline constexpr milliseconds kEngineStall{120000};
// A request may wait this long in the queue of an engine that answers.
inline constexpr milliseconds kEngineQueue{1800000};
// A chat template has this long for a prompt, waiting for other renders
// included.
inline constexpr milliseconds kTemplateRender{10000};
// An engine that refuses a request says so within this; after it a stream's
// head is sent, and a refusal can only be an event in the stream.
inline constexpr milliseconds kRefusal{500};
// The model's tokenizer travels and is built within this.
inline constexpr milliseconds kTokenizerLoad{30000};
// SSE comment lines while a prefill runs; clients give up after 10 to 300 s.
inline constexpr milliseconds kSseKeepAlive{5000};
// A client must send its headers, then its body, within this.
inline constexpr milliseconds kHttpRead{30000};
// A client that takes none of its response's bytes for this long is dropped.
inline constexpr milliseconds kHttpWrite{60000};
// An idle keep-alive connection.
inline constexpr milliseconds kHttpIdle{120000};
// Bytes still arriving after an answer that closes the connection are read and
// dropped for this long, so that the client sees the answer and not a reset.
inline constexpr milliseconds kHttpLinger{2000};

// The direct write of one page that the cache service makes at its start.
inline constexpr milliseconds kDiskProbe{30000};
// The engine's start: device memory mapped by a second process, or not.
inline constexpr milliseconds kArenaProbe{20000};
// The cache service maps an engine's device memory: a CUDA context is made.
inline constexpr milliseconds kDeviceMap{15000};
// An engine that stops waits this long for the unmapping: within its call.
inline constexpr milliseconds kDeviceUnmap{1000};
// At its stop it waits this long for a device call that is under way.
inline constexpr milliseconds kDeviceStop{2000};

// Rows copied out of a device's memory. Past it the device does not answer.
inline milliseconds DeviceCopy(std::uint64_t bytes) {
  return milliseconds(5000 + bytes / 500'000);  // 0.5 GB/s
}

// A restore, by what it is predicted to take and what computing the same rows
// would take: never longer than that.
inline milliseconds Restore(milliseconds predicted, milliseconds saved) {
  return std::min(std::max(milliseconds(1000), 3 * predicted), saved);
}

// How long the engine lends blocks of its pool for a store of so many bytes.
inline milliseconds Lease(std::uint64_t bytes) {
  return milliseconds(30000 + bytes / 20'000);  // 20 MB/s
}

// A drain at a planned stop: at least a minute, longer for much to write.
inline milliseconds Drain(std::uint64_t bytes_to_write) {
  const auto writing = milliseconds(bytes_to_write / 300'000);  // 0.3 GB/s
  return std::max(milliseconds(60000), writing);
}

}  // namespace holdfast::deadlines

#endif  // HOLDFAST_SHARED_DEADLINES_H_
