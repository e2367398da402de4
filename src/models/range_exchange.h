#pragma once
// What ranks tell each other when a prefill is cut into token ranges (spec parallel §4): each rank runs its own range of a sequence through all layers.

#include <cstdint>

#include "base/result.h"
#include "cache/store.h"
#include "tensor/view.h"

namespace lathe::models {

/// The range that the call is about.
struct RangeSite {
  int32_t layer = 0;
  SequenceId sequence;
  int64_t begin = 0, end = 0;  ///< absolute positions of the rank's own tokens
  cache::Store& store;         ///< the rank's own caches: the exchange writes what earlier ranges hold into them
};

/// Calls come in this order, on the rank's thread, for each item marked `range`.
///   KDA layer   conv_halo, kda_begin (with a pair if asked for), kda_end
///   DSA layer   index_halo (unless the layer shares a selection), tokens_written
/// Every call may block until the ranks before have delivered. After an error, and once the rank's pass has failed, none
/// follows but StepHooks::failed.
class RangeExchange {
 public:
  virtual ~RangeExchange() = default;

  /// Before the convolution. `raw`: f32 [end − begin, channels], this range's projections. On return the window ring ("kda.conv", position p in ring row
  /// p mod R) holds the raw rows of the W − 1 positions before `begin` that exist.
  virtual Result<void> conv_halo(const RangeSite& site, const View& raw) = 0;

  /// Whether the range's affine pair S_end = M S_begin + H is wanted (chain); otherwise states are handed on (relay).
  virtual bool wants_pair(const RangeSite& site) = 0;
  /// Before the recurrence. On return the current state of the sequence ("kda.state") is the one at `begin`.
  /// pair_m [H, K, K], pair_h [H, K, V]: f32 device memory, absent unless wants_pair.
  virtual Result<void> kda_begin(const RangeSite& site, const View& pair_m, const View& pair_h) = 0;
  /// After the recurrence: the current state is the one at `end`.
  virtual Result<void> kda_end(const RangeSite& site) = 0;

  /// Before the index keys of the range are pooled. On return the tail ring ("index.tail") holds the kpool − 1 positions before `begin` that exist.
  virtual Result<void> index_halo(const RangeSite& site) = 0;
  /// Latents, index keys and tail of the range are written. On return the caches hold the latents and keys of all positions before `begin` as well.
  virtual Result<void> tokens_written(const RangeSite& site) = 0;
};

}  // namespace lathe::models
