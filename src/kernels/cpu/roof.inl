// Loops for measuring a core's roofs, for every level (roof_isa.h). Included once per level by roof_<level>.cc, after simd.h.
//
// Limits  reading and copying: load and store ports while the data lie in the first-level cache, then the cache or memory behind it. Arithmetic: the
//         multiply-add ports; latency (4 to 6 cycles on 2 ports) is hidden by kAccumulators independent sums, which fit the registers of the level.

namespace lathe::kernels::cpu::LATHE_ISA {
namespace {

constexpr int kAccumulators = kLanes == 16 ? 20 : 12;
constexpr int64_t kVector = static_cast<int64_t>(sizeof(Vi));

uint32_t roof_read(const void* from, int64_t bytes) {
  const char* p = static_cast<const char*>(from);
  Vi sum[4] = {iset1(0), iset1(0), iset1(0), iset1(0)};
  for (const char* const end = p + bytes; p != end; p += 8 * kVector) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) sum[i % 4] = ior(sum[i % 4], iload(p + i * kVector));
  }
  uint32_t lanes[kLanes];
  istore(lanes, ior(ior(sum[0], sum[1]), ior(sum[2], sum[3])));
  uint32_t all = 0;
  for (const uint32_t lane : lanes) all |= lane;
  return all;
}

void roof_copy(void* to, const void* from, int64_t bytes) {
  const char* p = static_cast<const char*>(from);
  char* q = static_cast<char*>(to);
  for (const char* const end = p + bytes; p != end; p += 8 * kVector, q += 8 * kVector) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) istore(q + i * kVector, iload(p + i * kVector));
  }
}

float roof_multiply_add(int64_t rounds) {
  Vf sum[kAccumulators];
  for (int i = 0; i < kAccumulators; ++i) sum[i] = set1(static_cast<float>(i));
  // Each sum tends to 2: no subnormal, no infinity, and nothing that could be taken out of the loop.
  const Vf half = set1(0.5f), one = set1(1.0f);
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 32
    for (int i = 0; i < kAccumulators; ++i) sum[i] = fma(sum[i], half, one);
  }
  for (int i = 1; i < kAccumulators; ++i) sum[0] = add(sum[0], sum[i]);
  return hsum(sum[0]);
}

constexpr RoofIsa roof_level(const char* name) {
  static_assert(kRoofStep % (8 * kVector) == 0);
  RoofIsa isa;
  isa.name = name;
  isa.read = roof_read;
  isa.copy = roof_copy;
  isa.multiply_add = {roof_multiply_add, 2 * kLanes * kAccumulators};
  return isa;
}

}  // namespace
}  // namespace lathe::kernels::cpu::LATHE_ISA
