#include "cachesvc/cachectl/commands.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <thread>
#include <utility>

#include "cachesvc/cachectl/engine_stats.h"
#include "cachesvc/cachectl/live_session.h"
#include "cachesvc/cachectl/render.h"
#include "cachesvc/cachectl/render_disk.h"
#include "cachesvc/cachectl/text.h"
#include "fmt/format.h"

namespace holdfast::cachesvc {
namespace {

using Stub = v1::CacheAdmin::Stub;

constexpr std::chrono::seconds kWatch{2};

int Print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  return std::fflush(stdout) == 0 ? EXIT_SUCCESS : kExitFailed;
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "%s\n",
               Printable(std::string(status.message())).c_str());
  return kExitFailed;
}

int Usage(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  return kExitUsage;
}

int PrintCount(const CtlOptions& options, const char* name,
               std::uint64_t count) {
  return Print(options.json ? fmt::format("{{\"{}\": {}}}\n", name, count)
                            : fmt::format("{} {}\n", count, name));
}

// Takes `text` when it is not empty; false, with a message, when it is wrong.
template <typename Parse, typename Set>
bool Take(const char* flag, const std::string& text, Parse parse, Set set) {
  if (text.empty()) return true;
  const auto value = parse(text);
  if (!value) {
    Usage(fmt::format("{} {}: not understood", flag, Printable(text)));
    return false;
  }
  set(*value);
  return true;
}

// A bar that is drawn over itself, on a terminal alone.
class Bar {
 public:
  void Draw(std::uint64_t done, std::uint64_t total) const {
    if (!terminal_ || total == 0) return;
    constexpr std::uint64_t kWidth = 40;
    const std::uint64_t filled = done * kWidth / total;
    std::fprintf(stderr, "\r[%s%s] %s/%s", std::string(filled, '#').c_str(),
                 std::string(kWidth - filled, ' ').c_str(),
                 std::to_string(done).c_str(), std::to_string(total).c_str());
    if (done == total) std::fputc('\n', stderr);
  }

 private:
  const bool terminal_ = isatty(STDERR_FILENO) == 1;
};

}  // namespace

int ShowStatus(CacheClient& client, const CtlOptions& options) {
  const auto status = client.Call(&Stub::Status, v1::CacheStatusRequest());
  if (!status.ok()) return Fail(status.status());
  const auto engine = FetchEngineStatus(options.run_dir);
  return Print(options.json ? StatusJson(*status, engine) + "\n"
                            : StatusTable(*status, engine));
}

int ShowStats(CacheClient& client, const CtlOptions& options) {
  for (;;) {
    const auto stats = client.Call(&Stub::Stats, v1::CacheStatsRequest());
    if (!stats.ok()) return Fail(stats.status());
    const auto engine = FetchEngineStats(options.run_dir);
    const int code =
        Print(options.json ? StatsJson(*stats, engine) + "\n"
                           : StatsTable(*stats) + EngineStatsTable(engine));
    if (!options.watch || code != EXIT_SUCCESS) return code;
    std::this_thread::sleep_for(kWatch);
  }
}

int ShowUse(CacheClient& client, const CtlOptions& options) {
  const auto stats = client.Call(&Stub::Stats, v1::CacheStatsRequest());
  if (!stats.ok()) return Fail(stats.status());
  return Print(options.json ? StatsJson(*stats) + "\n" : UseTable(*stats));
}

int List(CacheClient& client, const CtlOptions& options) {
  static const std::map<std::string, v1::CacheListRequest::What> kWhat = {
      {"anchors", v1::CacheListRequest::ANCHORS},
      {"sessions", v1::CacheListRequest::SESSIONS},
      {"chunks", v1::CacheListRequest::CHUNKS},
      {"store", v1::CacheListRequest::STORE}};
  static const std::map<std::string, v1::CacheListRequest::Sort> kSort = {
      {"key", v1::CacheListRequest::BY_KEY},
      {"tokens", v1::CacheListRequest::BY_TOKENS},
      {"bytes", v1::CacheListRequest::BY_BYTES},
      {"hits", v1::CacheListRequest::BY_HITS},
      {"unused", v1::CacheListRequest::BY_UNUSED}};
  v1::CacheListRequest request;
  request.set_what(kWhat.at(options.what));
  request.set_sort(kSort.at(options.sort));
  request.set_limit(options.limit);
  request.set_foreign(options.foreign);
  request.set_session_key(options.session_key);
  const auto list = client.Call(&Stub::List, request);
  if (!list.ok()) return Fail(list.status());
  return Print(options.json ? ListJson(*list) + "\n"
                            : ListTable(*list, options.what == "chunks"));
}

int Show(CacheClient& client, const CtlOptions& options) {
  const auto key = client.ResolveKey(options.keys.front());
  if (!key.ok()) return Fail(key.status());
  v1::CacheShowRequest request;
  request.set_key(*key);
  const auto shown = client.Call(&Stub::Show, request);
  if (!shown.ok()) return Fail(shown.status());
  return Print(options.json ? EntryJson(shown->entry()) + "\n"
                            : EntryText(shown->entry()));
}

int Verify(CacheClient& client, const CtlOptions& options) {
  if (options.all == !options.keys.empty()) {
    return Usage("verify: give KEY... or --all");
  }
  v1::CacheVerifyRequest request;
  request.set_delete_bad(options.delete_bad);
  for (const std::string& text : options.keys) {
    const auto key = client.ResolveKey(text);
    if (!key.ok()) return Fail(key.status());
    request.add_keys(*key);
  }
  std::uint64_t checked = 0;
  std::uint64_t bad = 0;
  const Bar bar;
  const absl::Status status =
      client.Verify(request, [&](const v1::CacheVerifyProgress& progress) {
        ++checked;
        bar.Draw(progress.done(), progress.total());
        if (progress.error().empty()) return;
        ++bad;
        std::fprintf(stderr, "%s: %s\n", Hex(progress.key()).c_str(),
                     Printable(progress.error()).c_str());
      });
  if (!status.ok()) return Fail(status);
  const int code =
      Print(options.json ? fmt::format("{{\"checked\": {}, \"bad\": {}}}\n",
                                       checked, bad)
                         : fmt::format("{} checked, {} bad\n", checked, bad));
  return bad > 0 ? kExitDamaged : code;
}

int Evict(CacheClient& client, const CtlOptions& options) {
  const int ways = !options.keys.empty() + !options.older_than.empty() +
                   !options.bytes.empty();
  if (ways != 1) {
    return Usage("evict: give KEY..., --older-than or --bytes");
  }
  v1::CacheEvictRequest request;
  for (const std::string& text : options.keys) {
    const auto key = client.ResolveKey(text);
    if (!key.ok()) return Fail(key.status());
    request.add_keys(*key);
  }
  request.set_tier(ParseTier(options.tier));
  if (!Take("--older-than", options.older_than, ParseSeconds,
            [&](std::uint64_t s) { request.set_unused_for_s(s); }) ||
      !Take("--bytes", options.bytes, ParseBytes,
            [&](std::uint64_t b) { request.set_bytes(b); })) {
    return kExitUsage;
  }
  const auto gone = client.Call(&Stub::Evict, request, CacheClient::kLongWork);
  if (!gone.ok()) return Fail(gone.status());
  return PrintCount(options, "evicted", gone->entries());
}

int Clear(CacheClient& client, const CtlOptions& options) {
  v1::CacheClearRequest request;
  request.set_tier(ParseTier(options.tier));
  request.set_foreign_only(options.foreign);
  const auto gone = client.Call(&Stub::Clear, request, CacheClient::kLongWork);
  if (!gone.ok()) return Fail(gone.status());
  return PrintCount(options, "cleared", gone->entries());
}

int Pin(CacheClient& client, const CtlOptions& options, bool pinned) {
  const auto key = client.ResolveKey(options.keys.front());
  if (!key.ok()) return Fail(key.status());
  v1::CachePinRequest request;
  request.set_key(*key);
  request.set_pinned(pinned);
  const auto done = client.Call(&Stub::Pin, request);
  return done.ok() ? EXIT_SUCCESS : Fail(done.status());
}

int SetDisk(CacheClient& client, const CtlOptions& options) {
  v1::CacheSetDiskRequest request;
  if (!Take("--budget", options.disk_budget, ParseBytes,
            [&](std::uint64_t b) { request.set_disk_budget_bytes(b); }) ||
      !Take("--spill-budget", options.spill_budget, ParseBytes,
            [&](std::uint64_t b) { request.set_spill_budget_bytes(b); }) ||
      !Take("--ttl", options.ttl, ParseSeconds,
            [&](std::uint64_t s) { request.set_ttl_s(s); }) ||
      !Take("--free", options.free_space, ParseBytes,
            [&](std::uint64_t b) { request.set_free_floor_bytes(b); })) {
    return kExitUsage;
  }
  const auto now = client.Call(&Stub::SetDisk, request, CacheClient::kLongWork);
  if (!now.ok()) return Fail(now.status());
  return Print(
      options.json
          ? fmt::format("{{\"disk_budget_bytes\": {}, "
                        "\"spill_budget_bytes\": {}, \"ttl_s\": {}, "
                        "\"free_floor_bytes\": {}}}\n",
                        now->disk_budget_bytes(), now->spill_budget_bytes(),
                        now->ttl_s(), now->free_floor_bytes())
          : fmt::format("disk {}, spill {}, unused entries go after {}, {} "
                        "stay free\n",
                        HumanBytes(now->disk_budget_bytes()),
                        HumanBytes(now->spill_budget_bytes()),
                        HumanSeconds(now->ttl_s()),
                        HumanBytes(now->free_floor_bytes())));
}

int RebuildIndex(CacheClient& client, const CtlOptions& options) {
  const auto report =
      client.Call(&Stub::RebuildIndex, v1::CacheRebuildIndexRequest(),
                  CacheClient::kLongWork);
  if (!report.ok()) return Fail(report.status());
  return Print(fmt::format(
      fmt::runtime(
          options.json
              ? "{{\"adopted_files\": {}, \"corrupt_files\": {}, "
                "\"incomplete_entries\": {}, \"unreferenced_chunks\": {}, "
                "\"ms\": {}}}\n"
              : "{} files adopted, {} corrupt, {} incomplete entries, {} "
                "chunks "
                "without an entry, {} ms\n"),
      report->adopted_files(), report->corrupt_files(),
      report->incomplete_entries(), report->unreferenced_chunks(),
      report->ms()));
}

int SaveSession(CacheClient& client, const CtlOptions& options) {
  const auto saved = SaveLiveSession(options.run_dir, options.session_key);
  if (!saved.ok()) return Fail(saved.status());
  v1::CacheListRequest request;
  request.set_what(v1::CacheListRequest::SESSIONS);
  request.set_session_key(saved->session_key());
  const auto list = client.Call(&Stub::List, request);
  if (!list.ok()) return Fail(list.status());
  // Several salts may use one session key.
  std::string key;
  for (const v1::CacheEntry& entry : list->entries()) {
    if (entry.end_tokens() == saved->rows_tokens() && entry.pinned()) {
      key = Hex(entry.key());
    }
  }
  return Print(options.json
                   ? fmt::format("{{\"key\": \"{}\", \"tokens\": {}}}\n", key,
                                 saved->rows_tokens())
                   : fmt::format("saved and pinned {}, {} tokens\n", key,
                                 saved->rows_tokens()));
}

}  // namespace holdfast::cachesvc
