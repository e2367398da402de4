// The tile of a matrix product, for floats, BF16 pairs and INT8 codes: kRows rows of x times one group of a panel (matmul_isa.h). After simd.h.

namespace lathe::kernels::cpu::LATHE_ISA {
namespace {

constexpr int kGroup = 4 * kLanes;  // floats of one vector set: 4 vectors

/// Asks for the line at `offset` in every row of a vector; an address outside any mapping does nothing.
LATHE_INLINE void prefetch_rows(const char* const* rows, int64_t offset) {
#pragma GCC unroll 4
  for (int q = 0; q < kLanes / 4; ++q)
    __builtin_prefetch(reinterpret_cast<const char*>(reinterpret_cast<uintptr_t>(rows[4 * q]) + static_cast<uintptr_t>(offset)));
}

/// 16 bytes of every row of a vector, of which `bytes` are there.
LATHE_INLINE Vi load_tail(const char* const* rows, int64_t offset, int64_t bytes) {
  char parts[4 * kLanes] = {};
  for (int q = 0; q < kLanes / 4; ++q) __builtin_memcpy(parts + 16 * q, rows[4 * q] + offset, static_cast<size_t>(bytes));
  return iload(parts);
}

template <int kRows>
struct Sums {
  Vf v[kRows][4];
};

/// Asks for lines of the weights that come next: while they are on their way, the product goes on.
struct Asking {
  const char* at;

  LATHE_INLINE Asking make(const TileArgs& args, int64_t skip) { return {args.ask + skip}; }
  inline __attribute__((always_inline)) void next() {
    __builtin_prefetch(at);
    __builtin_prefetch(at + 64);
    at += kAskedBytes;
  }
};
struct NotAsking {
  LATHE_INLINE NotAsking make(const TileArgs&, int64_t) { return {}; }
  inline __attribute__((always_inline)) void next() const {}
};

template <int kRows, class Step, class Ask>
LATHE_INLINE void tile_steps(Sums<kRows>& sum, const char* x, int64_t stride, const char* panel, int64_t steps, Ask ask) {
  // One pointer for three rows: the other two are reached by the address forms [p + s] and [p + 2 s].
  const char* row[(kRows + 2) / 3];
#pragma GCC unroll 16
  for (int g = 0; g < (kRows + 2) / 3; ++g) row[g] = x + 3 * g * stride;
  for (int64_t c = 0; c < steps; ++c, panel += 4 * sizeof(Vf)) {
    ask.next();
    Vi w[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) w[i] = iload(panel + i * static_cast<int>(sizeof(Vf)));
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const Vi a = broadcast_part(row[r / 3] + r % 3 * stride);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) sum.v[r][i] = Step::multiply(a, w[i], sum.v[r][i]);
    }
#pragma GCC unroll 16
    for (int g = 0; g < (kRows + 2) / 3; ++g) row[g] += 16;
  }
}

template <int kRows, class Step, class Ask>
LATHE_INLINE void tile_group(const TileArgs& args, int group) {
  constexpr int64_t kStep = 16 / Step::kBytes;
  const int64_t steps = args.channels / kStep, tail = args.channels % kStep;
  const char* const panel = static_cast<const char*>(args.panel) + group * (steps + (tail != 0 ? 1 : 0)) * 4 * static_cast<int64_t>(sizeof(Vf));
  float* const lanes = args.lanes + group * kRows * kGroup;
  const bool resume = !args.first && args.scale == nullptr;
  Sums<kRows> sum;
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) sum.v[r][i] = resume ? load(lanes + r * kGroup + i * kLanes) : zero();
  }
  tile_steps<kRows, Step>(sum, args.x, args.x_stride, panel, steps, Ask::make(args, group * steps * kAskedBytes));
  if (tail != 0) {
    char padded[kRows * 16] = {};
    for (int r = 0; r < kRows; ++r)
      __builtin_memcpy(padded + 16 * r, args.x + r * args.x_stride + steps * 16, static_cast<size_t>(tail * Step::kBytes));
    tile_steps<kRows, Step>(sum, padded, 16, panel + steps * 4 * static_cast<int64_t>(sizeof(Vf)), 1, NotAsking{});
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    if (args.scale != nullptr) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const Vf scale = load(args.scale + group * kGroup + i * kLanes);
        sum.v[r][i] = args.first ? mul(sum.v[r][i], scale) : fma(sum.v[r][i], scale, load(lanes + r * kGroup + i * kLanes));
      }
    }
    if (args.last) {
      store(args.total + r * 2 * kLanes + group * kLanes, Step::total(sum.v[r]));
    } else {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) store(lanes + r * kGroup + i * kLanes, sum.v[r][i]);
    }
  }
}

template <int kRows, class Step, class Ask = NotAsking>
void tile(const TileArgs& args) {
  tile_group<kRows, Step, Ask>(args, 0);
  tile_group<kRows, Step, Ask>(args, 1);
}
/// By number of rows. The tiles that ask are others: in a long prompt most do not, and theirs is the loop that counts.
#if defined(LATHE_SIMD_AVX512)
template <class Step, class Ask>
constexpr TileFn kTilesOf[] = {nullptr,           tile<1, Step, Ask>, tile<2, Step, Ask>, tile<3, Step, Ask>, tile<4, Step, Ask>, tile<5, Step, Ask>,
                               tile<6, Step, Ask>};
#else
template <class Step, class Ask>
constexpr TileFn kTilesOf[] = {nullptr, tile<1, Step, Ask>, tile<2, Step, Ask>, tile<3, Step, Ask>};
#endif

struct FloatStep {
  static constexpr int64_t kBytes = 4;
  LATHE_INLINE Vf multiply(Vi x, Vi w, Vf sum) { return fma(as_float(x), as_float(w), sum); }
  LATHE_INLINE Vf total(const Vf (&v)[4]) { return sum_parts(v); }
};

}  // namespace
}  // namespace lathe::kernels::cpu::LATHE_ISA
