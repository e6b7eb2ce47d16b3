// Small cache files with known content: of tests, and the golden files.
#ifndef HOLDFAST_CACHESVC_FORMAT_TESTING_SAMPLE_FILES_H_
#define HOLDFAST_CACHESVC_FORMAT_TESTING_SAMPLE_FILES_H_

#include <string>
#include <vector>

#include "cachesvc/format/meta.h"
#include "shared/aligned_buffer.h"

namespace holdfast::cachesvc::testing {

struct SampleFile {
  std::string name;  // of the golden file
  FileMeta meta;
  AlignedBuffer payload;
};

// Two views, two sections, a grid of 256 tokens.
CacheLayout SampleLayout();

// A grid chunk of rows 0 to 256, the anchor at 256, and a session of 300 tokens
// with an end anchor and a line anchor. Always the same bytes.
SampleFile SampleChunk();
SampleFile SampleAnchor();
SampleFile SampleSession();
std::vector<SampleFile> AllSamples();

// The whole file's bytes.
std::vector<std::byte> FileBytes(SampleFile& sample);

}  // namespace holdfast::cachesvc::testing

#endif  // HOLDFAST_CACHESVC_FORMAT_TESTING_SAMPLE_FILES_H_
