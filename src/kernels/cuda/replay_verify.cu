// Windows of replay for heads of 128 x 128 (docs/kernels/replay.md): a block a head, three heads and more a multiprocessor.
//
// State     One bulk copy brings it into shared memory as it is kept; norms, decay and products with the ring's keys are made meanwhile. It is read once for up to
//           four tokens, and written only by a fold inside the window, in shared memory.
// Ring      A warp has every fourth entry's key for the products, a lane every fourth entry's value of its columns; 16 of each are on their way from the start.
// Order of additions  a (and b): rows c, c + 4, … of the state in order, then entries i, i + 4, … in order, then classes mod 4 by {c, c+1}, {.., +2}. So the bits
//           of a token depend on its entries alone, not on how rows are cut into windows.

#include "kernels/cuda/async_copy.h"
#include "kernels/cuda/replay_fold.h"

namespace lathe::kernels::cuda {
namespace {

constexpr int kTokens = 4;  // of a pass over the state
constexpr int kAhead = 4;   // entries of a warp, or lane, that are asked for early

struct Shared {
  float2 hats[kTokens][kKeys];  ///< k and q, grown; during a fold the first has (loss, growth)
  float keys[kTokens][kKeys];   ///< as the ring has them
  float scales[kValues];        ///< of codes
  float sums[kTokens][4][3];    ///< of each warp: q·q, k·k, q·k
  Barrier loaded;
};

/// Windows of several rows need the registers.
template <Kept kKept, bool kSingle>
constexpr int blocks_per_sm() {
  if (kKept == Kept::kF32) return 3;
  if (kKept == Kept::kF16) return kSingle ? 5 : 4;
  return kSingle ? 7 : 4;
}

/// Sums of eight numbers over the warp, each in the order of warp_sum: lane l gets that of number l / 4.
__device__ __forceinline__ float warp_sums(float* v) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
#pragma unroll
  for (int half = 4; half > 0; half /= 2) {
    const bool upper = (lane & 4 * half) != 0;
#pragma unroll
    for (int i = 0; i < half; ++i) {
      const float given = upper ? v[i] : v[i + half];
      v[i] = (upper ? v[i + half] : v[i]) + __shfl_xor_sync(0xFFFFFFFFu, given, 4 * half);
    }
  }
  v[0] += __shfl_xor_sync(0xFFFFFFFFu, v[0], 2);
  return v[0] + __shfl_xor_sync(0xFFFFFFFFu, v[0], 1);
}

/// One block: the window of one sequence for one head. Thread c has key channel c of every token, then four columns of every fourth row of the state.
template <Kept kKept, class Key, class Value>
struct Window {
  const VerifyArgs& p;
  Shared& shared;
  char* state;
  float2* match;  ///< [entries][kTokens]: products of a token's k and q with an entry's key
  Key* keys;      ///< of this slot and head
  Value* values;
  float* decay;
  int h, begin, start;
  int checkpoint, ring_first;  ///< and its row of the ring
  bool zero, arrived;

  static constexpr unsigned kBytes = kStateSize * kept_bytes(kKept);
  static __device__ __forceinline__ int warp() { return static_cast<int>(threadIdx.x) / 32; }
  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) & 31; }
  /// Of entry i since the checkpoint.
  __device__ __forceinline__ int ring_row(int i) const { return ring_first + i >= p.ring.rows ? ring_first + i - p.ring.rows : ring_first + i; }
  __device__ __forceinline__ Key* key_at(int i) const { return keys + ring_row(i) * static_cast<int>(p.ring.key_row); }
  __device__ __forceinline__ Value* value_at(int i) const { return values + ring_row(i) * static_cast<int>(p.ring.value_row); }
  __device__ __forceinline__ float* decay_at(int position) const { return decay + position % p.ring.decay_rows * static_cast<int>(p.ring.decay_row); }
  __device__ __forceinline__ int position(int t) const { return start + t - begin; }

  __device__ __forceinline__ void ask_for_state(int64_t in) {
    zero = in < 0, arrived = zero;
    if (zero) return;
    if (threadIdx.x == 0) {
      barrier_init(&shared.loaded, 1);
      barriers_ready();
      barrier_arrive_expect(&shared.loaded, kBytes);
      bulk_load(state, static_cast<const char*>(p.states.data) + (in * p.states.stride + h * kStateSize) * kept_bytes(kKept), kBytes, &shared.loaded);
    }
    if (kKept == Kept::kI8) shared.scales[threadIdx.x] = p.states.scales[in * p.states.scale_stride + h * kValues + threadIdx.x];
  }
  /// After a __syncthreads.
  __device__ __forceinline__ void wait_for_state() {
    if (!arrived) barrier_wait(&shared.loaded, 0);
    arrived = true;
  }

  /// Moves the state in shared memory up to `position`.
  __device__ void fold(int position) {
    const float g = decay_at(position - 1)[threadIdx.x];
    shared.hats[0][threadIdx.x] = {expm1f(g), expf(g)};
    auto* const most = reinterpret_cast<unsigned*>(&shared.keys[0][0]);
    most[threadIdx.x] = 0;
    __syncthreads();
    wait_for_state();
    const Folded<kKept, Key, Value> folded{.state = state,
                                           .scales = shared.scales,
                                           .zero = zero,
                                           .decay = shared.hats[0],
                                           .entries = {keys, values, static_cast<int>(p.ring.key_row), static_cast<int>(p.ring.value_row), ring_first,
                                                       position - checkpoint, p.ring.rows}};
    keep_rows<kKept>(state, most, shared.scales, folded);
    zero = false;
    checkpoint = position, ring_first = position % p.ring.rows;
    __syncthreads();
  }

  /// What thread c needs of rows first … first + count − 1, and the entries' share of the warp and the lane; all on its way at once.
  template <int kCount>
  struct Loads {
    float q[kCount], k[kCount], g[kCount], beta[kCount], v[kCount][4];
    float before;  ///< decay
    Raw<Key> keys[kAhead];
    Raw<Value> values[kAhead];
  };
  template <int kCount>
  __device__ __forceinline__ void load(int first, int count, int old, Loads<kCount>& x) const {
    const int c = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const int k = warp() + kRowLanes * j, v = row_lane() + kRowLanes * j;
      if (k < old) x.keys[j].load(key_at(k) + 4 * lane());
      if (v < old) x.values[j].load(value_at(v) + first_column());
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int64_t t = first + (i < count ? i : 0);
      x.q[i] = p.q.data[t * p.q.outer + h * p.q.inner + c], x.k[i] = p.k.data[t * p.k.outer + h * p.k.inner + c];
      x.g[i] = p.g.data[t * p.g.stride + h * kKeys + c];
    }
    x.before = old > 0 ? decay_at(position(first) - 1)[c] : 0.0f;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int64_t t = first + (i < count ? i : 0);
      const float* const row = p.v.data + t * p.v.outer + h * p.v.inner + first_column();
#pragma unroll
      for (int j = 0; j < 4; ++j) x.v[i][j] = row[j];
      x.beta[i] = p.beta.data[t * p.beta.stride + h];
    }
  }

  /// Norms and decay of the rows, what they leave in the ring but their values, and q·k. Ends with a barrier.
  template <int kCount>
  __device__ __forceinline__ void prepare(int first, int count, int old, const Loads<kCount>& x, float* qk) {
    const int c = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const float qq = warp_sum(x.q[i] * x.q[i]), kk = warp_sum(x.k[i] * x.k[i]), both = warp_sum(x.q[i] * x.k[i]);
      if (lane() == 0) shared.sums[i][warp()][0] = qq, shared.sums[i][warp()][1] = kk, shared.sums[i][warp()][2] = both;
    }
    __syncthreads();
    float g = x.before;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (i >= count) break;
      const auto& s = shared.sums[i];
      const float q_factor = rsqrtf((s[0][0] + s[1][0]) + (s[2][0] + s[3][0]) + 1e-6f) * 0.08838834764831845f;  // 128^-0.5
      const float k_factor = rsqrtf((s[0][1] + s[1][1]) + (s[2][1] + s[3][1]) + 1e-6f);
      qk[i] = ((s[0][2] + s[1][2]) + (s[2][2] + s[3][2])) * q_factor * k_factor;
      g += x.g[i];
      const float grown = expf(g), kn = x.k[i] * k_factor;
      const float kept = rounded_to(static_cast<const Key*>(nullptr), kn * expf(-g));
      shared.hats[i][c] = {kn * grown, x.q[i] * q_factor * grown};
      if (kCount > 1) shared.keys[i][c] = kept;
      store_entry(key_at(old + i) + c, kept);
      decay_at(position(first) + i)[c] = g;
    }
    __syncthreads();
  }

  /// One lane's part of the products of an entry with token t.
  __device__ __forceinline__ float2 products(int t, float4 key) const {
    const float4* const hats = reinterpret_cast<const float4*>(&shared.hats[t][4 * lane()]);
    const float4 a = hats[0], b = hats[1];
    return {fmaf(b.z, key.w, fmaf(b.x, key.z, fmaf(a.z, key.y, a.x * key.x))), fmaf(b.w, key.w, fmaf(b.y, key.z, fmaf(a.w, key.y, a.y * key.x)))};
  }
  /// One warp: the products of entry i with tokens [from, to).
  __device__ __forceinline__ void match_entry(int i, float4 key, int from, int to) {
    for (int t = from; t < to; ++t) {
      const float2 mine = products(t, key);
      const float k = warp_sum(mine.x), q = warp_sum(mine.y);
      if (lane() == 0) match[i * kTokens + t] = {k, q};
    }
  }
  /// The products of all entries of this warp.
  template <int kCount>
  __device__ __forceinline__ void match_entries(int count, int old, const Loads<kCount>& x) {
#pragma unroll
    for (int t = 0; t < kCount; ++t) {
      if (t >= count || warp() >= old) break;
      float v[2 * kAhead];
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        const float2 both = products(t, x.keys[j].value());
        v[2 * j] = both.x, v[2 * j + 1] = both.y;
      }
      const float sum = warp_sums(v);
      const int i = warp() + kRowLanes * (lane() / 8);
      if (lane() % 4 == 0 && i < old) reinterpret_cast<float*>(match + i * kTokens + t)[lane() / 4 % 2] = sum;
    }
    for (int i = warp() + kRowLanes * kAhead; i < old; i += kRowLanes) match_entry(i, four_of(key_at(i) + 4 * lane()), 0, count);
    for (int t = 0; t + 1 < count; ++t) {
      if ((old + t) % kRowLanes == warp()) match_entry(old + t, four_of(&shared.keys[t][4 * lane()]), t + 1, count);
    }
  }

  /// a and b of the state for kCount tokens, of this lane's rows.
  template <int kCount>
  __device__ __forceinline__ void sweep(float (*a)[4], float (*b)[4]) const {
    const int column = first_column();
#pragma unroll
    for (int t = 0; t < kCount; ++t) {
#pragma unroll
      for (int j = 0; j < 4; ++j) a[t][j] = b[t][j] = 0;
    }
    if (zero) return;
#pragma unroll 8
    for (int i = 0; i < kKeys / kRowLanes; ++i) {
      const int row = row_lane() + kRowLanes * i;
      const float4 x = four_kept<kKept>(state, row * kValues + column);
#pragma unroll
      for (int t = 0; t < kCount; ++t) add_entry(shared.hats[t][row], x, a[t], b[t]);
    }
    if constexpr (kKept == Kept::kI8) {
#pragma unroll
      for (int t = 0; t < kCount; ++t) {
#pragma unroll
        for (int j = 0; j < 4; ++j) a[t][j] *= shared.scales[column + j], b[t][j] *= shared.scales[column + j];
      }
    }
  }

  static __device__ __forceinline__ void add_entry(float2 by, float4 u, float* a, float* b) {
    a[0] = fmaf(by.x, u.x, a[0]), a[1] = fmaf(by.x, u.y, a[1]), a[2] = fmaf(by.x, u.z, a[2]), a[3] = fmaf(by.x, u.w, a[3]);
    b[0] = fmaf(by.y, u.x, b[0]), b[1] = fmaf(by.y, u.y, b[1]), b[2] = fmaf(by.y, u.z, b[2]), b[3] = fmaf(by.y, u.w, b[3]);
  }

  /// What row t, entry i, learns and reads, for this lane's columns. Lane r of those that share columns writes column r. Returns what the ring keeps.
  __device__ __forceinline__ float4 finish_token(int64_t t, int i, float beta, float qk, const float* v, float* a, float* b) const {
#pragma unroll
    for (int mask = 8; mask < 32; mask <<= 1) {
#pragma unroll
      for (int j = 0; j < 4; ++j) a[j] += __shfl_xor_sync(0xFFFFFFFFu, a[j], mask), b[j] += __shfl_xor_sync(0xFFFFFFFFu, b[j], mask);
    }
    float kept[4], o = 0, mine = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float learned = beta * (v[j] - a[j]);
      kept[j] = rounded_to(static_cast<const Value*>(nullptr), learned);
      if (j == row_lane()) o = fmaf(qk, learned, b[j]), mine = kept[j];
    }
    const int column = first_column() + row_lane();
    p.o.data[t * p.o.outer + h * p.o.inner + column] = o;
    store_entry(value_at(i) + column, mine);
    return make_float4(kept[0], kept[1], kept[2], kept[3]);
  }

  /// `count` rows from `first` on, at most kCount, without a fold behind the first.
  template <int kCount>
  __device__ __forceinline__ void segment(int first, int count, int fold_first) {
    int old = position(first) - checkpoint;
    Loads<kCount> x;
    load<kCount>(first, count, old, x);
    if (fold_first != 0 && old > 0) {
      fold(position(first));
      old = 0, x.before = 0;
    }
    float qk[kCount];
    prepare<kCount>(first, count, old, x, qk);
    match_entries<kCount>(count, old, x);
    wait_for_state();
    float a[kCount][4], b[kCount][4];
    sweep<kCount>(a, b);
    __syncthreads();  // match
    float4 learned[kCount];
#pragma unroll
    for (int t = 0; t < kCount; ++t) {
      if (t >= count) break;
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        const int i = row_lane() + kRowLanes * j;
        if (i < old) add_entry(match[i * kTokens + t], x.values[j].value(), a[t], b[t]);
      }
      for (int i = row_lane() + kRowLanes * kAhead; i < old; i += kRowLanes) {
        add_entry(match[i * kTokens + t], four_of(value_at(i) + first_column()), a[t], b[t]);
      }
#pragma unroll
      for (int before = 0; before < t; ++before) {
        if ((old + before) % kRowLanes == row_lane()) add_entry(match[(old + before) * kTokens + t], learned[before], a[t], b[t]);
      }
      learned[t] = finish_token(first + t, old + t, x.beta[t], qk[t], x.v[t], a[t], b[t]);
    }
  }
};

template <Kept kKept, class Key, class Value, bool kSingle>
__global__ void __launch_bounds__(kReplayThreads, (blocks_per_sm<kKept, kSingle>())) verify_heads(const VerifyArgs p) {
  LATHE_DYNAMIC_SHARED(char, state);
  const int s = static_cast<int>(blockIdx.x) / p.heads, h = static_cast<int>(blockIdx.x) % p.heads;
  const int begin = p.batch.begin[s], end = p.batch.begin[s + 1], start = p.batch.start[s], checkpoint = p.checkpoint[s];
  const int64_t in = p.state[s], slot = p.slot[s];
  if (begin == end) return;
  auto& shared = *reinterpret_cast<Shared*>(state + kStateSize * kept_bytes(kKept));
  Window<kKept, Key, Value> window{.p = p,
                                   .shared = shared,
                                   .state = state,
                                   .match = reinterpret_cast<float2*>(&shared + 1),
                                   .keys = static_cast<Key*>(p.ring.keys) + slot * p.ring.key_slot + h * kKeys,
                                   .values = static_cast<Value*>(p.ring.values) + slot * p.ring.value_slot + h * kValues,
                                   .decay = p.ring.decay + slot * p.ring.decay_slot + h * kKeys,
                                   .h = h,
                                   .begin = begin,
                                   .start = start,
                                   .checkpoint = checkpoint,
                                   .ring_first = checkpoint % p.ring.rows,
                                   .zero = true,
                                   .arrived = true};
  window.ask_for_state(in);
  if constexpr (kSingle) {
    window.template segment<1>(begin, 1, p.fold[begin]);
  } else {
    for (int t = begin; t < end;) {
      int folds[kTokens];
#pragma unroll
      for (int i = 0; i < kTokens; ++i) folds[i] = t + i < end ? p.fold[t + i] : 1;
      int count = 1;
#pragma unroll
      for (int i = 1; i < kTokens; ++i) {
        if (count == i && folds[i] == 0) ++count;
      }
      window.template segment<kTokens>(t, count, folds[0]);
      t += count;
      if (t < end) __syncthreads();
    }
  }
}

template <Kept kKept, class Key, class Value>
void launch(const VerifyArgs& args, void* stream) {
  const auto kernel = args.longest > 1 ? verify_heads<kKept, Key, Value, false> : verify_heads<kKept, Key, Value, true>;
  LATHE_LAUNCH(kernel, dim3(static_cast<unsigned>(args.batch.sequences * args.heads)), dim3(kReplayThreads), verify_128_bytes(args), stream, args);
}
template <Kept kKept>
void launch(const VerifyArgs& args, void* stream) {
  if (args.ring.key_type == Type::kF32) return launch<kKept, float, float>(args, stream);
  if (args.ring.value_type == Type::kF32) return launch<kKept, uint16_t, float>(args, stream);
  launch<kKept, uint16_t, uint16_t>(args, stream);
}

}  // namespace

int64_t verify_128_bytes(const VerifyArgs& args) {
  return kStateSize * kept_bytes(args.states.kept) + static_cast<int64_t>(sizeof(Shared)) + int64_t{args.ring.rows} * kTokens * 8;
}

void launch_verify_128(const VerifyArgs& args, void* stream) {
  if (args.batch.sequences == 0 || args.heads == 0) return;
  switch (args.states.kept) {
    case Kept::kF32: return launch<Kept::kF32>(args, stream);
    case Kept::kF16: return launch<Kept::kF16>(args, stream);
    case Kept::kI8: return launch<Kept::kI8>(args, stream);
  }
}

}  // namespace lathe::kernels::cuda
