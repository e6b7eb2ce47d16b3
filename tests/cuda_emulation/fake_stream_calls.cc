// Streams and events.
#include "tests/cuda_emulation/fake_state.h"

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  HF_ENTER("cudaStreamCreateWithFlags");
  *stream = reinterpret_cast<cudaStream_t>(new char);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  {
    auto& runtime = holdfast::emulation::Runtime::Get();
    const std::lock_guard lock(runtime.mutex);
    runtime.Arrive(stream);
  }
  delete reinterpret_cast<char*>(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  HF_ENTER("cudaStreamSynchronize");
  if (stream == nullptr) runtime.Flush();
  runtime.Arrive(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  HF_ENTER("cudaStreamQuery");
  runtime.Arrive(stream);
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  HF_ENTER("cudaEventCreateWithFlags");
  *event = reinterpret_cast<cudaEvent_t>(new char);
  runtime.event_flags[*event] = flags;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  auto& runtime = holdfast::emulation::Runtime::Get();
  const std::lock_guard lock(runtime.mutex);
  runtime.event_flags.erase(event);
  runtime.never_come.erase(event);
  delete reinterpret_cast<char*>(event);
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) {
  HF_ENTER("cudaEventRecord");
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  HF_ENTER("cudaEventQuery");
  const bool come =
      runtime.device.events_come && !runtime.never_come.contains(event);
  return runtime.Answer(come ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t) {
  HF_ENTER("cudaEventSynchronize");
  return cudaSuccess;
}
