// Matrix products of INT8 codes.

#include <algorithm>
#include <array>
#include <span>

#include "kernels/cuda/codes_args.h"
#include "kernels/cuda/fill.h"
#include "ops/basic.h"

namespace lathe::kernels::cuda {
namespace {

using ops::Compute;
using ops::LaunchContext;
using ops::OpId;

CodesPart part_of(const MatrixView& weight, const View& bias) {
  const int64_t step = weight.scaled() ? weight.scales.step(0) : 0;
  return {.weight = static_cast<const int8_t*>(weight.values.data),
          .stride = weight.values.step(0),
          .scales = weight.scaled() ? weight.scales.f32() + weight.row_offset * step : nullptr,
          .scale_stride = step,
          .bias = vector_of(bias),
          .y = nullptr,
          .y_stride = 0,
          .rows = narrow(weight.rows()),
          .integers = false};
}

using LaunchCodes = void (*)(const CodesArgs& args, int32_t* counters, int32_t* partial, void* stream);
void launch_plain(const CodesArgs& args, int32_t*, int32_t*, void* stream) { launch_codes_plain(args, stream); }

/// Rows of x and what one launch needs beside them, in this order in memory.
struct Space {
  int64_t codes, scales, counters, partial, more;
  int64_t all() const { return codes + scales + counters + partial + more; }
};
int64_t rounded(int64_t bytes) { return (bytes + 255) / 256 * 256; }

/// x into codes, then the products. more: bytes at the end of scratch for whoever calls; they are known before (`place`).
template <LaunchCodes kLaunch, class Place>
void run_codes(const LaunchContext& context, const View& x, const View& amax, CodesArgs args, int64_t more, const Place& place) {
  args.tokens = narrow(x.dim(0)), args.cols = narrow(x.dim(1));
  if (args.tokens == 0) return;
  args.x_rows = codes_rows(args.tokens);
  const bool cut = kLaunch == launch_codes_wgmma;
  const int32_t counters = cut ? codes_counters(args) : 0;
  const Space space{rounded(codes_bytes(args.tokens, args.cols)), rounded(int64_t{args.tokens} * 4), rounded(int64_t{counters} * 4),
                    cut ? rounded(codes_partial_bytes(args)) : 0, rounded(more)};
  auto* const memory = static_cast<std::byte*>(scratch(context, space.all()));
  auto* const codes = reinterpret_cast<int8_t*>(memory);
  auto* const scales = reinterpret_cast<float*>(memory + space.codes);
  auto* const counts = reinterpret_cast<int32_t*>(memory + space.codes + space.scales);
  args.x = codes, args.x_scales = scales;
  place(args, reinterpret_cast<float*>(memory + space.all() - space.more));
  launch_to_codes({.x = rows_of(x),
                   .amax = amax.present() ? amax.f32() : nullptr,
                   .codes = codes,
                   .rows = args.x_rows,
                   .scales = scales,
                   .counters = counts,
                   .tokens = args.tokens,
                   .cols = args.cols,
                   .counter_count = counters},
                  context.stream);
  kLaunch(args, counts, reinterpret_cast<int32_t*>(memory + space.codes + space.scales + space.counters), context.stream);
}

/// The parts that have no codes, as they multiply in fast mode.
ops::MatmulParams others_of(const ops::MatmulParams& p) {
  ops::MatmulParams others = p;
  others.part_count = 0, others.compute = Compute::kBF16, others.x_amax = {};
  for (int32_t i = 0; i < p.part_count; ++i) {
    const ops::MatmulPart& part = p.parts[static_cast<size_t>(i)];
    if (!ops::int8_product(part.weight, p.compute)) others.parts[static_cast<size_t>(others.part_count++)] = part;
  }
  return others;
}
/// The first kernel that takes them; null: none does.
const ops::Variant* kernel_of(const ops::MatmulParams& others) {
  for (const ops::Variant& variant : product_variants()) {
    if (variant.op == OpId::kMatmul && variant.supports(&others)) return &variant;
  }
  return nullptr;
}

template <LaunchCodes kLaunch>
void matmul(const void* params, const LaunchContext& context) {
  const auto& p = as<ops::MatmulParams>(params);
  CodesArgs args{};
  for (int32_t i = 0; i < p.part_count; ++i) {
    const ops::MatmulPart& part = p.parts[static_cast<size_t>(i)];
    if (!ops::int8_product(part.weight, p.compute)) continue;
    CodesPart& codes = args.parts[args.count++] = part_of(part.weight, part.bias);
    codes.integers = part.y.dtype == DType::kI32;
    codes.y = part.y.data, codes.y_stride = part.y.step(0);
  }
  run_codes<kLaunch>(context, p.x, p.x_amax, args, 0, [](CodesArgs&, float*) {});
  const ops::MatmulParams others = others_of(p);
  if (others.part_count > 0) kernel_of(others)->run(&others, context);
}
bool matmul_fits(const void* params) {
  const auto& p = as<ops::MatmulParams>(params);
  const ops::MatmulParams others = others_of(p);
  return p.x.dim(1) > 0 && others.part_count < p.part_count && (others.part_count == 0 || kernel_of(others) != nullptr);
}
/// Pieces of 16 codes.
bool fits_wgmma(const MatrixView& m) {
  return m.cols() > 0 && m.cols() % 16 == 0 && m.values.step(0) % 16 == 0 && reinterpret_cast<uintptr_t>(m.values.data) % 16 == 0;
}
bool matmul_fits_wgmma(const void* params) {
  const auto& p = as<ops::MatmulParams>(params);
  return matmul_fits(params) && std::all_of(p.parts.begin(), p.parts.begin() + p.part_count, [&](const ops::MatmulPart& part) {
           return !ops::int8_product(part.weight, p.compute) || fits_wgmma(part.weight);
         });
}

template <LaunchCodes kLaunch>
void gate_up(const void* params, const LaunchContext& context) {
  const auto& p = as<ops::GateUpParams>(params);
  const int64_t tokens = p.x.dim(0), inner = p.out.dim(1);
  if (tokens == 0 || inner == 0) return;
  CodesArgs args{};
  args.count = 2;
  args.parts[0] = part_of(p.gate, p.gate_bias), args.parts[1] = part_of(p.up, p.up_bias);
  const float* both = nullptr;
  run_codes<kLaunch>(context, p.x, {}, args, 2 * tokens * inner * 4, [&](CodesArgs& a, float* memory) {
    both = memory;
    a.parts[0].y = memory, a.parts[1].y = memory + tokens * inner;
    a.parts[0].y_stride = a.parts[1].y_stride = inner;
  });
  auto* const gate = const_cast<float*>(both);
  launch_swiglu({.a = {gate, inner},
                 .b = {gate + tokens * inner, inner},
                 .out = rows_of(p.out),
                 .tokens = narrow(tokens),
                 .width = narrow(inner),
                 .limit = p.limit},
                context.stream);
}
bool gate_up_fits(const void* params) {
  const auto& p = as<ops::GateUpParams>(params);
  return ops::int8_product(p.gate, p.compute) && ops::int8_product(p.up, p.compute);
}
bool gate_up_fits_wgmma(const void* params) {
  const auto& p = as<ops::GateUpParams>(params);
  return gate_up_fits(params) && fits_wgmma(p.gate) && fits_wgmma(p.up);
}

void moe(const void* params, const LaunchContext& context) {
  const auto& p = as<ops::MoeParams>(params);
  const int32_t tokens = narrow(p.x.dim(0)), pairs = narrow(p.x.dim(0) * p.ids.dim(1)), width = narrow(p.x.dim(1));
  const int32_t inner = p.gate.count > 0 ? narrow(p.gate.items[0].rows()) : 0;
  const std::array<int64_t, 4> sizes = {rounded(codes_bytes(tokens, width)), rounded(int64_t{tokens} * 4), rounded(codes_bytes(pairs, inner)),
                                        rounded(int64_t{pairs} * 4)};
  run_moe(p, context, sizes[0] + sizes[1] + sizes[2] + sizes[3], [&](const MoeArgs& args, const ExpertTable& table, void* more) {
    auto* const at = static_cast<std::byte*>(more);
    const CodesRows x{reinterpret_cast<int8_t*>(at), reinterpret_cast<float*>(at + sizes[0]), codes_rows(tokens)};
    std::byte* const behind = at + sizes[0] + sizes[1];
    launch_moe_codes(args, table, x, {reinterpret_cast<int8_t*>(behind), reinterpret_cast<float*>(behind + sizes[2]), codes_rows(pairs)},
                     context.stream);
  });
}
bool moe_fits(const void* params) {
  const auto& p = as<ops::MoeParams>(params);
  for (const ops::MatrixStack* stack : {&p.gate, &p.up, &p.down}) {
    const bool fits = std::all_of(stack->items, stack->items + stack->count, [&](const MatrixView& m) {
      const MatrixView& first = stack->items[0];
      return ops::int8_product(m, p.compute) && m.values.step(0) == first.values.step(0) && m.scales.step(0) == first.scales.step(0) &&
             m.row_offset == first.row_offset && m.cols() > 0;
    });
    if (!fits) return false;
  }
  return p.gate.count > 0 && p.gate.count <= kExpertsMax && p.ids.dim(1) <= 64;
}

constexpr std::array kTable = {
    ops::Variant{.op = OpId::kMatmul, .name = "codes", .supports = matmul_fits_wgmma, .run = matmul<launch_codes_wgmma>},
    ops::Variant{.op = OpId::kMatmul, .name = "codes_plain", .supports = matmul_fits, .run = matmul<launch_plain>},
    ops::Variant{.op = OpId::kGateUp, .name = "codes", .supports = gate_up_fits_wgmma, .run = gate_up<launch_codes_wgmma>},
    ops::Variant{.op = OpId::kMoe, .name = "codes", .supports = moe_fits, .run = moe},
    ops::Variant{.op = OpId::kGateUp, .name = "codes_plain", .supports = gate_up_fits, .run = gate_up<launch_plain>},
};

}  // namespace

std::span<const ops::Variant> codes_variants() { return kTable; }

}  // namespace lathe::kernels::cuda
