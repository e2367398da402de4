// gate_up, all levels: out = swiglu(x Gᵀ, x Uᵀ) with both products of a panel in one task.
//
// Idea    as matmul.cc; the totals of the gate panel and of the up panel meet in the first-level cache and never reach memory.
// Limits  as matmul. Numerics of matmul and swiglu one after the other.
// Floor   one row: bytes of both matrices; many rows: 4·T·I·K over the peak of FMA or BF16 dot products.
#include "kernels/cpu/gate_up.h"

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/levels.h"
#include "ops/basic.h"

namespace lathe::kernels::cpu {
namespace {

/// Adds a bias to the totals of a tile.
void add_bias(const View& bias, float* totals, int64_t count, int64_t width, int64_t first, int64_t present, const ops::LaunchContext& context) {
  if (!bias.present()) return;
  for (int64_t r = 0; r < count; ++r) {
    for (int64_t n = 0; n < present; ++n) totals[r * width + n] += vector_at(bias, first + n);
  }
  LATHE_COUNT(context, kFlops, count * present);
}

void count_bias(const View& bias, int64_t present, const ops::LaunchContext& context) {
  if (!bias.present()) return;
  LATHE_COUNT(context, kWeightBytes, present * static_cast<int64_t>(tensor::dtype_bytes(bias.dtype)));
  LATHE_COUNT(context, kBytesRead, present * static_cast<int64_t>(tensor::dtype_bytes(bias.dtype)));
}

void gate_up(const Level& level, const ops::GateUpParams& p, const ops::LaunchContext& context) {
  const int64_t rows = p.x.dim(0), channels = p.x.dim(1);
  if (rows == 0) return;
  const MatmulIsa& isa = *level.base;
  const GateUp pair(level, p.gate, p.up, p.compute);
  const RowMaker gate_maker{level, p.x, pair.gate.format()}, up_maker{level, p.x, pair.up.format()};
  const bool same = gate_maker.format == up_maker.format;
  const int64_t bytes = gate_maker.bytes() + (same ? 0 : up_maker.bytes());
  char* const memory = bytes > 0 ? static_cast<char*>(context.scratch->shared(bytes)) : nullptr;
  if (bytes > 0 && memory == nullptr) return;
  const Rows gate_x = gate_maker.make(memory, context);
  const Rows up_x = same ? gate_x : up_maker.make(memory + gate_maker.bytes(), context);

  const int64_t panels = pair.gate.panels(), block = block_rows(rows, panels, context), blocks = ceil_div(rows, block);
  const int64_t group =
      panels_per_task(panels, rows > isa.tile_rows, pair.gate.outputs() * channels * (pair.gate.element_bytes() + pair.up.element_bytes()), context);
  const int64_t groups = ceil_div(panels, group), width = isa.width;
  context.pool->for_each(groups * blocks, [&](int64_t task, int worker) {
    void* const local = context.scratch->local(worker, pair.bytes(block));
    if (local == nullptr) return;
    const int64_t begin = task / groups * block, end = std::min(rows, begin + block), first = task % groups * group;
    LATHE_COUNT(context, kBytesRead, (end - begin) * channels * 4);
    for (int64_t panel = first; panel < std::min(panels, first + group); ++panel) {
      pair.run(panel, begin, end, gate_x, up_x, block, local, context, [&](int64_t row, int64_t count, int64_t present, float* gate, float* up) {
        add_bias(p.gate_bias, gate, count, width, panel * width, present, context);
        add_bias(p.up_bias, up, count, width, panel * width, present, context);
        for (int64_t r = 0; r < count; ++r) {
          isa.swiglu(gate + r * width, up + r * width, p.limit, present, p.out.f32() + (row + r) * p.out.step(0) + panel * width);
        }
        count_swiglu(count * present, context);
        LATHE_COUNT(context, kBytesWritten, count * present * 4);
      });
      count_bias(p.gate_bias, std::min(width, p.gate.rows() - panel * width), context);
      count_bias(p.up_bias, std::min(width, p.gate.rows() - panel * width), context);
    }
  });
}

template <class L>
void run(const void* params, const ops::LaunchContext& context) {
  gate_up(L::level(), *static_cast<const ops::GateUpParams*>(params), context);
}

}  // namespace

void LATHE_KERNEL(gate_up_scalar)(const void* params, const ops::LaunchContext& context) { run<ScalarLevel>(params, context); }
void LATHE_KERNEL(gate_up_avx2)(const void* params, const ops::LaunchContext& context) { run<Avx2Level>(params, context); }
void LATHE_KERNEL(gate_up_avx512)(const void* params, const ops::LaunchContext& context) { run<Avx512Level>(params, context); }
void LATHE_KERNEL(gate_up_avx512vnni)(const void* params, const ops::LaunchContext& context) { run<Avx512VnniLevel>(params, context); }
void LATHE_KERNEL(gate_up_avx512bf16)(const void* params, const ops::LaunchContext& context) { run<Avx512Bf16Level>(params, context); }

}  // namespace lathe::kernels::cpu
