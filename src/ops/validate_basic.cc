#include "ops/contracts.h"
#include "ops/validator.h"
#include "tensor/shard.h"

namespace lathe::ops {
namespace {

void require_eps(Validator& v, float eps) { v.require(eps >= 0, "eps is {}, expected at least 0", eps); }

/// y of one product: root or one partial per node of the cover.
void check_product(Validator& v, const MatmulPart& part, Compute compute, int32_t index, Dim& t, Dim& k) {
  const std::string weight = fmt::format("weight of part {}", index);
  const std::string y = fmt::format("y of part {}", index);
  Dim n{"N"};
  v.matrix(weight, part.weight, n, k);
  v.optional(fmt::format("bias of part {}", index), part.bias, kVectorTypes, {&n});
  v.int8_channels(weight, part.weight, compute);
  if (!v.ok()) return;
  const bool integers = int8_product(part.weight, compute) && part.y.dtype == DType::kI32;
  v.require(!integers || !part.bias.present(), "part {} has a bias, but its y holds partial sums", index);
  v.require(part.leaf_channels >= 0, "{} has leaves of {} channels, expected at least 0", weight, part.leaf_channels);
  if (!v.ok()) return;
  if (part.leaf_channels == 0) return v.view(y, part.y, integers ? kI32Only : kF32Only, {&t, &n});
  const int64_t leaves = (k.size + part.leaf_channels - 1) / part.leaf_channels;
  const int64_t end = part.leaf_begin + leaves;
  v.require(integers || part.y.rank == 2 || !int8_product(part.weight, compute), "{} is {}: partial sums of an INT8 product are i32 [T, N]", y,
            describe(part.y));
  v.require(part.leaf_begin >= 0 && end <= part.leaf_total, "{} holds leaves [{}, {}) of {}", weight, part.leaf_begin, end, part.leaf_total);
  v.require(end == part.leaf_total || k.size % part.leaf_channels == 0,
            "{} ends inside leaf {} of {}: only the last leaf may be short (K = {}, {} channels a leaf)", weight, end - 1, part.leaf_total, k.size,
            part.leaf_channels);
  if (integers) return v.view(y, part.y, kI32Only, {&t, &n});
  if (part.y.rank == 2) {
    v.require(leaves == part.leaf_total, "{} is the root, but {} holds {} of {} leaves", y, weight, leaves, part.leaf_total);
    return v.view(y, part.y, kF32Only, {&t, &n});
  }
  if (!v.ok()) return;
  Dim nodes{"nodes", static_cast<int64_t>(tensor::tree_cover(part.leaf_total, part.leaf_begin, end).size())};
  v.view(y, part.y, kF32Only, {&nodes, &t, &n}, Layout::kPlanes);
  v.require(!part.bias.present(), "part {} has a bias, but its y holds partial sums", index);
}

}  // namespace

Result<void> validate(const EmbedParams& p) {
  Validator v("embed");
  Dim t{"T"}, rows{"V"}, d{"D"}, images{"n"};
  v.view("ids", p.ids, kI32Only, {&t});
  v.matrix("table", p.table, rows, d);
  v.unscaled("table", p.table);
  v.optional("override_row", p.override_row, kI32Only, {&t});
  v.optional("overrides", p.overrides, kF32Only, {&images, &d});
  v.require(!p.override_row.present() || p.overrides.present(), "override_row is given without overrides");
  v.view("out", p.out, kF32Only, {&t, &d});
  return v.done();
}

Result<void> validate(const GatherRowsParams& p) {
  Validator v("gather_rows");
  Dim t{"T"}, d{"D"}, n{"n"};
  v.view("x", p.x, kF32Only, {&t, &d});
  v.view("rows", p.rows, kI32Only, {&n});
  v.view("out", p.out, kF32Only, {&n, &d});
  v.distinct("out", p.out, "x", p.x);
  return v.done();
}

Result<void> validate(const AddParams& p) {
  Validator v("add");
  Dim t{"T"}, d{"D"};
  v.view("a", p.a, kF32Only, {&t, &d});
  v.view("b", p.b, kF32Only, {&t, &d});
  v.view("out", p.out, kF32Only, {&t, &d});
  return v.done();
}

Result<void> validate(const RmsNormParams& p) {
  Validator v("rms_norm");
  Dim t{"T"}, d{"D"};
  v.view("x", p.x, kF32Only, {&t, &d});
  v.view("weight", p.weight, kVectorTypes, {&d});
  v.view("out", p.out, kF32Only, {&t, &d});
  require_eps(v, p.eps);
  return v.done();
}

Result<void> validate(const LayerNormParams& p) {
  Validator v("layer_norm");
  Dim t{"T"}, d{"D"};
  v.view("x", p.x, kF32Only, {&t, &d});
  v.view("weight", p.weight, kVectorTypes, {&d});
  v.view("bias", p.bias, kVectorTypes, {&d});
  v.view("out", p.out, kF32Only, {&t, &d});
  require_eps(v, p.eps);
  return v.done();
}

Result<void> validate(const GeluParams& p) {
  Validator v("gelu");
  Dim t{"T"}, d{"D"};
  v.view("x", p.x, kF32Only, {&t, &d});
  v.view("out", p.out, kF32Only, {&t, &d});
  return v.done();
}

Result<void> validate(const MatmulParams& p) {
  Validator v("matmul");
  Dim t{"T"}, k{"K"};
  v.view("x", p.x, kF32Only, {&t, &k});
  v.require(1 <= p.part_count && p.part_count <= MatmulParams::kPartsMax, "there are {} parts, expected 1 to {}", p.part_count,
            MatmulParams::kPartsMax);
  v.optional("x_amax", p.x_amax, kF32Only, {&t});
  v.require(!p.x_amax.present() || p.compute == Compute::kInt8, "x_amax is given, but only INT8 products take it");
  for (int32_t i = 0; v.ok() && i < p.part_count; ++i) {
    const MatmulPart& part = p.parts[static_cast<size_t>(i)];
    check_product(v, part, p.compute, i, t, k);
    v.distinct("y", part.y, "x", p.x);
  }
  return v.done();
}

Result<void> validate(const RowAmaxParams& p) {
  Validator v("row_amax");
  Dim t{"T"}, k{"K"};
  v.view("x", p.x, kF32Only, {&t, &k});
  v.view("out", p.out, kF32Only, {&t});
  v.distinct("out", p.out, "x", p.x);
  return v.done();
}

Result<void> validate(const ScaleSumsParams& p) {
  Validator v("scale_sums");
  Dim t{"T"}, n{"N"}, one{"", 1};
  v.view("sums", p.sums, kI32Only, {&t, &n});
  v.view("x_amax", p.x_amax, kF32Only, {&t});
  v.view("scales", p.scales, kF32Only, {&n, &one});
  v.optional("bias", p.bias, kVectorTypes, {&n});
  v.view("y", p.y, kF32Only, {&t, &n});
  v.distinct("y", p.y, "sums", p.sums);
  return v.done();
}

Result<void> validate(const SwigluParams& p) {
  Validator v("swiglu");
  Dim t{"T"}, i{"I"};
  v.view("gate", p.gate, kF32Only, {&t, &i});
  v.view("up", p.up, kF32Only, {&t, &i});
  v.view("out", p.out, kF32Only, {&t, &i});
  v.require(p.limit > 0, "limit is {}, expected more than 0", p.limit);
  return v.done();
}

Result<void> validate(const GateUpParams& p) {
  Validator v("gate_up");
  Dim t{"T"}, k{"K"}, i{"I"};
  v.view("x", p.x, kF32Only, {&t, &k});
  v.matrix("gate", p.gate, i, k);
  v.matrix("up", p.up, i, k);
  v.int8_channels("gate", p.gate, p.compute), v.int8_channels("up", p.up, p.compute);
  v.optional("gate_bias", p.gate_bias, kVectorTypes, {&i});
  v.optional("up_bias", p.up_bias, kVectorTypes, {&i});
  v.view("out", p.out, kF32Only, {&t, &i});
  v.require(p.limit > 0, "limit is {}, expected more than 0", p.limit);
  v.distinct("out", p.out, "x", p.x);
  return v.done();
}

}  // namespace lathe::ops
