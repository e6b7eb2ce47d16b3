// One conversation's state in the pool.
#ifndef HOLDFAST_ENGINE_RESUME_SEQUENCE_H_
#define HOLDFAST_ENGINE_RESUME_SEQUENCE_H_

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/anchors/anchor.h"
#include "engine/anchors/section_buffers.h"
#include "engine/pool/block_pool.h"
#include "engine/pool/block_table.h"
#include "engine/pool/provenance.h"
#include "engine/resume/grid_rule.h"
#include "shared/prefix_key.h"

namespace holdfast::engine {

// What was forwarded so far: rows 0 to rows() in the table's blocks, and the
// live sections as they are after the last of them. A running request has one;
// the resident of a seat is one that no request runs any more: its sections are
// the seat's end anchor. Its last block may be partial and is then its own.
struct Sequence {
  Sequence(BlockPool* pool, BlockTable::Kind kind, const PrefixKey& root,
           SectionBuffers::Buffer sections)
      : root(root), table(pool, kind), sections(std::move(sections)) {}

  int rows() const { return static_cast<int>(ids.size()); }
  // Whether the sections are the state behind the last row. Behind rows that
  // were resumed alone they are whatever the buffer held before.
  bool HasEnd() const {
    return sections != nullptr && rows() > 0 && state_rows == rows();
  }
  // Of a copy of the sections behind the first `position` rows.
  Provenance ProvenanceAt(int position) const {
    return position > taint ? Provenance::kSession : Provenance::kGrid;
  }
  // The rows of one step, which are in the table's blocks now. What comes on
  // top of `session` rows is `session` whatever the step says.
  void Append(std::span<const std::int32_t> more, Provenance provenance);
  // Whether a run that starts at or below the taint as a cold one does, and
  // launches as `launches` says, computes these rows again, bit for bit.
  bool LaunchesKnown() const {
    return taint == kUntainted || (!launches.empty() && launches_from == taint);
  }

  PrefixKey root;
  std::string session_key;  // of the client's conversation; empty: nobody's
  int taint = kUntainted;   // its lowest row of provenance `session`
  int prompt_tokens = 0;    // of the last prompt
  int head = 0;             // Request::head of it
  std::vector<KeyId> ids;   // of the rows
  // Where the launches ended that made the `session` rows from `launches_from`
  // on, ascending. Those above rows() are of rows that were lost.
  std::vector<int> launches;
  int launches_from = 0;
  BlockTable table;
  SectionBuffers::Buffer sections;
  int state_rows = 0;  // behind how many rows the sections are the state
  AnchorList anchors;  // none above rows()
};

// Enters every whole block of the sequence that others may use into the index.
// Where the index has the same ids already, the sequence goes over to that
// block.
void PublishBlocks(BlockPool& pool, const GridRule& rule, Sequence& sequence);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_RESUME_SEQUENCE_H_
