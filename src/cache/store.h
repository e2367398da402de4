#pragma once
// The caches and states of all sequences on one device: one contiguous segment per layer, family and plane; blocks of tokens; slots of sequences.

#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/device.h"
#include "base/ids.h"
#include "base/result.h"
#include "cache/family.h"
#include "tensor/view.h"

namespace lathe::cache {

struct StoreOptions {
  int64_t block_tokens = 64;      ///< tokens per block; a multiple of every tokens_per_unit
  int64_t blocks = 0;             ///< shared by all sequences
  int32_t slots = 0;              ///< sequences at a time
  int32_t tentative_max = 0;      ///< tokens of one step that commit() may drop
  bool keep_stale_slots = false;  ///< planted fault for the self-test: a reused slot is not cleared
};

/// Rows that a store of these options keeps of one plane.
int64_t reserved_rows(const Family& family, const Plane& plane, const StoreOptions& options);

/// Bytes that a store of these options reserves, by family over all layers, in order of first occurrence: Store::bytes() is their sum. Allocates nothing.
struct FamilyBytes {
  std::string family;
  int64_t bytes = 0;
};
std::vector<FamilyBytes> reserved_cache_bytes(std::span<const LayerFamily> families, const StoreOptions& options);

/// Where the states of families that trail stand. The store keeps the numbers with the sequence, and the model sets them.
struct StateMark {
  uint64_t request =
      0;  ///< what the request is known by, given to open(): a resumed one has the same, whatever slot it gets and whoever runs beside it
  int64_t origin = 0;    ///< tokens up to the last one that was not decoded
  int64_t position = 0;  ///< tokens that the state in memory has seen, at least origin
};

/// Bytes of a sequence kept outside the store, per layer and family. Restorable into any store with the same layouts.
struct Snapshot {
  struct Part {
    int32_t layer = 0;
    std::string family;
    std::string layout_id;
    std::vector<std::vector<std::byte>> planes;
  };
  int64_t length = 0;
  int64_t draft_length = 0;
  StateMark mark{};
  std::vector<Part> parts;
  int64_t bytes() const;
};

/// Owner of all cache memory of a rank.
///
/// Positions  length() tokens of a sequence are settled. append() makes room for a step of n tokens, of which the last `tentative` may be dropped; commit(k)
///            keeps the first k of those in every family. A step is appended, run and committed before the next one of the same sequence.
/// States     families with candidates keep tentative_max + 1 states per slot: token i of the tentative ones leaves its state in candidate (cursor + 1 + i),
///            and commit only moves the cursor. Rings are long enough that dropped rows hide nothing that is still needed.
/// Memory     segments are allocated at creation for the worst case and touched when used: resident memory follows use.
/// Threads    the rank's thread.
class Store {
 public:
  static Result<std::unique_ptr<Store>> create(backend::Device& device, std::vector<LayerFamily> families, const StoreOptions& options);

  /// A new empty sequence. Errors: resource_exhausted (no free slot).
  Result<SequenceId> open(uint64_t request = 0);
  void close(SequenceId sequence);
  bool is_open(SequenceId sequence) const { return sequences_.contains(sequence); }

  /// Makes room for `tokens` more. Errors: resource_exhausted with the numbers; failed_precondition if a step is still uncommitted.
  Result<void> append(SequenceId sequence, int64_t tokens, int64_t tentative);
  /// Ends the step: keeps the first `kept` tentative tokens.
  void commit(SequenceId sequence, int64_t kept);
  /// Notes how many positions the draft layer's caches hold from true hidden states. Only the number is kept: commit() lowers it to length() where that is
  /// less, and later writes overwrite the rows behind it.
  void set_draft_length(SequenceId sequence, int64_t length) { at(sequence).draft_length = length; }
  /// Notes where the states that trail stand now. A sequence that is restored or copied takes the numbers along.
  void set_mark(SequenceId sequence, const StateMark& mark) { at(sequence).mark = mark; }

  int64_t length(SequenceId sequence) const { return at(sequence).length; }
  int64_t draft_length(SequenceId sequence) const { return at(sequence).draft_length; }
  const StateMark& mark(SequenceId sequence) const { return at(sequence).mark; }
  int32_t slot(SequenceId sequence) const { return at(sequence).slot; }
  /// Row of the sequence's current state in a plane with candidates (rows are slot-major), and the row for the i-th tentative token of the running step (i from 0).
  int32_t state_row(SequenceId sequence) const { return candidate_row(at(sequence), 0); }
  int32_t tentative_row(SequenceId sequence, int64_t i) const { return candidate_row(at(sequence), 1 + i); }
  /// Row of the sequence's state in any family of unit sequence: the current candidate, or its only one.
  int32_t state_row(SequenceId sequence, const Family& family) const {
    return family.candidates ? state_row(sequence) : slot(sequence) * static_cast<int32_t>(family.planes.front().rows_per_unit);
  }
  int32_t candidates() const { return options_.tentative_max + 1; }
  std::span<const int32_t> block_table(SequenceId sequence) const { return at(sequence).blocks; }
  uint32_t slot_generation(int32_t slot) const { return slot_generation_[static_cast<size_t>(slot)]; }
  uint32_t block_generation(int32_t block) const { return block_generation_[static_cast<size_t>(block)]; }

  /// Whole segment of a plane: [rows, elements]. CHECK: it exists.
  View plane(int32_t layer, const std::string& family, int plane = 0) const;
  bool has(int32_t layer, const std::string& family) const;
  const Family& family(int32_t layer, const std::string& family) const;
  /// Rows per block of a token or pool family.
  int64_t block_rows(const Family& family) const { return options_.block_tokens / family.tokens_per_unit; }

  /// Copy of the settled part of a sequence. Errors: failed_precondition if a step is uncommitted.
  Result<Snapshot> snapshot(SequenceId sequence) const;
  /// A sequence of the snapshot's length whose bytes have yet to be delivered, layer by layer. A snapshot is input: it may come from a file or another host.
  /// Errors: data_loss (lengths and marks that no sequence has); resource_exhausted (longer than this store, no free slot or blocks).
  Result<SequenceId> open_for(const Snapshot& snapshot);
  /// Writes the snapshot's bytes of one layer. Errors: failed_precondition (layouts differ, naming both; a sequence with too few blocks); data_loss
  /// (planes or bytes that are not the layout's): nothing of that plane is written then.
  Result<void> deliver(SequenceId sequence, const Snapshot& snapshot, int32_t layer);
  /// open_for and deliver of every layer.
  Result<SequenceId> restore(const Snapshot& snapshot);
  /// A second sequence with the same content, copied on the device.
  Result<SequenceId> copy(SequenceId sequence);
  /// The current state of one slot family at the settled position, as host bytes of one plane row (states are read through this, never as raw segments).
  /// Errors: not_found; invalid_argument (no state); failed_precondition (the state trails: Model::prefix_snapshot() makes the one of the position).
  Result<std::vector<std::byte>> materialise(SequenceId sequence, int32_t layer, const std::string& family, int plane = 0) const;

  int64_t bytes() const { return bytes_; }  ///< reserved in all segments
  int64_t free_blocks() const { return static_cast<int64_t>(free_blocks_.size()); }
  int32_t free_slots() const { return static_cast<int32_t>(free_slots_.size()); }
  const StoreOptions& options() const { return options_; }
  const std::vector<LayerFamily>& families() const { return families_; }

 private:
  struct Sequence {
    int32_t slot = -1;
    int32_t cursor = 0;  ///< current candidate state
    int64_t length = 0;
    int64_t draft_length = 0;  ///< positions of the draft layer's caches written from true hidden states
    int64_t pending = -1;      ///< tentative tokens of a running step; −1: none running
    StateMark mark;
    std::vector<int32_t> blocks;
  };
  struct Segment {
    int32_t layer = 0;
    size_t family = 0;  ///< index into families_
    size_t plane = 0;
    backend::Buffer buffer;
    View view;
  };
  struct RowRun {  ///< consecutive rows of a segment
    int64_t first = 0;
    int64_t count = 0;
  };

  Store(backend::Device& device, std::vector<LayerFamily> families, const StoreOptions& options);
  Result<void> allocate_segments();
  const Sequence& at(SequenceId sequence) const;
  Sequence& at(SequenceId sequence);
  int32_t candidate_row(const Sequence& sequence, int64_t ahead) const {
    return sequence.slot * candidates() + static_cast<int32_t>((sequence.cursor + ahead) % candidates());
  }
  const Segment* find(int32_t layer, const std::string& family, size_t plane) const;
  /// Rows that hold the settled content of `sequence` in `segment`, in order.
  std::vector<RowRun> settled_rows(const Sequence& sequence, const Segment& segment) const;
  Result<void> deliver_plane(const Sequence& sequence, const Segment& segment, std::span<const std::byte> bytes);
  void clear_slot(int32_t slot);
  Result<void> take_blocks(Sequence& sequence, int64_t tokens);

  backend::Device& device_;
  std::vector<LayerFamily> families_;
  StoreOptions options_;
  std::vector<Segment> segments_;
  std::unordered_map<SequenceId, Sequence> sequences_;
  std::vector<int32_t> free_blocks_;
  std::vector<int32_t> free_slots_;
  std::vector<uint32_t> slot_generation_;
  std::vector<uint32_t> block_generation_;
  int32_t next_id_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace lathe::cache
