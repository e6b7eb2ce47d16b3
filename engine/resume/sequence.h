// One conversation's state in the pool.
#ifndef HOLDFAST_ENGINE_RESUME_SEQUENCE_H_
#define HOLDFAST_ENGINE_RESUME_SEQUENCE_H_

#include <utility>
#include <vector>

#include "engine/anchors/anchor.h"
#include "engine/anchors/section_buffers.h"
#include "engine/pool/block_pool.h"
#include "engine/pool/block_table.h"
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

  PrefixKey root;
  std::vector<KeyId> ids;  // of the rows
  BlockTable table;
  SectionBuffers::Buffer sections;
  AnchorList anchors;  // none above rows()
};

// Enters every whole block of the sequence into the index. Where the index has
// the same ids already, the sequence goes over to that block.
void PublishBlocks(BlockPool& pool, Sequence& sequence);

}  // namespace holdfast::engine

#endif  // HOLDFAST_ENGINE_RESUME_SEQUENCE_H_
