#include "ops/contracts.h"
#include "ops/validator.h"

namespace lathe::ops {
namespace {

/// Head rows of kv_b; binds H, nope, value and R.
void check_kv_b(Validator& v, const KvB& kv_b, Compute compute, Dim& h, Dim& r) {
  v.require(compute == Compute::kF32 || compute == Compute::kBF16, "compute makes codes of activations, expected f32 or bf16 for kv_b");
  v.require(kv_b.nope > 0 && kv_b.value > 0, "kv_b has {} key and {} value rows a head, expected at least 1", kv_b.nope, kv_b.value);
  if (!v.ok()) return;
  Dim rows{"H·(nope + value)", h.size * (kv_b.nope + kv_b.value)};
  v.matrix("kv_b", kv_b.matrix, rows, r);
}

void check_selection(Validator& v, const Selection& selection, Dim& t) {
  Dim pools{"pools"};
  v.view("pools", selection.pools, kI32Only, {&t, &pools});
  v.optional("tail_begin", selection.tail_begin, kI32Only, {&t});
  v.require(selection.kpool >= 1, "kpool is {}, expected at least 1", selection.kpool);
}

}  // namespace

Result<void> validate(const WriteLatentsParams& p) {
  Validator v("write_latents");
  Dim t{"T"}, r{"R"}, s{"S"};
  v.view("x", p.x, kF32Only, {&t, &r});
  v.ragged(p.batch, s);
  v.paged("pool", p.pool, s, r);
  return v.done();
}

Result<void> validate(const IndexKeysParams& p) {
  Validator v("index_keys");
  Dim t{"T"}, dx{"dx"}, pool{"P"}, slots{"slots"}, ring{"R"}, two{"", 2}, s{"S"};
  v.view("k", p.k, kF32Only, {&t, &dx});
  v.view("gate", p.gate, kF32Only, {&t, &dx});
  v.view("norm_weight", p.norm_weight, kVectorTypes, {&dx});
  v.view("norm_bias", p.norm_bias, kVectorTypes, {&dx});
  v.view("ape", p.ape, kVectorTypes, {&pool, &dx});
  v.view("ring", p.ring, kF32Only, {&slots, &ring, &two, &dx});
  v.ragged(p.batch, s);
  v.view("slot", p.slot, kI32Only, {&s});
  v.paged("keys", p.keys, s, dx);
  v.require(p.eps >= 0, "eps is {}, expected at least 0", p.eps);
  v.require(pool.size != 0, "ape has no row, expected one for each token of a pool");
  v.require(ring.size >= std::max<int64_t>(1, pool.size - 1), "ring keeps {} rows, expected at least {} for pools of {}", ring.size,
            std::max<int64_t>(1, pool.size - 1), pool.size);
  return v.done();
}

Result<void> validate(const IndexSelectParams& p) {
  Validator v("index_select");
  Dim t{"T"}, n{"N"}, dx{"dx"}, s{"S"}, pools{"pools"}, all{"n_max"};
  v.view("q", p.q, kF32Only, {&t, &n, &dx});
  v.view("weights", p.weights, kF32Only, {&t, &n});
  v.ragged(p.batch, s);
  v.paged("keys", p.keys, s, dx);
  v.require(p.kpool >= 1, "kpool is {}, expected at least 1", p.kpool);
  v.view("selection", p.selection, kI32Only, {&t, &pools});
  v.optional("scores", p.scores, kF32Only, {&t, &all});
  return v.done();
}

Result<void> validate(const MlaAbsorbParams& p) {
  Validator v("mla_absorb");
  Dim t{"T"}, h{"H"}, nope{"nope", p.kv_b.nope}, r{"R"};
  v.view("q", p.q, kF32Only, {&t, &h, &nope});
  check_kv_b(v, p.kv_b, p.compute, h, r);
  v.view("out", p.out, kF32Only, {&t, &h, &r});
  v.distinct("out", p.out, "q", p.q);
  return v.done();
}

Result<void> validate(const MlaAttendParams& p) {
  Validator v("mla_attend");
  Dim t{"T"}, h{"H"}, r{"R"}, s{"S"};
  v.view("q", p.q, kF32Only, {&t, &h, &r});
  v.ragged(p.batch, s);
  v.paged("latents", p.latents, s, r);
  check_selection(v, p.selection, t);
  v.view("out", p.out, kF32Only, {&t, &h, &r});
  v.optional("row_max", p.row_max, kF32Only, {&t, &h});
  v.optional("row_sum", p.row_sum, kF32Only, {&t, &h});
  v.distinct("out", p.out, "q", p.q);
  return v.done();
}

Result<void> validate(const MlaUnabsorbParams& p) {
  Validator v("mla_unabsorb");
  Dim t{"T"}, h{"H"}, r{"R"}, value{"value", p.kv_b.value};
  v.view("z", p.z, kF32Only, {&t, &h, &r});
  check_kv_b(v, p.kv_b, p.compute, h, r);
  v.view("out", p.out, kF32Only, {&t, &h, &value});
  v.distinct("out", p.out, "z", p.z);
  return v.done();
}

Result<void> validate(const MlaExpandedParams& p) {
  Validator v("mla_expanded");
  Dim t{"T"}, h{"H"}, nope{"nope", p.kv_b.nope}, value{"value", p.kv_b.value}, r{"R"}, s{"S"};
  v.view("q", p.q, kF32Only, {&t, &h, &nope});
  check_kv_b(v, p.kv_b, p.compute, h, r);
  v.ragged(p.batch, s);
  v.paged("latents", p.latents, s, r);
  check_selection(v, p.selection, t);
  v.view("out", p.out, kF32Only, {&t, &h, &value});
  v.distinct("out", p.out, "q", p.q);
  return v.done();
}

}  // namespace lathe::ops
