#include "ops/contracts.h"
#include "ops/validator.h"
#include "tensor/shard.h"

namespace lathe::ops {

Result<void> validate(const RouteParams& p) {
  Validator v("route");
  Dim t{"T"}, e{"E"}, k{"k"};
  v.view("logits", p.logits, kF32Only, {&t, &e});
  v.view("bias", p.bias, kVectorTypes, {&e});
  v.view("ids", p.ids, kI32Only, {&t, &k});
  v.view("weights", p.weights, kF32Only, {&t, &k});
  v.require(p.groups >= 1 && 1 <= p.groups_kept && p.groups_kept <= p.groups, "{} of {} groups are kept, expected 1 to all of at least 1",
            p.groups_kept, p.groups);
  if (!v.ok()) return v.done();
  v.require(e.size % p.groups == 0, "{} experts do not divide into {} groups", e.size, p.groups);
  v.require(p.groups == 1 || e.size / p.groups >= 2, "{} experts in {} groups, expected at least 2 experts a group", e.size, p.groups);
  const int64_t eligible = e.size / p.groups * p.groups_kept;
  v.require(k.size <= eligible, "{} experts a token are asked for, but only {} can be chosen", k.size, eligible);
  return v.done();
}

Result<void> validate(const MoeParams& p) {
  Validator v("moe");
  Dim t{"T"}, d{"D"}, k{"k"}, count{"experts"}, i{"I"};
  v.view("x", p.x, kF32Only, {&t, &d});
  v.view("ids", p.ids, kI32Only, {&t, &k});
  v.view("weights", p.weights, kF32Only, {&t, &k});
  v.stack("gate", p.gate, count, i, d);
  v.stack("up", p.up, count, i, d);
  v.stack("down", p.down, count, d, i);
  v.require(p.limit > 0, "limit is {}, expected more than 0", p.limit);
  const int64_t end = p.expert_begin + int64_t{p.gate.count};
  v.require(p.expert_begin >= 0 && end <= p.experts_total, "it holds experts [{}, {}) of {}", p.expert_begin, end, p.experts_total);
  if (!v.ok()) return v.done();
  for (const MatrixStack* stack : {&p.gate, &p.up, &p.down}) {
    for (int32_t e = 0; e < stack->count; ++e) v.int8_channels(fmt::format("matrix of expert {}", e), stack->items[e], p.compute);
  }
  if (p.y.rank == 2) {
    v.view("y", p.y, kF32Only, {&t, &d});
    v.require(count.size == p.experts_total, "y is the root, but only {} of {} experts are held", count.size, p.experts_total);
    v.require(!p.present.present(), "present is given, but y is the root");
  } else {
    Dim nodes{"nodes", static_cast<int64_t>(tensor::tree_cover(p.experts_total, p.expert_begin, end).size())};
    v.view("y", p.y, kF32Only, {&nodes, &t, &d}, Layout::kPlanes);
    v.optional("present", p.present, kI32Only, {&nodes, &t});
  }
  v.distinct("y", p.y, "x", p.x);
  return v.done();
}

Result<void> validate(const VisionRopeParams& p) {
  Validator v("vision_rope");
  Dim t{"T"}, three{"", 3}, h{"H"}, hd{"hd"}, two{"", 2};
  v.view("qkv", p.qkv, kF32Only, {&t, &three, &h, &hd});
  v.view("q_norm", p.q_norm, kVectorTypes, {&hd});
  v.view("k_norm", p.k_norm, kVectorTypes, {&hd});
  v.view("positions", p.positions, kI32Only, {&t, &two});
  v.require(p.eps >= 0, "eps is {}, expected at least 0", p.eps);
  v.require(hd.size % 4 == 0, "heads have {} channels, expected a multiple of 4", hd.size);
  return v.done();
}

Result<void> validate(const VisionAttendParams& p) {
  Validator v("vision_attend");
  Dim t{"T"}, three{"", 3}, h{"H"}, hd{"hd"}, borders{"n + 1"};
  v.view("qkv", p.qkv, kF32Only, {&t, &three, &h, &hd});
  v.view("segment_begin", p.segment_begin, kI32Only, {&borders});
  if (!v.ok()) return v.done();
  Dim width{"H·hd", h.size * hd.size};
  v.view("out", p.out, kF32Only, {&t, &width});
  v.require(borders.size >= 1, "segment_begin is empty, expected n + 1 borders");
  v.distinct("out", p.out, "qkv", p.qkv);
  return v.done();
}

}  // namespace lathe::ops
