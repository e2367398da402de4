// matmul, all levels: y = x Wᵀ + bias for several matrices at once.
//
// Idea    see matmul_isa.h and panel.h. A task has a block of rows and walks over panels: a segment of a panel (1 KiB of each of its 2·kLanes rows) is decoded
//         into the first-level cache and multiplied by all tiles of the block, whose lanes are kept until the leaf is complete.
// Limits  weights f32, bf16, f16, f8_e4m3, i8; block scales with any offset.
// Floor   one row: weight bytes; many rows: 2·T·N·K over the peak of FMA or BF16 dot products.
// Ladder  see README.md.
#include <utility>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/levels.h"
#include "kernels/cpu/rows.h"
#include "ops/basic.h"

namespace lathe::kernels::cpu {
namespace {

constexpr int kNodesMax = 48;  // a contiguous range of L leaves is covered by at most 2·log2(L) nodes

struct Part {
  const ops::MatmulPart* params = nullptr;
  PanelSource source;
  Rows x;
  int64_t first_panel = 0;  ///< number of this part's panel 0 among those of all parts
  int64_t leaf_begin = 0;
  int64_t node_count = 0;
  tensor::TreeNode nodes[kNodesMax];
};

void cover(Part& part, int64_t a, int64_t b, int64_t lo, int64_t hi) {
  if (b <= lo || hi <= a) return;
  if (lo <= a && b <= hi) {
    LATHE_CHECK(part.node_count < kNodesMax, "cover of [{}, {}) has more than {} nodes", lo, hi, kNodesMax);
    part.nodes[part.node_count++] = {a, b};
    return;
  }
  const int64_t middle = tensor::tree_middle(a, b);
  cover(part, a, middle, lo, hi);
  cover(part, middle, b, lo, hi);
}

void fill_part(Part& part, const Level& level, const ops::MatmulPart& params, ops::Compute compute) {
  part.params = &params;
  part.source = PanelSource(level, params.weight, compute, params.leaf_channels);
  if (params.leaf_channels > 0 && !part.source.codes()) {
    part.leaf_begin = params.leaf_begin;
    if (params.leaf_total > 0) cover(part, 0, params.leaf_total, params.leaf_begin, params.leaf_begin + part.source.leaves());
  }
  if (part.node_count == 0 && params.y.rank == 2) part.nodes[part.node_count++] = {part.leaf_begin, part.leaf_begin + 1};
}

void write_rows(const Part& part, int64_t node, int64_t row, int64_t count, int64_t panel, int64_t present, const float* totals) {
  const View& y = part.params->y;
  const bool nodes = y.rank == 3;
  const int64_t width = part.source.width();
  float* const out = static_cast<float*>(y.data) + (nodes ? node * y.step(0) : 0) + row * y.step(-2) + panel * width;
  for (int64_t r = 0; r < count; ++r) {
    float* const to = out + r * y.step(-2);
    std::memcpy(to, totals + r * width, static_cast<size_t>(present) * 4);
    if (!part.params->bias.present()) continue;
    for (int64_t n = 0; n < present; ++n) to[n] += vector_at(part.params->bias, panel * width + n);
  }
}

/// Rows [begin, end) of one panel.
void run_panel(const Part& part, PanelRun& run, int64_t panel, int64_t begin, int64_t end, const ops::LaunchContext& context) {
  run.begin(panel);
  // Partial sums of codes are int32, and stay it.
  const auto finish = part.params->y.dtype == DType::kI32 ? PanelSource::Finish::kSums : PanelSource::Finish::kValues;
  for (int64_t node = 0; node < part.node_count; ++node) {
    const float* const totals = run.node(part.x, begin, end - begin, part.nodes[node].begin, part.nodes[node].end, part.leaf_begin, finish);
    write_rows(part, node, begin, end - begin, panel, run.present(), totals);
  }
  LATHE_COUNT(context, kBytesWritten, part.node_count * (end - begin) * run.present() * 4);
  if (part.params->bias.present()) {
    LATHE_COUNT(context, kFlops, (end - begin) * run.present());
    LATHE_COUNT(context, kBytesRead, run.present() * static_cast<int64_t>(tensor::dtype_bytes(part.params->bias.dtype)));
    LATHE_COUNT(context, kWeightBytes, run.present() * static_cast<int64_t>(tensor::dtype_bytes(part.params->bias.dtype)));
  }
}

struct Job {
  Part parts[ops::MatmulParams::kPartsMax];
  int32_t part_count = 0;
  int64_t panels = 0;
  int64_t weight_bytes = 0;
  int64_t worker_bytes = 0;

  const Part& part_of(int64_t panel) const {
    int32_t at = 0;
    while (at + 1 < part_count && parts[at + 1].first_panel <= panel) ++at;
    return parts[at];
  }
};

void run_parts(const Job& job, int64_t rows, int64_t channels, const ops::LaunchContext& context) {
  const MatmulIsa& isa = job.parts[0].source.isa();
  const int64_t block = block_rows(rows, job.panels, context), blocks = ceil_div(rows, block);
  // Few rows: enough panels a task to make waking the pool worth it. Many rows: one panel, block after block so that rows of x stay near.
  const int64_t group = panels_per_task(job.panels, rows > isa.tile_rows, job.weight_bytes, context);
  const int64_t groups = ceil_div(job.panels, group);
  context.pool->for_each(groups * blocks, [&](int64_t task, int worker) {
    void* const memory = context.scratch->local(worker, job.worker_bytes);
    if (memory == nullptr) return;
    const int64_t begin = task / groups * block, end = std::min(rows, begin + block), first = task % groups * group;
    LATHE_COUNT(context, kBytesRead, (end - begin) * channels * 4);
    for (int64_t panel = first; panel < std::min(job.panels, first + group); ++panel) {
      const Part& part = job.part_of(panel);
      PanelRun run(part.source, context, memory, block);
      run_panel(part, run, panel - part.first_panel, begin, end, context);
    }
  });
}

/// x in every format that a part takes. False: no memory.
bool make_inputs(const Level& level, const ops::MatmulParams& p, Job& job, const ops::LaunchContext& context) {
  constexpr int kFormats = static_cast<int>(RowFormat::kWideCodes) + 1;
  bool wanted[kFormats] = {};
  int64_t bytes = 0;
  for (int32_t i = 0; i < job.part_count; ++i) {
    const RowFormat format = job.parts[i].source.format();
    if (std::exchange(wanted[static_cast<int>(format)], true)) continue;
    bytes += RowMaker{level, p.x, format}.bytes();
  }
  char* memory = bytes > 0 ? static_cast<char*>(context.scratch->shared(bytes)) : nullptr;
  if (bytes > 0 && memory == nullptr) return false;
  for (int f = 0; f < kFormats; ++f) {
    if (!wanted[f]) continue;
    const RowMaker maker{level, p.x, static_cast<RowFormat>(f), p.x_amax};
    const Rows rows = maker.make(memory, context);
    memory += maker.bytes();
    for (int32_t i = 0; i < job.part_count; ++i) {
      if (job.parts[i].source.format() == maker.format) job.parts[i].x = rows;
    }
  }
  if (p.x_amax.present()) LATHE_COUNT(context, kBytesRead, p.x.dim(0) * 4);
  return true;
}

void matmul(const Level& level, const ops::MatmulParams& p, const ops::LaunchContext& context) {
  const int64_t rows = p.x.dim(0), channels = p.x.dim(1);
  if (rows == 0) return;
  Job job;
  job.part_count = p.part_count;
  for (int32_t i = 0; i < p.part_count; ++i) {
    Part& part = job.parts[i];
    fill_part(part, level, p.parts[static_cast<size_t>(i)], p.compute);
    part.first_panel = job.panels;
    job.panels += part.source.panels();
    job.weight_bytes += part.source.outputs() * channels * part.source.element_bytes();
  }
  const int64_t block = block_rows(rows, job.panels, context);
  for (int32_t i = 0; i < p.part_count; ++i) {
    job.worker_bytes = std::max(job.worker_bytes, PanelRun::bytes(job.parts[i].source, block, job.parts[i].source.leaves()));
  }
  if (!make_inputs(level, p, job, context)) return;
  run_parts(job, rows, channels, context);
}

template <class L>
void run(const void* params, const ops::LaunchContext& context) {
  matmul(L::level(), *static_cast<const ops::MatmulParams*>(params), context);
}

}  // namespace

void LATHE_KERNEL(matmul_scalar)(const void* params, const ops::LaunchContext& context) { run<ScalarLevel>(params, context); }
void LATHE_KERNEL(matmul_avx2)(const void* params, const ops::LaunchContext& context) { run<Avx2Level>(params, context); }
void LATHE_KERNEL(matmul_avx512)(const void* params, const ops::LaunchContext& context) { run<Avx512Level>(params, context); }
void LATHE_KERNEL(matmul_avx512vnni)(const void* params, const ops::LaunchContext& context) { run<Avx512VnniLevel>(params, context); }
void LATHE_KERNEL(matmul_avx512bf16)(const void* params, const ops::LaunchContext& context) { run<Avx512Bf16Level>(params, context); }

}  // namespace lathe::kernels::cpu
