#include "models/glm5_next_table.h"

#include <fmt/format.h>

namespace lathe::models {
namespace {

using Shape = std::vector<int64_t>;

/// The value of an optional part, made if it is not there: a second walk over filled weights finds them in place.
template <class T>
T& ensure(std::optional<T>& part) {
  return part ? *part : part.emplace();
}

/// What a row of the table says besides name and shape.
enum class Storage : uint8_t {
  kPlain,      ///< BF16 in both releases
  kFp8,        ///< E4M3 in the FP8 release, INT8 by default
  kInt8,       ///< BF16 in the FP8 release, INT8 by default
  kAnyFormat,  ///< BF16 in the FP8 release, but a linear layer like the others: other exports may quantise it
  kNoInt8,     ///< likewise, but its kernels take no INT8 codes (docs/formats.md)
  kF32,        ///< F32 in both releases
};

/// The rows under one name prefix.
class Section {
 public:
  Section(TensorVisitor& visitor, std::string prefix, TensorKind kind, int32_t layer)
      : visitor_(visitor), prefix_(std::move(prefix)), kind_(kind), layer_(layer) {}

  Section under(std::string_view name, TensorKind kind) const { return {visitor_, prefix_ + std::string(name), kind, layer_}; }

  void matrix(std::string_view name, MatrixView& place, Shape shape, Storage storage = Storage::kPlain) const {
    visitor_.matrix(spec(name, std::move(shape), storage), place);
  }
  void vector(std::string_view name, View& place, Shape shape, Storage storage = Storage::kPlain) const {
    visitor_.vector(spec(name, std::move(shape), storage), place);
  }
  /// Any rank will do: only the number of elements counts.
  void flat(std::string_view name, View& place, Shape shape, Storage storage) const {
    TensorSpec row = spec(name, std::move(shape), storage);
    row.any_rank = true;
    visitor_.vector(std::move(row), place);
  }

 private:
  TensorSpec spec(std::string_view name, Shape shape, Storage storage) const {
    TensorSpec row;
    row.name = prefix_ + std::string(name);
    row.shape = std::move(shape);
    row.kind = kind_;
    row.layer = layer_;
    row.f32_in_release = storage == Storage::kF32;
    row.fp8_in_release = storage == Storage::kFp8;
    row.int8_default = storage == Storage::kFp8 || storage == Storage::kInt8;
    row.int8_allowed = row.int8_default || storage == Storage::kAnyFormat;
    row.fp8_allowed = row.int8_allowed || storage == Storage::kNoInt8;
    return row;
  }

  TensorVisitor& visitor_;
  std::string prefix_;
  TensorKind kind_;
  int32_t layer_;
};

void visit_mhc(const Glm5NextConfig& c, const Section& section, std::string_view site, MhcWeights& w) {
  const auto name = [&](const char* part) { return fmt::format("hc_{}_{}", site, part); };
  section.matrix(name("fn"), w.fn, {c.mhc.mix_rows(), c.mhc.streams * c.hidden});
  section.vector(name("base"), w.base, {c.mhc.mix_rows()}, Storage::kF32);
  section.vector(name("scale"), w.scale, {3}, Storage::kF32);
}

void visit_kda(const Glm5NextConfig& c, const Section& section, KdaWeights& w) {
  const int64_t channels = c.kda.channels();
  section.matrix("q_proj.weight", w.q, {channels, c.hidden}, Storage::kInt8);
  section.matrix("k_proj.weight", w.k, {channels, c.hidden}, Storage::kInt8);
  section.matrix("v_proj.weight", w.v, {channels, c.hidden}, Storage::kInt8);
  section.vector("q_conv1d.weight", w.q_conv, {channels, 1, c.kda.conv_width});
  section.vector("k_conv1d.weight", w.k_conv, {channels, 1, c.kda.conv_width});
  section.vector("v_conv1d.weight", w.v_conv, {channels, 1, c.kda.conv_width});
  section.matrix("f_a_proj.weight", w.f_a, {c.kda.head_dim, c.hidden}, Storage::kAnyFormat);
  section.matrix("f_b_proj.weight", w.f_b, {channels, c.kda.head_dim}, Storage::kAnyFormat);
  section.matrix("g_a_proj.weight", w.g_a, {c.kda.head_dim, c.hidden}, Storage::kAnyFormat);
  section.matrix("g_b_proj.weight", w.g_b, {channels, c.kda.head_dim}, Storage::kAnyFormat);
  section.matrix("b_proj.weight", w.b, {c.kda.heads, c.hidden}, Storage::kAnyFormat);
  section.flat("A_log", w.a_log, {c.kda.heads}, Storage::kF32);
  section.vector("dt_bias", w.dt_bias, {channels}, Storage::kF32);
  section.vector("o_norm.weight", w.o_norm, {c.kda.head_dim});
  section.matrix("o_proj.weight", w.o, {c.hidden, channels}, Storage::kInt8);
}

void visit_indexer(const Glm5NextConfig& c, const Section& section, IndexerWeights& w) {
  const IndexerConfig& ix = c.indexer;
  section.matrix("wq_b.weight", w.wq_b, {ix.heads * ix.head_dim, c.mla.q_lora_rank}, Storage::kInt8);
  section.matrix("wk.weight", w.wk, {ix.head_dim, c.hidden}, Storage::kAnyFormat);
  section.vector("k_norm.weight", w.k_norm_weight, {ix.head_dim});
  section.vector("k_norm.bias", w.k_norm_bias, {ix.head_dim});
  section.matrix("weights_proj.weight", w.weights_proj, {ix.heads, c.hidden}, Storage::kAnyFormat);
  section.vector("index_kpool_compress_ape", w.ape, {ix.kpool, ix.head_dim});
  section.matrix("index_kpool_compress_gate", w.compress_gate, {ix.head_dim, c.hidden});
}

void visit_dsa(const Glm5NextConfig& c, const Section& section, DsaWeights& w) {
  const MlaConfig& mla = c.mla;
  section.matrix("q_a_proj.weight", w.q_a, {mla.q_lora_rank, c.hidden}, Storage::kFp8);
  section.vector("q_a_layernorm.weight", w.q_a_norm, {mla.q_lora_rank});
  section.matrix("q_b_proj.weight", w.q_b, {mla.heads * mla.nope_dim, mla.q_lora_rank}, Storage::kFp8);
  section.matrix("kv_a_proj_with_mqa.weight", w.kv_a, {mla.kv_lora_rank, c.hidden}, Storage::kFp8);
  section.vector("kv_a_layernorm.weight", w.kv_a_norm, {mla.kv_lora_rank});
  section.matrix("kv_b_proj.weight", w.kv_b, {mla.heads * (mla.nope_dim + mla.v_dim), mla.kv_lora_rank}, Storage::kNoInt8);
  section.matrix("o_proj.weight", w.o, {c.hidden, mla.heads * mla.v_dim}, Storage::kFp8);
  if (w.indexer) visit_indexer(c, section.under("indexer.", TensorKind::kIndexer), *w.indexer);
}

void visit_mlp(const Section& section, int64_t hidden, int64_t width, MlpWeights& w) {
  section.matrix("gate_proj.weight", w.gate, {width, hidden}, Storage::kFp8);
  section.matrix("up_proj.weight", w.up, {width, hidden}, Storage::kFp8);
  section.matrix("down_proj.weight", w.down, {hidden, width}, Storage::kFp8);
}

void visit_moe(const Glm5NextConfig& c, const Section& section, MoeWeights& w) {
  const Section router = section.under("gate.", TensorKind::kRouter);
  router.matrix("weight", w.router, {c.moe.experts, c.hidden});
  router.vector("e_score_correction_bias", w.correction_bias, {c.moe.experts}, Storage::kF32);
  w.experts.resize(static_cast<size_t>(c.moe.experts));
  for (size_t expert = 0; expert < w.experts.size(); ++expert) {
    visit_mlp(section.under(fmt::format("experts.{}.", expert), TensorKind::kExpert), c.hidden, c.moe.intermediate, w.experts[expert]);
  }
  visit_mlp(section.under("shared_experts.", TensorKind::kShared), c.hidden, c.moe.shared_intermediate(), w.shared);
}

/// Kinds and the streams of one layer; the draft layer has no streams.
struct LayerForm {
  MixerKind mixer = MixerKind::kDsa;
  FfnKind ffn = FfnKind::kMoe;
  bool own_indexer = true;
  bool streams = false;
};

void visit_layer(const Glm5NextConfig& c, const Section& section, const LayerForm& form, LayerWeights& w) {
  if (form.streams) {
    const Section mhc = section.under("", TensorKind::kMhc);
    visit_mhc(c, mhc, "attn", w.attn_mhc);
    visit_mhc(c, mhc, "ffn", w.ffn_mhc);
  }
  section.vector("input_layernorm.weight", w.input_norm, {c.hidden});
  section.vector("post_attention_layernorm.weight", w.post_attention_norm, {c.hidden});
  if (form.mixer == MixerKind::kKda) {
    visit_kda(c, section.under("self_attn.", TensorKind::kKda), ensure(w.kda));
  } else {
    DsaWeights& dsa = ensure(w.dsa);
    if (form.own_indexer) ensure(dsa.indexer);
    visit_dsa(c, section.under("self_attn.", TensorKind::kDsa), dsa);
  }
  if (form.ffn == FfnKind::kDense) {
    visit_mlp(section.under("mlp.", TensorKind::kDense), c.hidden, c.intermediate, ensure(w.dense));
  } else {
    visit_moe(c, section.under("mlp.", TensorKind::kExpert), ensure(w.moe));
  }
}

void visit_linear(const Section& section, std::string_view name, VisionLinear& w, Shape shape) {
  const int64_t rows = shape[0];
  section.matrix(fmt::format("{}.weight", name), w.weight, std::move(shape));
  section.vector(fmt::format("{}.bias", name), w.bias, {rows});
}

void visit_vision(const VisionConfig& v, TensorVisitor& visitor, VisionWeights& w) {
  const Section tower(visitor, "model.visual.", TensorKind::kVision, -1);
  visit_linear(tower, "patch_embed.proj", w.patch_embed, {v.hidden, v.channels, v.temporal_patch, v.patch, v.patch});
  w.blocks.resize(static_cast<size_t>(v.depth));
  for (size_t index = 0; index < w.blocks.size(); ++index) {
    const Section block(visitor, fmt::format("model.visual.blocks.{}.", index), TensorKind::kVision, static_cast<int32_t>(index));
    VisionBlockWeights& b = w.blocks[index];
    block.vector("norm1.weight", b.norm1, {v.hidden});
    block.vector("norm2.weight", b.norm2, {v.hidden});
    visit_linear(block, "attn.qkv", b.qkv, {3 * v.hidden, v.hidden});
    block.vector("attn.q_norm.weight", b.q_norm, {v.head_dim()});
    block.vector("attn.k_norm.weight", b.k_norm, {v.head_dim()});
    visit_linear(block, "attn.proj", b.proj, {v.hidden, v.hidden});
    visit_linear(block, "mlp.gate_proj", b.gate, {v.intermediate, v.hidden});
    visit_linear(block, "mlp.up_proj", b.up, {v.intermediate, v.hidden});
    visit_linear(block, "mlp.down_proj", b.down, {v.hidden, v.intermediate});
  }
  tower.vector("post_layernorm.weight", w.post_norm, {v.hidden});
  visit_linear(tower, "downsample", w.downsample, {v.out_hidden, v.hidden, v.merge, v.merge});
  tower.matrix("merger.proj.weight", w.merger_proj, {v.out_hidden, v.out_hidden});
  tower.vector("merger.post_projection_norm.weight", w.merger_norm_weight, {v.out_hidden});
  tower.vector("merger.post_projection_norm.bias", w.merger_norm_bias, {v.out_hidden});
  tower.matrix("merger.gate_proj.weight", w.merger.gate, {v.projection_intermediate, v.out_hidden});
  tower.matrix("merger.up_proj.weight", w.merger.up, {v.projection_intermediate, v.out_hidden});
  tower.matrix("merger.down_proj.weight", w.merger.down, {v.out_hidden, v.projection_intermediate});
}

constexpr const char* kTextPrefix = "model.language_model.";

}  // namespace

void visit_tensors(const Glm5NextConfig& c, TensorVisitor& visitor, Glm5NextWeights& weights) {
  Section(visitor, kTextPrefix, TensorKind::kEmbedding, -1).matrix("embed_tokens.weight", weights.embedding, {c.vocab, c.hidden});
  Section(visitor, kTextPrefix, TensorKind::kNorm, -1).vector("norm.weight", weights.norm, {c.hidden});
  Section(visitor, "", TensorKind::kHead, -1).matrix("lm_head.weight", weights.head, {c.vocab, c.hidden}, Storage::kAnyFormat);
  weights.layers.resize(static_cast<size_t>(c.layers));
  for (size_t layer = 0; layer < weights.layers.size(); ++layer) {
    const LayerForm form = {c.mixers[layer], c.ffns[layer], c.indexers[layer] == IndexerKind::kFull, true};
    const Section section(visitor, fmt::format("{}layers.{}.", kTextPrefix, layer), TensorKind::kNorm, static_cast<int32_t>(layer));
    visit_layer(c, section, form, weights.layers[layer]);
  }
  if (c.draft_layer) {
    MtpWeights& mtp = ensure(weights.mtp);
    const Section section(visitor, fmt::format("{}layers.{}.", kTextPrefix, c.layers), TensorKind::kMtp, static_cast<int32_t>(c.layers));
    section.vector("enorm.weight", mtp.enorm, {c.hidden});
    section.vector("hnorm.weight", mtp.hnorm, {c.hidden});
    section.vector("shared_head.norm.weight", mtp.head_norm, {c.hidden});
    section.matrix("eh_proj.weight", mtp.eh_proj, {c.hidden, 2 * c.hidden}, Storage::kAnyFormat);
    visit_layer(c, section.under("", TensorKind::kNorm), LayerForm{}, mtp.layer);
  }
  if (c.vision) visit_vision(*c.vision, visitor, ensure(weights.vision));
}

}  // namespace lathe::models
