// The flush of replay for heads of 128 x 128 (docs/kernels/replay.md): a block has 32 rows of a head, or all if their codes share scales. They come by one bulk
// copy, the ring rows beside them. Small blocks, so that some load while others store.

#include "kernels/cuda/async_copy.h"
#include "kernels/cuda/replay_fold.h"

namespace lathe::kernels::cuda {
namespace {

int64_t entry_bytes(Type type) { return type == Type::kF32 ? 4 : 2; }

template <Kept kOut>
inline constexpr int kBlockRows = kOut == Kept::kI8 ? kKeys : 32;
template <Kept kOut>
inline constexpr int kBlocksPerSm = kOut == Kept::kI8 ? 5 : 6;

/// Elements from one staged ring row to the next: pairs of rows fall into other banks.
__host__ __device__ constexpr int row_pitch(int width) { return width + 8; }

/// `kWidth` elements of each ring row [first, first + count) into shared memory, row by row; sixteen of a thread on their way.
template <int kWidth, class T>
__device__ __forceinline__ void stage_entries(T* to, const T* from, int64_t row, int first, int count, int rows) {
  constexpr int kAtOnce = kReplayThreads / kWidth;
  constexpr int kTogether = 16 / kAtOnce;
  const int column = static_cast<int>(threadIdx.x) % kWidth;
  for (int done = static_cast<int>(threadIdx.x) / kWidth; done < count; done += kTogether * kAtOnce) {
    T mine[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int entry = done + i * kAtOnce, at = first + entry;
      if (entry < count) mine[i] = from[(at >= rows ? at - rows : at) * row + column];
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      if (done + i * kAtOnce < count) to[(done + i * kAtOnce) * row_pitch(kWidth) + column] = mine[i];
    }
  }
}
template <int kWidth>
__device__ __forceinline__ void stage_entries(Type type, void* to, const void* from, int64_t offset, int64_t row, int first, int count, int rows) {
  if (type == Type::kF32) {
    stage_entries<kWidth>(static_cast<float*>(to), static_cast<const float*>(from) + offset, row, first, count, rows);
  } else {
    stage_entries<kWidth>(static_cast<uint16_t*>(to), static_cast<const uint16_t*>(from) + offset, row, first, count, rows);
  }
}

/// Rows of a state on their way from one row of a pool to another.
struct Moved {
  const char* state;
  void* to;
  const char* keys;
  const char* values;
  const float2* decay;
  const float* scales;
  unsigned* most;
  float* new_scales;
  int count;
  bool zero;
};
template <Kept kIn, Kept kOut, class Key, class Value>
__device__ __forceinline__ void fold_as(const Moved& m) {
  const Folded<kIn, Key, Value, kBlockRows<kOut>> folded{.state = m.state,
                                                         .scales = m.scales,
                                                         .zero = m.zero,
                                                         .decay = m.decay,
                                                         .entries = {reinterpret_cast<const Key*>(m.keys), reinterpret_cast<const Value*>(m.values),
                                                                     row_pitch(kBlockRows<kOut>), row_pitch(kValues), 0, m.count, m.count + 1}};
  keep_rows<kOut>(m.to, m.most, m.new_scales, folded);
}
template <Kept kIn, Kept kOut>
__device__ __forceinline__ void fold_state(const RingArgs& ring, const Moved& m) {
  if (ring.key_type == Type::kF32) return fold_as<kIn, kOut, float, float>(m);
  if (ring.value_type == Type::kF32) return fold_as<kIn, kOut, uint16_t, float>(m);
  fold_as<kIn, kOut, uint16_t, uint16_t>(m);
}

template <Kept kIn, Kept kOut>
__global__ void __launch_bounds__(kReplayThreads, kBlocksPerSm<kOut>) flush_heads(const FlushArgs p, int key_bytes) {
  constexpr int kRows = kBlockRows<kOut>;
  constexpr int kParts = kKeys / kRows;
  LATHE_DYNAMIC_SHARED(char, state);
  __shared__ Barrier loaded;
  __shared__ float2 decay[kRows];
  __shared__ float scales[kValues];
  __shared__ unsigned most[kValues];
  constexpr unsigned kBytes = kRows * kValues * kept_bytes(kIn);
  const int thread = static_cast<int>(threadIdx.x);
  const int s = static_cast<int>(blockIdx.x) / (p.heads * kParts);
  const int64_t h = static_cast<int>(blockIdx.x) / kParts % p.heads;
  const int first_row = static_cast<int>(blockIdx.x) % kParts * kRows;
  const int64_t in = p.state_in[s], into = p.into[s];
  if (into < 0) return;
  const int64_t place = h * kStateSize + first_row * kValues;
  if (thread == 0 && in >= 0) {
    barrier_init(&loaded, 1);
    barriers_ready();
    barrier_arrive_expect(&loaded, kBytes);
    bulk_load(state, static_cast<const char*>(p.entering.data) + (in * p.entering.stride + place) * kept_bytes(kIn), kBytes, &loaded);
  }
  char* const keys = state + kBytes;
  char* const values = keys + int64_t{p.folded_max} * row_pitch(kRows) * key_bytes;
  const int begin = p.checkpoint[s], count = p.to[s] - begin;
  const int64_t slot = p.slot[s];
  if (kIn == Kept::kI8 && in >= 0) scales[thread] = p.entering.scales[in * p.entering.scale_stride + h * kValues + thread];
  if (kOut == Kept::kI8) most[thread] = 0;
  if (count > 0) {
    const int first = begin % p.ring.rows;
    stage_entries<kRows>(p.ring.key_type, keys, p.ring.keys, slot * p.ring.key_slot + h * kKeys + first_row, p.ring.key_row, first, count,
                         p.ring.rows);
    stage_entries<kValues>(p.ring.value_type, values, p.ring.values, slot * p.ring.value_slot + h * kValues, p.ring.value_row, first, count,
                           p.ring.rows);
    const int last = (begin + count - 1) % p.ring.decay_rows;
    if (thread < kRows) {
      const float g = p.ring.decay[slot * p.ring.decay_slot + last * p.ring.decay_row + h * kKeys + first_row + thread];
      decay[thread] = {expm1f(g), expf(g)};
    }
  }
  __syncthreads();
  if (in >= 0) barrier_wait(&loaded, 0);
  void* const to = static_cast<char*>(p.states.data) + (into * p.states.stride + place) * kept_bytes(kOut);
  if (count == 0 && kIn == kOut && in >= 0) {  // the same bits
    for (int i = thread; i < static_cast<int>(kBytes / 16); i += kReplayThreads)
      static_cast<float4*>(to)[i] = reinterpret_cast<const float4*>(state)[i];
  } else {
    fold_state<kIn, kOut>(p.ring, {state, to, keys, values, decay, scales, most, scales, count, in < 0});
  }
  if (kOut == Kept::kI8) p.states.scales[into * p.states.scale_stride + h * kValues + thread] = scales[thread];
}

template <Kept kIn, Kept kOut>
void launch(const FlushArgs& args, void* stream) {
  const auto blocks = static_cast<unsigned>(args.sequences * args.heads * (kKeys / kBlockRows<kOut>));
  LATHE_LAUNCH((flush_heads<kIn, kOut>), dim3(blocks), dim3(kReplayThreads), flush_128_bytes(args), stream, args,
               static_cast<int>(entry_bytes(args.ring.key_type)));
}
template <Kept kIn>
void launch(const FlushArgs& args, void* stream) {
  switch (args.states.kept) {
    case Kept::kF32: return launch<kIn, Kept::kF32>(args, stream);
    case Kept::kF16: return launch<kIn, Kept::kF16>(args, stream);
    case Kept::kI8: return launch<kIn, Kept::kI8>(args, stream);
  }
}

}  // namespace

int64_t flush_128_bytes(const FlushArgs& args) {
  const int64_t rows = args.states.kept == Kept::kI8 ? kBlockRows<Kept::kI8> : kBlockRows<Kept::kF32>;
  return rows * kValues * kept_bytes(args.entering.kept) + args.folded_max * (row_pitch(static_cast<int>(rows)) * entry_bytes(args.ring.key_type) +
                                                                              row_pitch(kValues) * entry_bytes(args.ring.value_type));
}

void launch_flush_128(const FlushArgs& args, void* stream) {
  if (args.sequences == 0 || args.heads == 0) return;
  switch (args.entering.kept) {
    case Kept::kF32: return launch<Kept::kF32>(args, stream);
    case Kept::kF16: return launch<Kept::kF16>(args, stream);
    case Kept::kI8: return launch<Kept::kI8>(args, stream);
  }
}

}  // namespace lathe::kernels::cuda
