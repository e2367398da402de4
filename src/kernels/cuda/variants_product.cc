// Matrix products and experts; and the whole table.

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

#include "kernels/cuda/cuda_variants.h"
#include "kernels/cuda/fill.h"
#include "ops/basic.h"
#include "ops/mla.h"
#include "ops/moe.h"

namespace lathe::kernels::cuda {
namespace {

using ops::Compute;
using ops::LaunchContext;
using ops::OpId;

/// A tile's partial sums of every segment lie in shared memory: 16 x 16 floats (8 tokens: half of that) a segment.
constexpr int64_t kSegmentBytes = 16 * 16 * 4;

bool fits_leaves(int64_t cols, int64_t leaf, int64_t limit = kSharedMax) { return leaf == 0 || (cols + leaf - 1) / leaf * kSegmentBytes <= limit; }
constexpr int64_t kMmaSharedMax = kSharedMax - 64 * 1024;  // beside the ring of product_tile.h

/// The tensor cores take BF16 and FP8 in fast mode, 16 bytes of a row at a time and with one scale per chunk of 64 channels.
bool fits_mma(const MatrixView& m, Compute compute, int64_t leaf) {
  if (compute == Compute::kF32 || !readable(m, compute) || !fits_leaves(m.cols(), leaf, kMmaSharedMax)) return false;
  if (m.values.dtype != DType::kBF16 && m.values.dtype != DType::kF8E4M3) return false;
  const int64_t each = m.values.dtype == DType::kF8E4M3 ? 16 : 8;
  if (m.scaled() && (each == 8 || m.block_cols % 64 != 0 || m.col_offset % 64 != 0 || leaf % 64 != 0)) return false;
  return m.cols() % each == 0 && m.values.step(0) % each == 0 && leaf % each == 0 && reinterpret_cast<uintptr_t>(m.values.data) % 16 == 0;
}

/// Clusters of blocks (cluster_tile.h): the same weights, scale blocks as wide as their own.
bool fits_wgmma(const MatrixView& m, Compute compute) {
  if (!fits_mma(m, compute, 0) || m.cols() > kClusterColsMax) return false;
  if (m.cols() % (m.values.dtype == DType::kF8E4M3 ? 128 : 64) != 0) return false;
  return !m.scaled() || (m.block_cols == 128 && m.col_offset % 128 == 0 && m.block_rows == 128 && m.row_offset % 16 == 0);
}
bool alike(const MatrixView& a, const MatrixView& b) { return a.values.dtype == b.values.dtype && a.scaled() == b.scaled(); }

ProductArgs product(const MatrixView& weight, const View& bias, const View& x, Compute compute) {
  const Matrix m = matrix_of(weight);
  return {.weight = m,
          .bias = vector_of(bias),
          .x = x.f32(),
          .x_stride = x.step(0),
          .x_head = 0,
          .y = nullptr,
          .y_stride = 0,
          .y_head = 0,
          .y_node = 0,
          .tokens = narrow(x.dim(0)),
          .heads = 1,
          .head_rows = m.rows,
          .first_row = 0,
          .rows = m.rows,
          .leaf_channels = 0,
          .leaf_begin = 0,
          .leaf_total = 0,
          .partial = false,
          .fast = compute != Compute::kF32};
}

using LaunchProduct = void (*)(const ProductArgs* args, int count, void* scratch, void* stream);
void launch_plain(const ProductArgs* args, int count, void*, void* stream) { launch_product_plain(args, count, stream); }
void launch_mma(const ProductArgs* args, int count, void*, void* stream) { launch_product_mma(args, count, stream); }
/// What a launch needs, and `more` bytes behind it.
template <LaunchProduct kLaunch>
std::pair<void*, void*> product_scratch(const LaunchContext& context, const ProductArgs* args, int count, int64_t more) {
  const int64_t own = kLaunch == launch_product_wgmma ? (product_scratch_bytes(args, count) + 255) / 256 * 256 : 0;
  if (own + more == 0) return {};
  auto* const memory = static_cast<std::byte*>(scratch(context, own + more));
  return {memory, memory + own};
}

template <LaunchProduct kLaunch>
void matmul(const void* params, const LaunchContext& context) {
  const auto& p = as<ops::MatmulParams>(params);
  std::array<ProductArgs, kProductPartsMax> args{};
  for (int32_t i = 0; i < p.part_count; ++i) {
    const ops::MatmulPart& part = p.parts[static_cast<size_t>(i)];
    ProductArgs& a = args[static_cast<size_t>(i)] = product(part.weight, part.bias, p.x, p.compute);
    a.partial = part.y.rank == 3;
    a.y = part.y.f32();
    a.y_stride = part.y.step(a.partial ? 1 : 0);
    a.y_node = a.partial ? part.y.step(0) : 0;
    a.leaf_channels = narrow(part.leaf_channels), a.leaf_begin = narrow(part.leaf_begin), a.leaf_total = narrow(part.leaf_total);
  }
  kLaunch(args.data(), p.part_count, product_scratch<kLaunch>(context, args.data(), p.part_count, 0).first, context.stream);
}
template <bool kMma>
bool matmul_fits(const void* params) {
  const auto& p = as<ops::MatmulParams>(params);
  return std::all_of(p.parts.begin(), p.parts.begin() + p.part_count, [&](const ops::MatmulPart& part) {
    return kMma ? fits_mma(part.weight, p.compute, part.leaf_channels)
                : readable(part.weight, p.compute) && fits_leaves(part.weight.cols(), part.leaf_channels);
  });
}

/// No leaves; or all leaves of a tree whose eight nodes of the third level have 1, 2, 4 or 8 each.
bool leaves_fit_wgmma(const ops::MatmulPart& part) {
  if (part.leaf_channels == 0) return true;
  const int64_t cols = part.weight.cols();
  return part.leaf_channels == 128 && part.leaf_begin == 0 && part.leaf_total * 128 == cols && part.y.rank == 2 &&
         (cols == 1024 || cols == 2048 || cols == 4096 || cols == 8192);
}
bool matmul_fits_wgmma(const void* params) {
  const auto& p = as<ops::MatmulParams>(params);
  return std::all_of(p.parts.begin(), p.parts.begin() + p.part_count, [&](const ops::MatmulPart& part) {
    return leaves_fit_wgmma(part) && part.leaf_channels == p.parts[0].leaf_channels && fits_wgmma(part.weight, p.compute) &&
           alike(part.weight, p.parts[0].weight);
  });
}

template <LaunchProduct kLaunch>
void gate_up(const void* params, const LaunchContext& context) {
  const auto& p = as<ops::GateUpParams>(params);
  const int64_t tokens = p.x.dim(0);
  const int64_t inner = p.out.dim(1);
  if (tokens == 0 || inner == 0) return;
  std::array<ProductArgs, 2> args{product(p.gate, p.gate_bias, p.x, p.compute), product(p.up, p.up_bias, p.x, p.compute)};
  const auto [own, more] = product_scratch<kLaunch>(context, args.data(), 2, 2 * tokens * inner * 4);
  auto* const both = static_cast<float*>(more);
  for (size_t i = 0; i < 2; ++i) args[i].y = both + static_cast<int64_t>(i) * tokens * inner, args[i].y_stride = inner;
  kLaunch(args.data(), 2, own, context.stream);
  launch_swiglu(
      {.a = {args[0].y, inner}, .b = {args[1].y, inner}, .out = rows_of(p.out), .tokens = narrow(tokens), .width = narrow(inner), .limit = p.limit},
      context.stream);
}
bool gate_up_fits(const void* params) {
  const auto& p = as<ops::GateUpParams>(params);
  return readable(p.gate, p.compute) && readable(p.up, p.compute);
}
bool gate_up_fits_mma(const void* params) {
  const auto& p = as<ops::GateUpParams>(params);
  return fits_mma(p.gate, p.compute, 0) && fits_mma(p.up, p.compute, 0);
}
bool gate_up_fits_wgmma(const void* params) {
  const auto& p = as<ops::GateUpParams>(params);
  return fits_wgmma(p.gate, p.compute) && fits_wgmma(p.up, p.compute) && alike(p.gate, p.up);
}

template <LaunchProduct kLaunch>
void mla_unabsorb(const void* params, const LaunchContext& context) {
  const auto& p = as<ops::MlaUnabsorbParams>(params);
  ProductArgs args = product(p.kv_b.matrix, {}, p.z, p.compute);
  args.x_head = p.z.step(1);
  args.y = p.out.f32(), args.y_stride = p.out.step(0), args.y_head = p.out.step(1);
  args.heads = narrow(p.z.dim(1));
  args.head_rows = p.kv_b.nope + p.kv_b.value, args.first_row = p.kv_b.nope, args.rows = p.kv_b.value;
  kLaunch(&args, 1, nullptr, context.stream);
}

void route(const void* params, const LaunchContext& context) {
  const auto& p = as<ops::RouteParams>(params);
  launch_route({.logits = rows_of(p.logits),
                .bias = vector_of(p.bias),
                .groups = p.groups,
                .groups_kept = p.groups_kept,
                .normalise = p.normalise,
                .scale = p.scale,
                .ids = p.ids.i32(),
                .ids_stride = p.ids.step(0),
                .weights = rows_of(p.weights),
                .tokens = narrow(p.logits.dim(0)),
                .experts = narrow(p.logits.dim(1)),
                .chosen = narrow(p.ids.dim(1))},
               context.stream);
}

/// Everything but where the values lie is the same for all experts, their dtypes too.
bool alike(const ops::MatrixStack& stack) {
  return std::all_of(stack.items, stack.items + stack.count, [&](const MatrixView& m) {
    const MatrixView& first = stack.items[0];
    return m.values.dtype == first.values.dtype && m.scaled() == first.scaled() && m.values.step(0) == first.values.step(0) &&
           m.block_rows == first.block_rows && m.block_cols == first.block_cols && m.row_offset == first.row_offset &&
           m.col_offset == first.col_offset && (!m.scaled() || m.scales.step(0) == first.scales.step(0));
  });
}
bool moe_fits(const void* params) {
  const auto& p = as<ops::MoeParams>(params);
  for (const ops::MatrixStack* stack : {&p.gate, &p.up, &p.down}) {
    if (!std::all_of(stack->items, stack->items + stack->count, [&](const MatrixView& m) { return readable(m, p.compute); })) return false;
  }
  return p.gate.count <= kExpertsMax && p.ids.dim(1) <= 64 && alike(p.gate) && alike(p.up) && alike(p.down);
}
bool moe_fits_wgmma(const void* params) {
  const auto& p = as<ops::MoeParams>(params);
  if (!moe_fits(params) || p.ids.dim(0) * p.ids.dim(1) > kMoePairsMax) return false;
  for (const ops::MatrixStack* stack : {&p.gate, &p.up, &p.down}) {
    if (!std::all_of(stack->items, stack->items + stack->count, [&](const MatrixView& m) { return fits_wgmma(m, p.compute); })) return false;
  }
  return p.gate.count == 0 || (alike(p.gate.items[0], p.up.items[0]) && alike(p.gate.items[0], p.down.items[0]));
}
bool moe_fits_mma(const void* params) {
  const auto& p = as<ops::MoeParams>(params);
  if (!moe_fits(params)) return false;
  for (const ops::MatrixStack* stack : {&p.gate, &p.up, &p.down}) {
    if (!std::all_of(stack->items, stack->items + stack->count, [&](const MatrixView& m) { return fits_mma(m, p.compute, 0); })) return false;
  }
  return true;
}

}  // namespace

void run_moe(const ops::MoeParams& p, const LaunchContext& context, int64_t more, const LaunchMoe& launch) {
  const int64_t tokens = p.x.dim(0);
  const int64_t experts = p.gate.count;
  const int64_t width = p.x.dim(1);
  const int64_t pairs = tokens * p.ids.dim(1);
  const int64_t inner = experts > 0 ? p.gate.items[0].rows() : 0;
  const auto aligned = [](int64_t bytes) { return (bytes + 255) / 256 * 256; };
  const std::array<int64_t, 5> sizes = {aligned(6 * experts * 8), aligned(experts * 4), aligned(experts * tokens * 4), aligned(pairs * inner * 4),
                                        aligned(pairs * width * 4)};
  int64_t total = more;
  for (const int64_t size : sizes) total += size;
  if (tokens == 0) return;
  auto* at = static_cast<std::byte*>(scratch(context, total));
  const auto take = [&](size_t i) {
    std::byte* const memory = at;
    at += sizes[i];
    return static_cast<void*>(memory);
  };
  ExpertTable table{};
  const std::array<const ops::MatrixStack*, 3> stacks = {&p.gate, &p.up, &p.down};
  for (int64_t e = 0; e < experts; ++e) {
    for (int64_t i = 0; i < 3; ++i) {
      const MatrixView& m = stacks[static_cast<size_t>(i)]->items[e];
      table.at[i * experts + e] = m.values.data;
      table.at[(3 + i) * experts + e] = m.scaled() ? m.scales.data : nullptr;
    }
  }
  const bool partial = p.y.rank == 3;
  MoeArgs args{.x = rows_of(p.x),
               .ids = p.ids.i32(),
               .ids_stride = p.ids.step(0),
               .weights = rows_of(p.weights),
               .gate = experts > 0 ? matrix_of(p.gate.items[0]) : Matrix{},
               .up = experts > 0 ? matrix_of(p.up.items[0]) : Matrix{},
               .down = experts > 0 ? matrix_of(p.down.items[0]) : Matrix{},
               .experts = narrow(experts),
               .expert_begin = p.expert_begin,
               .experts_total = p.experts_total,
               .limit = p.limit,
               .fast = p.compute != Compute::kF32,
               .y = p.y.f32(),
               .y_node = partial ? p.y.step(0) : 0,
               .y_stride = p.y.step(partial ? 1 : 0),
               .partial = partial,
               .present = p.present.present() ? p.present.i32() : nullptr,
               .present_stride = p.present.present() ? p.present.step(0) : 0,
               .tokens = narrow(tokens),
               .chosen = narrow(p.ids.dim(1)),
               .width = narrow(width),
               .inner = narrow(inner),
               .table = static_cast<const void**>(take(0)),
               .counts = static_cast<int32_t*>(take(1)),
               .lists = static_cast<int32_t*>(take(2)),
               .hidden = static_cast<float*>(take(3)),
               .leaves = static_cast<float*>(take(4))};
  launch(args, table, at);
}

namespace {

template <MoeRung kRung>
void moe(const void* params, const LaunchContext& context) {
  run_moe(as<ops::MoeParams>(params), context, 0,
          [&](const MoeArgs& args, const ExpertTable& table, void*) { launch_moe(args, table, kRung, context.stream); });
}

constexpr std::array kTable = {
    ops::Variant{.op = OpId::kMatmul, .name = "wgmma", .supports = matmul_fits_wgmma, .run = matmul<launch_product_wgmma>},
    ops::Variant{.op = OpId::kMatmul, .name = "mma", .supports = matmul_fits<true>, .run = matmul<launch_mma>},
    ops::Variant{.op = OpId::kMatmul, .name = "plain", .supports = matmul_fits<false>, .run = matmul<launch_plain>},
    ops::Variant{.op = OpId::kGateUp, .name = "wgmma", .supports = gate_up_fits_wgmma, .run = gate_up<launch_product_wgmma>},
    ops::Variant{.op = OpId::kGateUp, .name = "mma", .supports = gate_up_fits_mma, .run = gate_up<launch_mma>},
    ops::Variant{.op = OpId::kGateUp, .name = "plain", .supports = gate_up_fits, .run = gate_up<launch_plain>},
    ops::Variant{
        .op = OpId::kMlaUnabsorb,
        .name = "mma",
        .supports = [](const void* p) { return fits_mma(as<ops::MlaUnabsorbParams>(p).kv_b.matrix, as<ops::MlaUnabsorbParams>(p).compute, 0); },
        .run = mla_unabsorb<launch_mma>},
    ops::Variant{.op = OpId::kMlaUnabsorb,
                 .name = "plain",
                 .supports = [](const void* p) { return readable(as<ops::MlaUnabsorbParams>(p).kv_b.matrix, as<ops::MlaUnabsorbParams>(p).compute); },
                 .run = mla_unabsorb<launch_plain>},
    ops::Variant{.op = OpId::kRoute,
                 .name = "warp",
                 .supports =
                     [](const void* p) {
                       return as<ops::RouteParams>(p).logits.dim(1) <= kRouteExpertsMax && as<ops::RouteParams>(p).groups <= kRouteExpertsMax;
                     },
                 .run = route},
    ops::Variant{.op = OpId::kMoe, .name = "wgmma", .supports = moe_fits_wgmma, .run = moe<MoeRung::kWgmma>},
    ops::Variant{.op = OpId::kMoe, .name = "mma", .supports = moe_fits_mma, .run = moe<MoeRung::kMma>},
    ops::Variant{.op = OpId::kMoe, .name = "plain", .supports = moe_fits, .run = moe<MoeRung::kPlain>},
};

}  // namespace

std::span<const ops::Variant> product_variants() { return kTable; }

std::span<const ops::Variant> cuda_variants() {
  static const std::vector<ops::Variant> table = [] {
    std::vector<ops::Variant> all;
    for (const auto part : {rows_variants(), mixer_variants(), replay_variants(), codes_variants(), product_variants()})
      all.insert(all.end(), part.begin(), part.end());
    return all;
  }();
  return table;
}

}  // namespace lathe::kernels::cuda
