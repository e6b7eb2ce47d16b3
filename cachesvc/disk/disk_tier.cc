#include "cachesvc/disk/disk_tier.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <string>
#include <utility>

#include "cachesvc/disk/drive_speed.h"
#include "cachesvc/format/names.h"
#include "cachesvc/restore/file_source.h"
#include "fmt/format.h"
#include "shared/cache_layout.h"
#include "shared/fs/file_system.h"
#include "spdlog/spdlog.h"

namespace holdfast::cachesvc {
namespace {

using std::chrono::duration;
using std::chrono::steady_clock;

// Ages, counters of use, expiry, what the start left over.
constexpr std::chrono::seconds kMaintain{60};
// Of one file's first pages.
constexpr std::chrono::milliseconds kReadMeta{500};
constexpr int kMostTries = 3;  // of that
// Counts of grid lines: 100 bytes each.
constexpr std::size_t kMostLines = 1'000'000;

double MillisecondsSince(steady_clock::time_point start) {
  return duration<double, std::milli>(steady_clock::now() - start).count();
}

void LogSweep(const SweepReport& sweep) {
  spdlog::info(
      "disk sweep rows={} adopted={} temporaries={} tombstones={} "
      "corrupt_rows={} dangling_rows={} corrupt_files={} "
      "incomplete_manifests={} unreferenced_chunks={} unknown_names={} "
      "left_for_later={} from_ledger={} ms={}",
      sweep.rows, sweep.adopted, sweep.temporaries, sweep.tombstones,
      sweep.corrupt_rows, sweep.dangling_rows, sweep.corrupt_files,
      sweep.incomplete_manifests, sweep.unreferenced_chunks,
      sweep.unknown_names, sweep.left_for_later, sweep.from_ledger, sweep.ms);
}

}  // namespace

absl::StatusOr<std::unique_ptr<DiskTier>> DiskTier::Open(
    const DiskOptions& options, std::span<std::byte> staging) {
  OpenStoreOptions open;
  open.store.folder = options.folder;
  open.store.limits = options.limits;
  open.pool.kind = options.io;
  open.pool.fixed_buffers = {staging};
  auto opened = OpenStore(open);
  if (!opened.ok()) return opened.status();
  spdlog::info("disk folder={} io=\"{}\"", options.folder,
               (*opened)->pool->Describe());
  if (!(*opened)->index_was_damaged.empty()) {
    spdlog::error("disk index was damaged and is built anew from the files: {}",
                  (*opened)->index_was_damaged);
  }
  LogSweep((*opened)->store->sweep_report());
  if (const std::string& error = (*opened)->store->sweep_report().ledger_error;
      !error.empty()) {
    spdlog::error("disk ledger: {}", error);
  }
  std::unique_ptr<DiskTier> tier(new DiskTier(options, *std::move(opened)));
  tier->LogWhetherItWrites();
  if (tier->costs_.drive() == 0) tier->MeasureDrive();
  tier->maintainer_ = std::thread([raw = tier.get()] { raw->MaintainLoop(); });
  return tier;
}

DiskTier::DiskTier(const DiskOptions& options,
                   std::unique_ptr<OpenedStore> opened)
    : options_(options),
      opened_(std::move(opened)),
      lines_(*opened_->index, opened_->store->service_clock()),
      costs_(opened_->index.get()),
      writer_(*opened_->store,
              {.bytes_per_second = options.write_bytes_per_s}) {}

DiskTier::~DiskTier() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  if (maintainer_.joinable()) maintainer_.join();
  writer_.Stop();
}

void DiskTier::MeasureDrive() {
  const auto rate =
      MeasureDriveRead(RealFileSystem(), *opened_->pool, options_.folder);
  if (!rate.ok()) {
    spdlog::warn("the drive's speed is not known: {}",
                 rate.status().ToString());
    return;
  }
  spdlog::info("drive measured read_mb_per_s={:.0f}", *rate / 1e6);
  costs_.PutDrive(*rate);
}

void DiskTier::LogWhetherItWrites() {
  std::string reason = store().Use().not_writing;
  if (reason.empty() != logged_not_writing_.empty()) {
    if (reason.empty()) {
      spdlog::info("disk is written to again");
    } else {
      spdlog::warn("disk serves and is not written to: {}", reason);
    }
  }
  logged_not_writing_ = std::move(reason);
}

void DiskTier::MaintainLoop() {
  std::unique_lock lock(mutex_);
  while (!stop_.wait_for(lock, kMaintain, [this] { return stopping_; })) {
    lock.unlock();
    LogWhetherItWrites();
    absl::Status status = store().Maintain();
    if (status.ok()) {
      status = lines_.Prune(store().limits().ttl_s, kMostLines).status();
    }
    if (!status.ok()) {
      spdlog::warn("disk maintenance: {}", std::string(status.message()));
    }
    lock.lock();
  }
}

void DiskTier::Attached(const Sha256Digest& fingerprint,
                        std::uint32_t engine_pid) {
  store().SetAttached(fingerprint);
  const StoreUse use = store().Use();
  const std::lock_guard lock(mutex_);
  foreign_ = use.foreign_manifests > 0 &&
             use.foreign_manifests == use.anchors + use.sessions;
  residents_.clear();
  heirs_.try_emplace(fingerprint, engine_pid);
}

absl::StatusOr<std::size_t> DiskTier::Drained(const Sha256Digest& fingerprint) {
  std::vector<FileKey> residents;
  {
    const std::lock_guard lock(mutex_);
    residents = std::exchange(residents_, {});
  }
  // None too: what an earlier stop left, and nobody asked for, is older.
  if (auto s = store().SetResidents(fingerprint, residents); !s.ok()) return s;
  const std::lock_guard lock(mutex_);
  heirs_.erase(fingerprint);
  return residents.size();
}

absl::StatusOr<std::vector<StoredResident>> DiskTier::TakeResidents(
    const Sha256Digest& fingerprint, std::uint32_t engine_pid,
    Deadline deadline) {
  const auto pass = hand_over_gate_.Enter(deadline);
  if (!pass.ok()) return pass.status();
  const auto keys = store().TakeResidents(fingerprint, deadline);
  if (!keys.ok()) return keys.status();
  HandOver& hand_over = hand_overs_[fingerprint];
  // A stop since then, of which this is what is left.
  if (!keys->empty()) hand_over = HandOver{*keys, 0, 0, {}};
  std::vector<StoredResident> residents;
  {
    const std::lock_guard lock(mutex_);
    const auto heir = heirs_.find(fingerprint);
    if (heir == heirs_.end() || heir->second != engine_pid) {
      hand_overs_.erase(fingerprint);
      return residents;
    }
  }
  while (hand_over.next < hand_over.keys.size()) {
    if (auto s = ReadNext(hand_over, deadline); !s.ok()) return s;
  }
  residents = std::move(hand_over.read);
  hand_overs_.erase(fingerprint);
  return residents;
}

absl::Status DiskTier::ReadNext(HandOver& hand_over, Deadline deadline) {
  const auto now = steady_clock::now();
  if (now >= deadline) {
    return absl::DeadlineExceededError(
        fmt::format("{} of {} session files are read", hand_over.next,
                    hand_over.keys.size()));
  }
  const FileKey& key = hand_over.keys[hand_over.next];
  const auto info = store().ShowManifest(key);
  if (info && Offers(info->kind)) {
    auto meta = store().ReadManifest(key, std::min(deadline, now + kReadMeta));
    if (absl::IsDeadlineExceeded(meta.status()) &&
        ++hand_over.tries < kMostTries) {
      return meta.status();
    }
    if (meta.ok()) {
      hand_over.read.push_back(
          {*std::move(meta), info->file_bytes + info->chunk_bytes});
    } else {
      spdlog::warn("resident {}: {}", ToHex(key), meta.status().ToString());
    }
  }
  hand_over.tries = 0;
  ++hand_over.next;
  return absl::OkStatus();
}

DiskLookup DiskTier::Lookup(const LookupRequest& request) {
  DiskLookup lookup{.candidates = store().Lookup(request)};
  std::erase_if(lookup.candidates, [this](const Candidate& candidate) {
    return !Offers(candidate.kind);
  });
  const std::lock_guard lock(mutex_);
  lookup.foreign = foreign_;
  for (const FileKind kind : {FileKind::kAnchor, FileKind::kSession}) {
    if (Offers(kind)) ++UseOf(kind).lookups;
  }
  return lookup;
}

std::vector<std::uint64_t> DiskTier::Admit(const AdmitRequest& request) {
  if (!options_.disk_cache) return {};
  auto lines = PlanLines(request);
  if (lines.ok()) return *std::move(lines);
  spdlog::warn("disk admission: {}", std::string(lines.status().message()));
  return {};
}

absl::StatusOr<std::vector<std::uint64_t>> DiskTier::PlanLines(
    const AdmitRequest& request) {
  const std::uint64_t tokens = request.block_keys.size() * kBlockTokens;
  const std::uint64_t grid = request.grid_tokens;
  if (grid == 0 || grid % kBlockTokens != 0) {
    return absl::InvalidArgumentError("a grid that is no multiple of a block");
  }
  std::vector<PrefixKey> keys;
  for (std::uint64_t line = grid; line <= tokens; line += grid) {
    keys.push_back(request.block_keys[line / kBlockTokens - 1]);
  }
  AdmissionRequest admission{.prompt_tokens = tokens,
                             .grid_tokens = grid,
                             .resume_position = request.resumed_at,
                             .opening_message = {}};
  if (tokens >= options_.admission.min_tokens && request.head > 0 &&
      sessions_.Add(SessionId(request.root, request.session_key))) {
    admission.opening_message = request.head;
  }
  const auto rows = lines_.Get(keys);
  if (!rows.ok()) return rows.status();
  std::vector<LineState> lines;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    lines.push_back(
        {.row = (*rows)[i],
         .next = i + 1 < keys.size() ? LineChild(keys[i + 1]) : 0,
         .has_anchor =
             store().ShowManifest(AnchorFileKey(keys[i])).has_value()});
  }
  auto planned = PlanAnchors(options_.admission, admission, lines);
  if (auto s = lines_.Note(keys, admission); !s.ok()) return s;
  return planned;
}

absl::StatusOr<std::unique_ptr<PieceSource>> DiskTier::OpenRestore(
    FileKind kind, const RestoreRequest& request, Deadline deadline) {
  if (!Offers(kind)) return absl::NotFoundError("the tier is off");
  return FileSource::Open(store(), request, deadline);
}

void DiskTier::NoteHit(FileKind kind, const FileKey& manifest, bool touch,
                       std::uint64_t tokens, std::uint64_t bytes, double ms) {
  if (touch) store().NoteUse(manifest);
  const std::lock_guard lock(mutex_);
  DiskUse& use = UseOf(kind);
  ++use.hits;
  use.hit_tokens += tokens;
  use.hit_bytes += bytes;
  use.hit_ms += ms;
}

StoreAnswer DiskTier::Store(LeasedStore store) {
  const FileKind kind = store.kind;
  if (!Offers(kind)) {
    return {.reason = "no_tier", .detail = "the tier is off"};
  }
  const auto start = steady_clock::now();
  const Deadline deadline = store.deadline;
  const bool resident = store.resident;
  const bool pinned = store.pinned;
  auto leased = LeasedWrite::Make(std::move(store));
  if (!leased.ok()) return Refused(leased.status());
  // Kept until the writer is done with it, also when nobody waits any more.
  const std::shared_ptr<LeasedWrite> write = *std::move(leased);
  const auto promise =
      std::make_shared<std::promise<absl::StatusOr<WriteResult>>>();
  std::future<absl::StatusOr<WriteResult>> written = promise->get_future();
  WriteJob job{.write = write->write(),
               .key_ids = write->key_ids(),
               .done = [promise, write](const absl::StatusOr<WriteResult>& r) {
                 promise->set_value(r);
               }};
  (void)(kind == FileKind::kSession ? writer_.Spill(std::move(job))
                                    : writer_.Offer(std::move(job)));
  StoreAnswer answer = Wait(written, deadline);
  if (!answer.file_key) return answer;
  if (pinned) {
    if (auto s = this->store().SetPinned(*answer.file_key, true); !s.ok()) {
      return Refused(s);
    }
  }
  const std::lock_guard lock(mutex_);
  foreign_ = false;
  if (resident) residents_.push_back(*answer.file_key);
  DiskUse& use = UseOf(kind);
  if (answer.outcome == StoreAnswer::Outcome::kStored) ++use.stores;
  use.written_bytes += answer.bytes_written;
  use.write_ms += MillisecondsSince(start);
  return answer;
}

StoreAnswer DiskTier::Wait(std::future<absl::StatusOr<WriteResult>>& written,
                           Deadline deadline) {
  if (written.wait_until(deadline) != std::future_status::ready) {
    return Refused(absl::DeadlineExceededError("the writer is behind"));
  }
  const auto result = written.get();
  if (!result.ok()) return Refused(result.status());
  return {.outcome = result->was_there ? StoreAnswer::Outcome::kWasThere
                                       : StoreAnswer::Outcome::kStored,
          .bytes_written = result->bytes_written,
          .end_position = result->end_position,
          .file_key = result->file_key};
}

StoreAnswer DiskTier::Refused(const absl::Status& status) const {
  StoreAnswer answer{.reason = "io_error",
                     .detail = std::string(status.message())};
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted:
      answer.reason =
          store().Use().not_writing.empty() ? "budget" : "free_space";
      break;
    case absl::StatusCode::kAborted:
      answer.reason = "lease_lost";
      break;
    case absl::StatusCode::kDeadlineExceeded:
      answer.reason = "deadline";
      break;
    case absl::StatusCode::kInvalidArgument:
      answer.reason = "invalid";
      break;
    default:
      break;
  }
  return answer;
}

std::uint64_t DiskTier::FreeBytes() const {
  return RealFileSystem().FreeBytes(options_.folder).value_or(0);
}

DiskUse DiskTier::use(FileKind kind) const {
  const std::lock_guard lock(mutex_);
  return use_[kind == FileKind::kSession ? 1 : 0];
}

}  // namespace holdfast::cachesvc
