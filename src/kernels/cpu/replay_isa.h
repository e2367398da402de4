#pragma once
// What the replay files of the instruction-set levels offer to kda_replay.cc. Plain C types.
//
// All of them see one head. Rows of scratch begin at multiples of `part` (keys) or `stride` (columns) floats, with room for whole vectors.

#include "kernels/cpu/kda_isa.h"

namespace lathe::kernels::cpu {

/// A row's decays and what they make of its q and k, which are normalised.
struct GrowArgs {
  const float* q = nullptr;
  const float* k = nullptr;
  const float* g = nullptr;
  const float* before = nullptr;  ///< decay of the row before; null: zeros
  int64_t keys = 0;
  float* decay = nullptr;    ///< before + g
  float* q_grown = nullptr;  ///< q · e^decay
  float* k_grown = nullptr;
  void* key = nullptr;    ///< k · e^−decay, as the ring keeps it
  bool narrow = false;    ///< the ring keeps bf16
  float* kept = nullptr;  ///< the same as floats
};

/// to_q[i] = q · keys[i], to_k[i] = k · keys[i].
struct MatchArgs {
  const float* q = nullptr;
  const float* k = nullptr;
  const float* entries = nullptr;  ///< [count][part]
  int64_t part = 0;
  int64_t count = 0;
  int64_t keys = 0;
  float* to_q = nullptr;
  float* to_k = nullptr;
};

/// from_q[r] += Sᵀ q[r], from_k[r] += Sᵀ k[r] over the keys [begin, end).
struct ReadArgs {
  StateSource state;
  int64_t begin = 0, end = 0;
  int64_t width = 0;
  const float* q = nullptr;  ///< [rows][part]
  const float* k = nullptr;
  int64_t part = 0;
  int64_t rows = 0;
  float* from_q = nullptr;  ///< inout [rows][stride]
  float* from_k = nullptr;
  int64_t stride = 0;
};

/// The end of a row: what the entries add to Sᵀk and Sᵀq, its corrected value, its output.
struct FinishArgs {
  const float* from_q = nullptr;
  const float* from_k = nullptr;
  const float* entries = nullptr;  ///< values [count][stride]
  int64_t stride = 0;
  int64_t count = 0;
  const float* to_q = nullptr;
  const float* to_k = nullptr;
  float beta = 0, qk = 0;
  const float* v = nullptr;
  int64_t width = 0;
  float* o = nullptr;
  void* value = nullptr;  ///< u, as the ring keeps it
  bool narrow = false;
  float* kept = nullptr;  ///< the same as floats, [stride]
};

/// to = S + loss ⊙ S + grown ⊙ Σ_i keys[i] values[i]ᵀ; S itself if there is no entry.
struct FoldArgs {
  StateSource from;
  float* to = nullptr;
  int64_t to_stride = 0;
  int64_t keys = 0, width = 0;
  const float* grown = nullptr;
  const float* loss = nullptr;
  const float* entry_keys = nullptr;  ///< [count][part]
  int64_t part = 0;
  const float* entry_values = nullptr;  ///< [count][stride]
  int64_t stride = 0;
  int64_t count = 0;
};

struct ReplayIsa {
  int64_t columns = 0;  ///< of a state that `read` takes together for one row
  /// Returns q · k.
  float (*grow)(const GrowArgs& args) = nullptr;
  /// An entry of the ring as floats.
  void (*widen)(const void* from, bool narrow, int64_t count, float* to) = nullptr;
  void (*match)(const MatchArgs& args) = nullptr;
  void (*read)(const ReadArgs& args) = nullptr;
  void (*finish)(const FinishArgs& args) = nullptr;
  /// grown = e^decay, loss = e^decay − 1, of one exponential. |decay| ≤ 87.
  void (*exponentials)(const float* decay, int64_t count, float* grown, float* loss) = nullptr;
  void (*fold)(const FoldArgs& args) = nullptr;
};

extern const ReplayIsa kReplayScalar, kReplayAvx2, kReplayAvx512;

}  // namespace lathe::kernels::cpu
