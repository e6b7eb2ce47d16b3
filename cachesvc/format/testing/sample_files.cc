#include "cachesvc/format/testing/sample_files.h"

#include <cstring>
#include <span>
#include <utility>

#include "cachesvc/format/names.h"

namespace holdfast::cachesvc::testing {
namespace {

constexpr std::uint64_t kLength = 300;

Sha256Digest Digest(const char* text) { return Sha256().Update(text).Finish(); }

std::vector<KeyId> Ids(std::uint64_t first, std::uint64_t end) {
  std::vector<KeyId> ids;
  for (std::uint64_t i = first; i < end; ++i) {
    // One row of an image: an id that no token has.
    ids.push_back(i == 100 ? 0xfedcba9876543210 : 1000 + i * i);
  }
  return ids;
}

PrefixKey Root() { return RootPrefixKey(Digest("fingerprint"), "salt"); }
PrefixKey LineKey() { return ChainPrefixKey(Root(), Ids(0, kBlockTokens)); }
PrefixKey EndKey() {
  return ChainPrefixKey(LineKey(), Ids(kBlockTokens, kLength));
}

void Fill(AlignedBuffer& buffer, std::size_t bytes, unsigned seed) {
  for (std::size_t i = 0; i < bytes; ++i) {
    buffer.data()[i] = static_cast<std::byte>((i * 31 + seed) >> 1);
  }
}

FileMeta Common(FileKind kind) {
  FileMeta meta;
  meta.kind = kind;
  meta.fingerprint = Digest("fingerprint");
  meta.layout = SampleLayout();
  meta.parent_key = Root();
  return meta;
}

SampleFile Finish(std::string name, FileMeta meta, AlignedBuffer payload) {
  meta.file_key = FileKeyOf(meta);
  meta.payload_bytes = payload.size();
  const std::span<const std::byte> parts[] = {payload.span()};
  meta.piece_crcs = PieceCrcs(parts);
  return {std::move(name), std::move(meta), std::move(payload)};
}

ChunkRef Reference(SampleFile sample) {
  EncodeMeta(sample.meta);
  return {sample.meta.file_key, sample.meta.prefix_key,
          sample.meta.end_position, sample.meta.file_bytes()};
}

SampleFile SampleTail() {
  FileMeta meta = Common(FileKind::kChunk);
  meta.first_position = kBlockTokens;
  meta.end_position = kLength;
  meta.parent_key = LineKey();
  meta.prefix_key = EndKey();
  meta.provenance = Provenance::kSession;
  meta.key_ids = Ids(kBlockTokens, kLength);
  AlignedBuffer payload(meta.layout.BlockBytes());
  Fill(payload, 44 * 8, 5);
  const std::byte* blocks[] = {payload.data()};
  meta.view_sums = ViewSums(meta.layout, blocks);
  return Finish("tail", std::move(meta), std::move(payload));
}

}  // namespace

CacheLayout SampleLayout() {
  CacheLayout layout;
  layout.views = {{"K", 8, 2}, {"V", 4, 1}};
  layout.sections = {{"h_last", 100}, {"gdn.S", 40}};
  layout.grid_tokens = 256;
  return layout;
}

SampleFile SampleChunk() {
  FileMeta meta = Common(FileKind::kChunk);
  meta.end_position = kBlockTokens;
  meta.prefix_key = LineKey();
  meta.key_ids = Ids(0, kBlockTokens);
  AlignedBuffer payload(meta.layout.BlockBytes());
  Fill(payload, meta.layout.RowBytes() * kBlockTokens, 1);
  const std::byte* blocks[] = {payload.data()};
  meta.view_sums = ViewSums(meta.layout, blocks);
  return Finish("chunk", std::move(meta), std::move(payload));
}

SampleFile SampleAnchor() {
  FileMeta meta = Common(FileKind::kAnchor);
  meta.end_position = kBlockTokens;
  meta.prefix_key = LineKey();
  meta.states = {
      {kBlockTokens, 0, StateKind::kLine, Provenance::kGrid, LineKey()}};
  meta.chunks = {Reference(SampleChunk())};
  AlignedBuffer payload(StateBytes(meta.layout));
  Fill(payload, 100, 2);
  return Finish("anchor", std::move(meta), std::move(payload));
}

SampleFile SampleSession() {
  FileMeta meta = Common(FileKind::kSession);
  meta.end_position = kLength;
  meta.prefix_key = EndKey();
  meta.taint = 290;
  meta.provenance = Provenance::kSession;
  meta.session_id = Digest("session");
  meta.sequence = 7;
  meta.session_key = "opencode:ses_42";
  meta.record = std::string("\1record\0bytes", 13);
  meta.key_ids = Ids(0, kLength);
  const std::uint64_t state = StateBytes(meta.layout);
  meta.states = {
      {kLength, 0, StateKind::kEnd, Provenance::kSession, LineKey()},
      {kBlockTokens, state, StateKind::kLine, Provenance::kGrid, LineKey()}};
  meta.chunks = {Reference(SampleChunk()), Reference(SampleTail())};
  AlignedBuffer payload(2 * state);
  Fill(payload, 100, 3);
  return Finish("session", std::move(meta), std::move(payload));
}

std::vector<SampleFile> AllSamples() {
  std::vector<SampleFile> samples;
  samples.push_back(SampleChunk());
  samples.push_back(SampleAnchor());
  samples.push_back(SampleSession());
  return samples;
}

std::vector<std::byte> FileBytes(SampleFile& sample) {
  const AlignedBuffer meta = EncodeMeta(sample.meta);
  std::vector<std::byte> bytes(meta.data(), meta.data() + meta.size());
  bytes.insert(bytes.end(), sample.payload.data(),
               sample.payload.data() + sample.payload.size());
  return bytes;
}

}  // namespace holdfast::cachesvc::testing
