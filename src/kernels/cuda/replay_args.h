#pragma once
// What the kernels of replay and of narrow KDA states take; see args.h. Heads of a row are contiguous.

#include "kernels/cuda/args.h"

namespace lathe::kernels::cuda {

/// How KDA states are kept (docs/formats.md).
enum class Kept : int32_t { kF32, kF16, kI8 };

/// [rows, H, K, V] and, of kI8, scales [rows, H, V]; strides of rows.
struct StatePool {
  void* data;
  int64_t stride;
  float* scales;
  int64_t scale_stride;
  Kept kept;
};
/// Keys and values f32 or bf16 [slots, rows, H, 128], decay f32 [slots, decay_rows, H, 128]; strides of slots and of rows.
struct RingArgs {
  void* keys;
  void* values;
  float* decay;
  int64_t key_slot, key_row, value_slot, value_row, decay_slot, decay_row;
  int32_t rows, decay_rows;
  Type key_type, value_type;
};
struct VerifyArgs {
  Planes q, k, v;
  Rows g, beta;
  StatePool states;
  const int32_t* state;
  const int32_t* checkpoint;
  const int32_t* slot;
  const int32_t* fold;
  RingArgs ring;
  Batch batch;
  Planes o;
  int32_t heads, keys, values;
  int32_t longest;  ///< most rows of a sequence
};
struct FlushArgs {
  StatePool entering, states;
  const int32_t* state_in;
  const int32_t* into;
  const int32_t* checkpoint;
  const int32_t* to;
  const int32_t* slot;
  RingArgs ring;
  int32_t sequences, heads, keys, values;
  int32_t folded_max;
};
/// Heads of 128 x 128, states aligned to 16 bytes; verify also ring rows to four elements. docs/kernels/replay.md.
void launch_verify_128(const VerifyArgs& args, void* stream);
void launch_flush_128(const FlushArgs& args, void* stream);
int64_t verify_128_bytes(const VerifyArgs& args);  ///< of shared memory
int64_t flush_128_bytes(const FlushArgs& args);
/// Any sizes whose state fits shared memory.
void launch_verify_plain(const VerifyArgs& args, void* stream);
void launch_flush_plain(const FlushArgs& args, void* stream);
int64_t verify_plain_bytes(const VerifyArgs& args);
int64_t flush_plain_bytes(const FlushArgs& args);

/// The recurrence over states that are not f32: where `states` of RecurrenceArgs lie instead.
struct NarrowStates {
  StatePool entering, states;
};
void launch_recurrence_narrow_128(const RecurrenceArgs& args, const NarrowStates& narrow, void* stream);
void launch_recurrence_narrow(const RecurrenceArgs& args, const NarrowStates& narrow, void* stream);  ///< keys ≤ kPlainKeysMax

}  // namespace lathe::kernels::cuda
