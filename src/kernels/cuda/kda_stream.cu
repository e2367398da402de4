// The gated delta rule for many heads of 128 x 128: blocks that stay, one a multiprocessor, through which the states stream (docs/kernels/kda_decode.md).
//
// Roles     Warp 7 moves whole states of 64 KiB, which lie in one piece, between memory and three stages in shared memory by bulk copies: two are always on
//           their way while the third is worked on. Warps 4–6 prepare tokens up to three ahead. Warps 0–3 have 32 columns each and do the arithmetic.
// Order     Items are heads of sequences, block b has items b, b + blocks, …; every role goes through them, and their tokens, in the same order.
// Warps     Eight: a ninth would cut the registers of all to 168, and the workers spilled (57 % of the bandwidth instead of 93 %).
// Measured  One H200, 2026-11-30, 64 heads: 74.3 µs at B = 32 (89 % of in-place bandwidth), 145 at 64 (91 %), 1128 at 512 (94 %); the whole step 80.0, 153, 1178.
// Bits      Those of the tiles in kda_decode.cu.

#include "kernels/cuda/async_copy.h"
#include "kernels/cuda/kda_tile.h"

namespace lathe::kernels::cuda {
namespace {

constexpr int kStages = 3;
constexpr int kSlots = 3;
constexpr int kWorkers = 4;    // warps
constexpr int kPreparers = 3;  // warps; token n belongs to warp n mod 3, and to slot n mod 3
constexpr int kStreamThreads = 32 * (kWorkers + kPreparers + 1);
constexpr unsigned kStateBytes = kStateSize * 4;
constexpr int kTaps = 4;
static_assert(kSlots == kPreparers);

enum Flag : int { kFirst = 1, kLast = 2, kZero = 4, kStop = 8 };

/// A prepared token.
struct Slot {
  Channel channels[kKeys];
  float v[kValues];
  float out_scale[kValues];  ///< of the whole step: norm weight times σ(gate)
  float qk, beta;
  int flags;
  int t, h, out;
};

__device__ __forceinline__ int sequences_of(const RecurrenceArgs& p) { return p.batch.sequences; }
__device__ __forceinline__ int sequences_of(const KdaStepArgs& p) { return p.sequences; }
__device__ __forceinline__ int first_token(const RecurrenceArgs& p, int s) { return p.batch.begin[s]; }
__device__ __forceinline__ int first_token(const KdaStepArgs&, int s) { return s; }
__device__ __forceinline__ const float* entering_of(const RecurrenceArgs& p, int64_t in) { return p.entering + in * p.entering_stride; }
__device__ __forceinline__ const float* entering_of(const KdaStepArgs& p, int64_t in) { return p.states + in * p.states_stride; }

/// The items of this block that have tokens.
template <class Args>
struct Items {
  const Args& p;
  int item = static_cast<int>(blockIdx.x);
  int begin = 0, end = 0;
  int number = -1;

  __device__ __forceinline__ explicit Items(const Args& args) : p(args) {}
  __device__ __forceinline__ int sequence() const { return item / p.heads; }
  __device__ __forceinline__ int head() const { return item % p.heads; }
  /// False: there are no more.
  __device__ __forceinline__ bool next() {
    if (number >= 0) item += static_cast<int>(gridDim.x);
    for (; item < sequences_of(p) * p.heads; item += static_cast<int>(gridDim.x)) {
      begin = first_token(p, sequence()), end = first_token(p, sequence() + 1);
      if (begin == end) continue;
      ++number;
      return true;
    }
    return false;
  }
};

/// σ in the hardware's own exponential and division: 1e-6 of it.
__device__ __forceinline__ float sigmoid_near(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }

/// The convolution's output and the gates of one head are made here. A lane has four channels side by side.
template <class Wait>
__device__ void fill_slot(const KdaStepArgs& p, int64_t s, int64_t h, Slot& slot, const Wait& wait_for_slot) {
  const int first = (static_cast<int>(threadIdx.x) & 31) * 4;
  const int start = p.start[s];
  const int64_t all = static_cast<int64_t>(p.heads) * kKeys;
  const int64_t here = h * kKeys + first;
  float* const ring = p.ring + p.slot[s] * p.ring_slot + here;
  const int64_t newest = start % p.ring_rows * p.ring_row;
  float4 x[3][kTaps], w[3][kTaps];  // newest last
#pragma unroll
  for (int part = 0; part < 3; ++part) {
    x[part][kTaps - 1] = four_of(p.raw.data + s * p.raw.stride + part * all + here);
#pragma unroll
    for (int j = 0; j < kTaps; ++j) w[part][j] = four_of(p.conv + (3 * j + part) * all + here);
#pragma unroll
    for (int back = 1; back < kTaps; ++back) {
      const int64_t row = (start + back * (p.ring_rows - 1)) % p.ring_rows * p.ring_row;
      x[part][kTaps - 1 - back] = start >= back ? four_of(ring + row + part * all) : make_float4(0, 0, 0, 0);
    }
  }
  const float4 a = four_of(p.a.data + s * p.a.stride + here);
  const float4 gate = four_of(p.gate.data + s * p.gate.stride + here);
  const float rate = expf(element(p.a_log, h));
  const float as[4] = {a.x, a.y, a.z, a.w};
  float e[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) e[i] = p.lower_bound / (1.0f + expf(-rate * (as[i] + element(p.dt_bias, here + i))));
  float mixed[3][4];
#pragma unroll
  for (int part = 0; part < 3; ++part) {
    float* const z = mixed[part];
    z[0] = z[1] = z[2] = z[3] = 0;
#pragma unroll
    for (int j = 0; j < kTaps; ++j) {
      z[0] = fmaf(w[part][j].x, x[part][j].x, z[0]), z[1] = fmaf(w[part][j].y, x[part][j].y, z[1]);
      z[2] = fmaf(w[part][j].z, x[part][j].z, z[2]), z[3] = fmaf(w[part][j].w, x[part][j].w, z[3]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) z[i] *= sigmoid_near(z[i]);
    *reinterpret_cast<float4*>(ring + newest + part * all) = x[part][kTaps - 1];
  }
  const float4 scale =
      make_float4(element(p.norm_weight, first) * sigmoid_near(gate.x), element(p.norm_weight, first + 1) * sigmoid_near(gate.y),
                  element(p.norm_weight, first + 2) * sigmoid_near(gate.z), element(p.norm_weight, first + 3) * sigmoid_near(gate.w));
  wait_for_slot();
  *reinterpret_cast<float4*>(slot.v + first) = make_float4(mixed[2][0], mixed[2][1], mixed[2][2], mixed[2][3]);
  *reinterpret_cast<float4*>(slot.out_scale + first) = scale;
  const float qk = normalise(mixed[0], mixed[1], e, first, 1, slot.channels);
  if (first == 0) slot.qk = qk, slot.beta = 1.0f / (1.0f + expf(-p.b.data[s * p.b.stride + h]));
}

template <class Wait>
__device__ void fill_slot(const RecurrenceArgs& p, int64_t t, int64_t h, Slot& slot, const Wait& wait_for_slot) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const float* const v = p.v.data + t * p.v.outer + h * p.v.inner;
  float mine[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) mine[i] = v[lane + 32 * i];
  const float beta = p.beta.data[t * p.beta.stride + h];
  wait_for_slot();
  const float qk = prepare(p, t, h, slot.channels);
#pragma unroll
  for (int i = 0; i < 4; ++i) slot.v[lane + 32 * i] = mine[i];
  if (lane == 0) slot.qk = qk, slot.beta = beta;
}

/// Every thread that wrote or read arrives itself: a chain over __syncwarp and one lane is sound too, but the race checker does not follow it.
struct Barriers {
  Barrier loaded[kStages], worked[kStages];
  Barrier prepared[kSlots], taken[kSlots];
};

/// One thread.
template <class Args>
__device__ void move_states(const Args& p, float* stages, Barriers& b) {
  Items<Args> ahead(p);  // its place in memory is looked up one item early
  bool more = ahead.next();
  int in = more ? p.state_in[ahead.sequence()] : 0;
  const auto load_next = [&]() {
    if (!more) return;
    const int stage = ahead.number % kStages;
    if (in < 0) {
      barrier_arrive(&b.loaded[stage]);
    } else {
      barrier_arrive_expect(&b.loaded[stage], kStateBytes);
      bulk_load(stages + stage * kStateSize, entering_of(p, in) + ahead.head() * kStateSize, kStateBytes, &b.loaded[stage]);
    }
    more = ahead.next();
    in = more ? p.state_in[ahead.sequence()] : 0;
  };
  for (int i = 0; i < kStages; ++i) load_next();
  Items<Args> items(p);
  while (items.next()) {
    const int stage = items.number % kStages;
    const int out = p.state_out[items.end - 1];
    barrier_wait(&b.worked[stage], static_cast<unsigned>(items.number / kStages) & 1u);
    if (out >= 0) {
      bulk_store(p.states + out * p.states_stride + items.head() * kStateSize, stages + stage * kStateSize, kStateBytes);
      bulk_stores_read();
    }
    load_next();
  }
  bulk_stores_done();
}

template <class Args>
__device__ void prepare_tokens(const Args& p, Slot* slots, Barriers& b) {
  const int warp = static_cast<int>(threadIdx.x) / 32 - kWorkers;
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const auto wait_for_slot = [&](int number) {
    if (number >= kSlots) barrier_wait(&b.taken[warp], static_cast<unsigned>(number / kSlots - 1) & 1u);
  };
  const auto post = [&]() { barrier_arrive(&b.prepared[warp]); };
  Slot& slot = slots[warp];
  int number = 0;
  Items<Args> items(p);
  while (items.next()) {
    for (int t = items.begin; t < items.end; ++t, ++number) {
      if (number % kSlots != warp) continue;
      const int out = p.state_out[t];
      const int in = p.state_in[items.sequence()];
      fill_slot(p, t, items.head(), slot, [&]() { wait_for_slot(number); });
      if (lane == 0) {
        slot.flags = (t == items.begin ? kFirst : 0) | (t + 1 == items.end ? kLast : 0) | (in < 0 ? kZero : 0);
        slot.t = t, slot.h = items.head(), slot.out = out;
      }
      post();
    }
  }
  if (number % kSlots != warp) return;
  wait_for_slot(number);
  if (lane == 0) slot.flags = kStop;
  post();
}

__device__ __forceinline__ void write_output(const RecurrenceArgs& p, const Slot& slot, int column, const float* o, float*) {
  if (Tile<32>::row(0) != 0) return;
  float* const to = p.o.data + slot.t * p.o.outer + slot.h * p.o.inner + column;
  to[0] = o[0], to[1] = o[1], to[2] = o[2], to[3] = o[3];
}
/// Gated norm over the head; `squares` has one number for each warp.
__device__ __forceinline__ void write_output(const KdaStepArgs& p, const Slot& slot, int column, const float* o, float* squares) {
  float square = fmaf(o[0], o[0], fmaf(o[1], o[1], fmaf(o[2], o[2], o[3] * o[3])));
#pragma unroll
  for (int mask = 1; mask < 8; mask <<= 1) square += __shfl_xor_sync(0xFFFFFFFFu, square, mask);
  if (threadIdx.x % 32 == 0) squares[threadIdx.x / 32] = square;
  part_barrier(1, 32 * kWorkers);
  const float factor = rsqrtf(((squares[0] + squares[1]) + (squares[2] + squares[3])) * (1.0f / kValues) + p.eps);
  if (Tile<32>::row(0) != 0) return;
  float* const to = p.out.data + slot.t * p.out.stride + slot.h * kValues + column;
#pragma unroll
  for (int j = 0; j < 4; ++j) to[j] = o[j] * factor * slot.out_scale[column + j];
}

template <class Args>
__device__ void work(const Args& p, float* stages, const Slot* slots, Barriers& b, float (*squares)[kWorkers]) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int first = warp * 32;
  const int column = first + Tile<32>::column();
  Tile<32> tile;
  int item = 0;
  for (int number = 0;; ++number) {
    const Slot& slot = slots[number % kSlots];
    barrier_wait(const_cast<Barrier*>(&b.prepared[number % kSlots]), static_cast<unsigned>(number / kSlots) & 1u);
    const int flags = slot.flags;
    if ((flags & kStop) != 0) return;
    float* const stage = stages + item % kStages * kStateSize;
    if ((flags & kFirst) != 0) {
      barrier_wait(&b.loaded[item % kStages], static_cast<unsigned>(item / kStages) & 1u);
      if ((flags & kZero) != 0) {
        tile.zero();
      } else {
        tile.load_shared(stage, first);
      }
    }
    float o[4];
    tile.step(slot.channels, slot.v + column, slot.beta, slot.qk, o);
    if ((flags & kLast) != 0) {
      tile.save_shared(stage, first);
      fence_for_bulk();
      barrier_arrive(&b.worked[item % kStages]);
      ++item;
    } else if (slot.out >= 0) {
      tile.save(p.states + slot.out * p.states_stride + slot.h * kStateSize + first);
    }
    write_output(p, slot, column, o, squares[number % 2]);
    barrier_arrive(&b.taken[number % kSlots]);
  }
}

template <class Args>
__global__ void __launch_bounds__(kStreamThreads, 1) kda_stream(const Args p) {
  LATHE_DYNAMIC_SHARED(float, stages);
  __shared__ Slot slots[kSlots];
  __shared__ Barriers barriers;
  __shared__ float squares[2][kWorkers];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) barrier_init(&barriers.loaded[i], 1), barrier_init(&barriers.worked[i], 32 * kWorkers);
    for (int i = 0; i < kSlots; ++i) barrier_init(&barriers.prepared[i], 32), barrier_init(&barriers.taken[i], 32 * kWorkers);
    barriers_ready();
  }
  __syncthreads();
  if (warp < kWorkers) {
    work(p, stages, slots, barriers, squares);
  } else if (warp < kWorkers + kPreparers) {
    prepare_tokens(p, slots, barriers);
  } else if (threadIdx.x % 32 == 0) {
    move_states(p, stages, barriers);
  }
}

template <class Args>
void launch(const Args& args, int64_t items, void* stream) {
  const auto blocks = static_cast<unsigned>(items < multiprocessors() ? items : multiprocessors());
  const auto kernel = kda_stream<Args>;
  LATHE_LAUNCH(kernel, dim3(blocks), dim3(kStreamThreads), kStages * static_cast<int64_t>(kStateBytes), stream, args);
}

}  // namespace

void launch_recurrence_stream(const RecurrenceArgs& args, void* stream) { launch(args, int64_t{args.batch.sequences} * args.heads, stream); }
void launch_kda_step_stream(const KdaStepArgs& args, void* stream) { launch(args, int64_t{args.sequences} * args.heads, stream); }

}  // namespace lathe::kernels::cuda
