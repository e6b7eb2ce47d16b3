#include "cachesvc/cachectl/client.h"

#include <utility>
#include <vector>

#include "cachesvc/cachectl/text.h"
#include "fmt/format.h"

namespace holdfast::cachesvc {

CacheClient::CacheClient(std::string path)
    : path_(std::move(path)),
      stub_(v1::CacheAdmin::NewStub(grpc::CreateChannel(
          "unix:" + path_, grpc::InsecureChannelCredentials()))) {}

absl::Status CacheClient::Failed(const grpc::Status& status) const {
  const bool reached =
      status.error_code() != grpc::StatusCode::UNAVAILABLE &&
      status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED;
  if (reached) {
    return {static_cast<absl::StatusCode>(status.error_code()),
            status.error_message()};
  }
  return FromGrpcStatus(
      status, fmt::format("cache service not reachable at {}", path_));
}

absl::Status CacheClient::Verify(
    const v1::CacheVerifyRequest& request,
    const std::function<void(const v1::CacheVerifyProgress&)>& progress) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kLongWork);
  const auto reader = stub_->Verify(&context, request);
  v1::CacheVerifyProgress message;
  while (reader->Read(&message)) progress(message);
  const grpc::Status status = reader->Finish();
  return status.ok() ? absl::OkStatus() : Failed(status);
}

absl::StatusOr<std::string> CacheClient::ResolveKey(const std::string& text) {
  constexpr std::size_t kDigits = 64;
  if (text.size() == kDigits) {
    if (const auto key = Unhex(text)) return *key;
  }
  std::vector<std::string> found;
  for (const auto what :
       {v1::CacheListRequest::ANCHORS, v1::CacheListRequest::SESSIONS}) {
    v1::CacheListRequest request;
    request.set_what(what);
    const auto list = Call(&v1::CacheAdmin::Stub::List, request);
    if (!list.ok()) return list.status();
    for (const v1::CacheEntry& entry : list->entries()) {
      if (Hex(entry.key()).starts_with(text)) found.push_back(entry.key());
    }
  }
  if (!text.empty() && found.size() == 1) return found.front();
  return absl::NotFoundError(fmt::format("\"{}\" is the start of {} keys",
                                         Printable(text), found.size()));
}

}  // namespace holdfast::cachesvc
