#include "ops/contracts.h"
#include "ops/validator.h"

namespace lathe::ops {
Result<void> validate(const MhcInParams& p) {
  Validator v("mhc_in");
  Dim t{"T"}, s{"S"}, d{"D"}, three{"", 3};
  v.view("streams", p.streams, kF32Only, {&t, &s, &d}, Layout::kStreams);
  if (!v.ok()) return v.done();
  Dim m{"2S + S²", 2 * s.size + s.size * s.size}, f{"S·D", s.size * d.size};
  v.matrix("fn", p.fn, m, f);
  v.unscaled("fn", p.fn);
  v.view("base", p.base, kVectorTypes, {&m});
  v.view("scale", p.scale, kVectorTypes, {&three});
  v.view("x", p.x, kF32Only, {&t, &d});
  v.view("post", p.post, kF32Only, {&t, &s});
  v.view("comb", p.comb, kF32Only, {&t, &s, &s});
  v.require(p.eps >= 0 && p.hc_eps >= 0, "eps is {} and hc_eps {}, expected at least 0", p.eps, p.hc_eps);
  v.require(p.iterations >= 1, "iterations is {}, expected at least 1", p.iterations);
  v.distinct("x", p.x, "streams", p.streams);
  return v.done();
}

Result<void> validate(const MhcOutParams& p) {
  Validator v("mhc_out");
  Dim t{"T"}, s{"S"}, d{"D"};
  v.view("streams", p.streams, kF32Only, {&t, &s, &d}, Layout::kStreams);
  v.view("y", p.y, kF32Only, {&t, &d});
  v.view("post", p.post, kF32Only, {&t, &s});
  v.view("comb", p.comb, kF32Only, {&t, &s, &s});
  v.view("out", p.out, kF32Only, {&t, &s, &d}, Layout::kPlanes);
  if (v.ok() && s.size > 1 && p.streams.step(1) == 0) v.distinct("out", p.out, "streams", p.streams);
  v.distinct("out", p.out, "y", p.y);
  return v.done();
}

Result<void> validate(const StreamMeanParams& p) {
  Validator v("stream_mean");
  Dim t{"T"}, s{"S"}, d{"D"};
  v.view("streams", p.streams, kF32Only, {&t, &s, &d}, Layout::kStreams);
  v.view("out", p.out, kF32Only, {&t, &d});
  v.require(s.size != 0, "streams has no stream, expected at least 1");
  v.distinct("out", p.out, "streams", p.streams);
  return v.done();
}

Result<void> validate(const ShortConvParams& p) {
  Validator v("short_conv");
  Dim t{"T"}, c{"C"}, w{"W"}, slots{"slots"}, ring{"R"}, s{"S"};
  v.view("x", p.x, kF32Only, {&t, &c});
  v.view("weight", p.weight, kVectorTypes, {&w, &c});
  v.view("ring", p.ring, kVectorTypes, {&slots, &ring, &c});
  v.ragged(p.batch, s);
  v.view("slot", p.slot, kI32Only, {&s});
  v.view("out", p.out, kF32Only, {&t, &c});
  v.require(w.size != 0, "weight has no tap, expected at least 1");
  v.require(ring.size >= w.size - 1, "ring keeps {} rows, expected at least W - 1 = {}", ring.size, w.size - 1);
  v.distinct("out", p.out, "x", p.x);
  return v.done();
}

Result<void> validate(const KdaGateParams& p) {
  Validator v("kda_gate");
  Dim t{"T"}, h{"H"}, hk{"H·K"};
  v.view("a", p.a, kF32Only, {&t, &hk});
  v.view("b", p.b, kF32Only, {&t, &h});
  v.view("a_log", p.a_log, kVectorTypes, {&h});
  v.view("dt_bias", p.dt_bias, kVectorTypes, {&hk});
  v.view("g", p.g, kF32Only, {&t, &hk});
  v.view("beta", p.beta, kF32Only, {&t, &h});
  v.require(h.size > 0 ? hk.size % h.size == 0 : hk.size == 0, "a has {} columns, expected a multiple of the {} heads of b", hk.size, h.size);
  v.require(!p.bounded || p.lower_bound <= 0, "lower_bound is {}, expected at most 0", p.lower_bound);
  return v.done();
}

Result<void> validate(const KdaRecurrenceParams& p) {
  Validator v("kda_recurrence");
  Dim t{"T"}, h{"H"}, k{"K"}, vd{"V"}, rows{"rows"}, kept{"rows"}, s{"S"};
  v.view("q", p.q, kF32Only, {&t, &h, &k});
  v.view("k", p.k, kF32Only, {&t, &h, &k});
  v.view("v", p.v, kF32Only, {&t, &h, &vd});
  if (!v.ok()) return v.done();
  Dim hk{"H·K", h.size * k.size};
  v.view("g", p.g, kF32Only, {&t, &hk});
  v.view("beta", p.beta, kF32Only, {&t, &h});
  v.states("entering", p.entering, p.entering_scales, {rows, h, k, vd});
  v.ragged(p.batch, s);
  v.view("state_in", p.state_in, kI32Only, {&s});
  v.states("states", p.states, p.states_scales, {kept, h, k, vd});
  v.require(p.entering.dtype == p.states.dtype, "entering is {} and states {}, expected one dtype", describe(p.entering), describe(p.states));
  v.require(!p.pair_m.present() || p.states.dtype == DType::kF32, "pair_m is asked for, but states is {}, expected f32", describe(p.states));
  v.view("state_out", p.state_out, kI32Only, {&t});
  v.view("o", p.o, kF32Only, {&t, &h, &vd});
  v.optional("pair_m", p.pair_m, kF32Only, {&s, &h, &k, &k});
  v.optional("pair_h", p.pair_h, kF32Only, {&s, &h, &k, &vd});
  v.require(p.pair_m.present() == p.pair_h.present(), "pair_m is {} and pair_h {}, expected both or neither", describe(p.pair_m), describe(p.pair_h));
  v.distinct("o", p.o, "q", p.q), v.distinct("o", p.o, "k", p.k), v.distinct("o", p.o, "v", p.v);
  return v.done();
}

namespace {

struct RingDims {
  Dim &slots, &h, &k, &vd;
};

void check_ring(Validator& v, const ReplayRing& ring, const RingDims& dims) {
  const auto& [slots, h, k, vd] = dims;
  Dim r{"R"}, decays{"R_G"};
  v.view("ring keys", ring.keys, kVectorTypes, {&slots, &r, &h, &k});
  v.view("ring values", ring.values, kVectorTypes, {&slots, &r, &h, &vd});
  v.view("ring decay", ring.decay, kF32Only, {&slots, &decays, &h, &k});
}

}  // namespace

Result<void> validate(const KdaVerifyParams& p) {
  Validator v("kda_verify");
  Dim t{"T"}, h{"H"}, k{"K"}, vd{"V"}, rows{"rows"}, s{"S"}, slots{"slots"};
  v.view("q", p.q, kF32Only, {&t, &h, &k});
  v.view("k", p.k, kF32Only, {&t, &h, &k});
  v.view("v", p.v, kF32Only, {&t, &h, &vd});
  if (!v.ok()) return v.done();
  Dim hk{"H·K", h.size * k.size};
  v.view("g", p.g, kF32Only, {&t, &hk});
  v.view("beta", p.beta, kF32Only, {&t, &h});
  v.states("states", p.states, p.states_scales, {rows, h, k, vd});
  v.ragged(p.batch, s);
  v.view("state", p.state, kI32Only, {&s}), v.view("checkpoint", p.checkpoint, kI32Only, {&s}), v.view("slot", p.slot, kI32Only, {&s});
  check_ring(v, p.ring, {slots, h, k, vd});
  v.view("fold", p.fold, kI32Only, {&t});
  v.view("o", p.o, kF32Only, {&t, &h, &vd});
  if (!v.ok()) return v.done();
  v.require(p.batch.longest <= p.ring.keys.dim(1), "a window of {} rows does not fit a ring of {}", p.batch.longest, p.ring.keys.dim(1));
  v.require(p.batch.longest < p.ring.decay.dim(1), "the decay ring keeps {} rows, expected more than the {} of a window", p.ring.decay.dim(1),
            p.batch.longest);
  v.distinct("o", p.o, "q", p.q), v.distinct("o", p.o, "k", p.k), v.distinct("o", p.o, "v", p.v);
  return v.done();
}

Result<void> validate(const KdaFlushParams& p) {
  Validator v("kda_flush");
  Dim h{"H"}, k{"K"}, vd{"V"}, rows{"rows"}, kept{"rows"}, s{"S"}, slots{"slots"};
  v.states("entering", p.entering, p.entering_scales, {rows, h, k, vd});
  v.states("states", p.states, p.states_scales, {kept, h, k, vd});
  v.view("state_in", p.state_in, kI32Only, {&s}), v.view("into", p.into, kI32Only, {&s});
  v.view("checkpoint", p.checkpoint, kI32Only, {&s}), v.view("to", p.to, kI32Only, {&s}), v.view("slot", p.slot, kI32Only, {&s});
  check_ring(v, p.ring, {slots, h, k, vd});
  if (!v.ok()) return v.done();
  v.require(0 <= p.folded_max && p.folded_max <= p.ring.keys.dim(1), "{} rows are folded, expected at most the {} of the ring", p.folded_max,
            p.ring.keys.dim(1));
  return v.done();
}

Result<void> validate(const GatedNormParams& p) {
  Validator v("gated_norm");
  Dim t{"T"}, h{"H"}, vd{"V"};
  v.view("o", p.o, kF32Only, {&t, &h, &vd});
  if (!v.ok()) return v.done();
  Dim hv{"H·V", h.size * vd.size};
  v.view("gate", p.gate, kF32Only, {&t, &hv});
  v.view("weight", p.weight, kVectorTypes, {&vd});
  v.view("out", p.out, kF32Only, {&t, &hv});
  v.require(p.eps >= 0, "eps is {}, expected at least 0", p.eps);
  return v.done();
}

}  // namespace lathe::ops
