#include "models/glm5_next_weights_device.h"

#include <cstring>

#include "models/weight_placer.h"

namespace lathe::models {
namespace {

MatrixView rows(const MatrixView& m, int64_t begin, int64_t end) { return tensor::slice_matrix(m, {begin, end}, {0, m.cols()}); }
MatrixView cols(const MatrixView& m, int64_t begin, int64_t end) {
  MatrixView out = tensor::slice_matrix(m, {0, m.rows()}, {begin, end});
  if (m.values.dtype == DType::kI8) out.scales = m.scales;  // those of the rows: they end a product also on a rank without channels
  return out;
}

class Builder {
 public:
  Builder(const Glm5NextConfig& config, const Glm5NextShards& shards, backend::Device& device) : config_(config), shards_(shards), place_(device) {}

  Result<void> text(Glm5NextDeviceWeights& out);
  Result<void> vision(VisionWeights& w, View& downsample);
  WeightPlacer& placer() { return place_; }

 private:
  Result<void> matrices(std::initializer_list<MatrixView*> list) {
    for (MatrixView* m : list) LATHE_TRY_VOID(place_.matrix(*m));
    return {};
  }
  Result<void> vectors(std::initializer_list<View*> list) {
    for (View* v : list) LATHE_TRY_VOID(place_.vector(*v));
    return {};
  }
  Result<void> linear(VisionLinear& w) {
    LATHE_TRY_VOID(place_.matrix(w.weight));
    return place_.vector(w.bias);
  }
  Result<void> layer(LayerWeights& w, LayerDerived& derived);
  Result<void> kda(KdaWeights& w, LayerDerived& derived);
  Result<void> dsa(DsaWeights& w);
  Result<void> mlp(MlpWeights& w, int64_t begin, int64_t end);
  Result<void> moe(MoeWeights& w, LayerDerived& derived);

  const Glm5NextConfig& config_;
  const Glm5NextShards& shards_;
  WeightPlacer place_;
};

Result<void> Builder::kda(KdaWeights& w, LayerDerived& derived) {
  const tensor::Shard& heads = shards_.plan.kda_heads;
  const int64_t begin = heads.begin * config_.kda.head_dim;
  const int64_t end = heads.end * config_.kda.head_dim;
  for (MatrixView* m : {&w.q, &w.k, &w.v, &w.f_b, &w.g_b}) *m = rows(*m, begin, end);
  w.b = rows(w.b, heads.begin, heads.end);
  w.a_log = w.a_log.slice(0, heads.begin, heads.end);
  w.dt_bias = w.dt_bias.slice(0, begin, end);
  w.o = cols(w.o, begin, end);
  const int64_t taps = config_.kda.conv_width, channels = end - begin;
  std::vector<float> conv(static_cast<size_t>(taps * 3 * channels));
  int64_t first = 0;
  for (View* part : {&w.q_conv, &w.k_conv, &w.v_conv}) {
    *part = part->rows(begin, end);
    const std::vector<float> values = to_float32(*part);
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t j = 0; j < taps; ++j) conv[static_cast<size_t>(j * 3 * channels + first + c)] = values[static_cast<size_t>(c * taps + j)];
    }
    first += channels;
  }
  LATHE_TRY(derived.conv, place_.copy(tensor::make_view(conv.data(), DType::kF32, {taps, 3 * channels})));
  LATHE_TRY_VOID(matrices({&w.q, &w.k, &w.v, &w.f_a, &w.g_a, &w.f_b, &w.g_b, &w.b, &w.o}));
  return vectors({&w.a_log, &w.dt_bias, &w.o_norm});
}

Result<void> Builder::dsa(DsaWeights& w) {
  const tensor::Shard& heads = shards_.plan.mla_heads;
  const MlaConfig& mla = config_.mla;
  w.q_b = rows(w.q_b, heads.begin * mla.nope_dim, heads.end * mla.nope_dim);
  w.kv_b = rows(w.kv_b, heads.begin * (mla.nope_dim + mla.v_dim), heads.end * (mla.nope_dim + mla.v_dim));
  w.o = cols(w.o, heads.begin * mla.v_dim, heads.end * mla.v_dim);
  LATHE_TRY_VOID(matrices({&w.q_a, &w.q_b, &w.kv_a, &w.kv_b, &w.o}));
  LATHE_TRY_VOID(vectors({&w.q_a_norm, &w.kv_a_norm}));
  if (!w.indexer) return {};
  IndexerWeights& index = *w.indexer;
  LATHE_TRY_VOID(matrices({&index.wq_b, &index.wk, &index.compress_gate, &index.weights_proj}));
  return vectors({&index.k_norm_weight, &index.k_norm_bias, &index.ape});
}

Result<void> Builder::mlp(MlpWeights& w, int64_t begin, int64_t end) {
  w.gate = rows(w.gate, begin, end);
  w.up = rows(w.up, begin, end);
  w.down = cols(w.down, begin, end);
  return matrices({&w.gate, &w.up, &w.down});
}

Result<void> Builder::moe(MoeWeights& w, LayerDerived& derived) {
  LATHE_TRY_VOID(place_.matrix(w.router));
  LATHE_TRY_VOID(place_.vector(w.correction_bias));
  LATHE_TRY_VOID(mlp(w.shared, shards_.shared_begin, shards_.shared_end));
  std::vector<MlpWeights> local;
  for (int64_t e = shards_.expert_begin; e < shards_.expert_end; ++e) {
    MlpWeights expert = w.experts[static_cast<size_t>(e)];
    LATHE_TRY_VOID(matrices({&expert.gate, &expert.up, &expert.down}));
    derived.gate.push_back(expert.gate);
    derived.up.push_back(expert.up);
    derived.down.push_back(expert.down);
    local.push_back(expert);
  }
  w.experts = std::move(local);
  return {};
}

Result<void> Builder::layer(LayerWeights& w, LayerDerived& derived) {
  for (MhcWeights* site : {&w.attn_mhc, &w.ffn_mhc}) {
    LATHE_TRY_VOID(place_.matrix(site->fn));
    LATHE_TRY_VOID(vectors({&site->base, &site->scale}));
  }
  LATHE_TRY_VOID(vectors({&w.input_norm, &w.post_attention_norm}));
  if (w.kda) LATHE_TRY_VOID(kda(*w.kda, derived));
  if (w.dsa) LATHE_TRY_VOID(dsa(*w.dsa));
  if (w.dense) LATHE_TRY_VOID(mlp(*w.dense, shards_.dense_begin, shards_.dense_end));
  if (w.moe) LATHE_TRY_VOID(moe(*w.moe, derived));
  return {};
}

Result<void> Builder::text(Glm5NextDeviceWeights& out) {
  Glm5NextWeights& w = out.bound;
  w.head = rows(w.head, shards_.vocabulary_begin, shards_.vocabulary_end);
  LATHE_TRY_VOID(matrices({&w.embedding, &w.head}));
  LATHE_TRY_VOID(place_.vector(w.norm));
  out.layers.resize(w.layers.size() + (w.mtp ? 1 : 0));
  for (size_t i = 0; i < w.layers.size(); ++i) LATHE_TRY_VOID(layer(w.layers[i], out.layers[i]));
  if (!w.mtp) return {};
  LATHE_TRY_VOID(vectors({&w.mtp->enorm, &w.mtp->hnorm, &w.mtp->head_norm}));
  LATHE_TRY_VOID(place_.matrix(w.mtp->eh_proj));
  return layer(w.mtp->layer, out.layers.back());
}

/// [out, channel, row, column] → [out, row, column, channel], element by element as stored.
std::vector<std::byte> channels_last(const View& weight, int64_t channels, int64_t cells) {
  const size_t element = tensor::dtype_bytes(weight.dtype);
  std::vector<std::byte> out(static_cast<size_t>(weight.elements()) * element);
  const auto* const source = static_cast<const std::byte*>(weight.data);
  size_t to = 0;
  for (int64_t row = 0; row < weight.dim(0); ++row) {
    for (int64_t cell = 0; cell < cells; ++cell) {
      for (int64_t channel = 0; channel < channels; ++channel, ++to) {
        std::memcpy(out.data() + to * element, source + static_cast<size_t>((row * channels + channel) * cells + cell) * element, element);
      }
    }
  }
  return out;
}

Result<void> Builder::vision(VisionWeights& w, View& downsample) {
  const VisionConfig& v = *config_.vision;
  LATHE_TRY_VOID(linear(w.patch_embed));
  for (VisionBlockWeights& block : w.blocks) {
    LATHE_TRY_VOID(vectors({&block.norm1, &block.norm2, &block.q_norm, &block.k_norm}));
    for (VisionLinear* l : {&block.qkv, &block.proj, &block.gate, &block.up, &block.down}) LATHE_TRY_VOID(linear(*l));
  }
  const View& stored = w.downsample.weight.values;
  std::vector<std::byte> turned = channels_last(stored, v.hidden, v.merge * v.merge);
  LATHE_TRY(downsample, place_.copy(tensor::make_view(turned.data(), stored.dtype, {stored.dim(0), stored.dim(1)})));
  w.downsample.weight = {};
  LATHE_TRY_VOID(vectors({&w.post_norm, &w.downsample.bias, &w.merger_norm_weight, &w.merger_norm_bias}));
  return matrices({&w.merger_proj, &w.merger.gate, &w.merger.up, &w.merger.down});
}

}  // namespace

Result<Glm5NextDeviceWeights> place_weights(const Glm5NextConfig& config, const Glm5NextShards& shards, Glm5NextWeights host,
                                            backend::Device& device) {
  Glm5NextDeviceWeights out;
  out.bound = std::move(host);
  Builder builder(config, shards, device);
  LATHE_TRY_VOID(builder.text(out));
  if (out.bound.vision) LATHE_TRY_VOID(builder.vision(*out.bound.vision, out.downsample));
  out.bytes = builder.placer().bytes();
  out.uploaded_bytes = builder.placer().uploaded_bytes();
  out.memory = builder.placer().take_memory();
  device.synchronise();
  return out;
}

}  // namespace lathe::models
