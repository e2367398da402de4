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
inline constexpr int kBlocksPerSm = kOut == Kept::kI8 ? 5 : 8;

/// Elements from one staged ring row to the next: pairs of rows fall into other banks.
__host__ __device__ constexpr int row_pitch(int width) { return width + 8; }

/// A thread's part of 16 ring rows, each of kWidth elements.
template <int kWidth, class T>
struct Piece {
  static constexpr int kAtOnce = kReplayThreads / kWidth;
  static constexpr int kEach = 16 / kAtOnce;
  T mine[kEach];

  static __device__ __forceinline__ int entry(int i) { return static_cast<int>(threadIdx.x) / kWidth + i * kAtOnce; }
  static __device__ __forceinline__ int column() { return static_cast<int>(threadIdx.x) % kWidth; }
  __device__ __forceinline__ void load(const T* from, int row, int first, int count, int rows) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int at = first + entry(i);
      if (entry(i) < count) mine[i] = from[(at >= rows ? at - rows : at) * row + column()];
    }
  }
  __device__ __forceinline__ void store(T* to, int count) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (entry(i) < count) to[entry(i) * row_pitch(kWidth) + column()] = mine[i];
    }
  }
};
/// Where the entries of a fold lie, and how many there are from ring row `first` on.
struct Staged {
  const char* keys;  ///< in the ring
  const char* values;
  char* to_keys;  ///< in shared memory
  char* to_values;
  int key_row, value_row, first, count, rows;
};
/// All of them into shared memory, 32 and more loads of a thread on their way at once.
template <int kRows, class Key, class Value>
__device__ __forceinline__ void stage_as(const Staged& s) {
  for (int done = 0; done < s.count; done += 16) {
    Piece<kRows, Key> keys;
    Piece<kValues, Value> values;
    const int first = s.first + done >= s.rows ? s.first + done - s.rows : s.first + done;
    keys.load(reinterpret_cast<const Key*>(s.keys), s.key_row, first, s.count - done, s.rows);
    values.load(reinterpret_cast<const Value*>(s.values), s.value_row, first, s.count - done, s.rows);
    keys.store(reinterpret_cast<Key*>(s.to_keys) + done * row_pitch(kRows), s.count - done);
    values.store(reinterpret_cast<Value*>(s.to_values) + done * row_pitch(kValues), s.count - done);
  }
}
template <int kRows>
__device__ __forceinline__ void stage(const RingArgs& ring, const Staged& s) {
  if (ring.key_type == Type::kF32) return stage_as<kRows, float, float>(s);
  if (ring.value_type == Type::kF32) return stage_as<kRows, uint16_t, float>(s);
  stage_as<kRows, uint16_t, uint16_t>(s);
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
  alignas(16) __shared__ float scales[kValues];
  alignas(16) __shared__ unsigned most[kValues];
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
    const int last = (begin + count - 1) % p.ring.decay_rows;
    float g = 0;
    if (thread < kRows) g = p.ring.decay[slot * p.ring.decay_slot + last * p.ring.decay_row + h * kKeys + first_row + thread];
    const int value_bytes = p.ring.value_type == Type::kF32 ? 4 : 2;
    stage<kRows>(p.ring, {static_cast<const char*>(p.ring.keys) + (slot * p.ring.key_slot + h * kKeys + first_row) * key_bytes,
                          static_cast<const char*>(p.ring.values) + (slot * p.ring.value_slot + h * kValues) * value_bytes, keys, values,
                          static_cast<int>(p.ring.key_row), static_cast<int>(p.ring.value_row), begin % p.ring.rows, count, p.ring.rows});
    if (thread < kRows) decay[thread] = {expm1f(g), expf(g)};
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
