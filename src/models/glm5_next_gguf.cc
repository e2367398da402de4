#include "models/glm5_next_gguf.h"

#include <fmt/format.h>

#include <cmath>

#include "tensor/rows.h"

namespace lathe::models {
namespace {

using Shape = std::vector<int64_t>;

/// The tensors of one block.
class Block {
 public:
  Block(std::vector<GgufSource>& out, std::string prefix) : out_(out), prefix_(std::move(prefix)) {}

  /// A matrix in the type of the file.
  void matrix(std::string_view name, const MatrixView& m) const {
    GgufSource& row = add(name, {m.rows(), m.cols()}, GgufForm::kMatrix);
    row.chosen_type = true;
    row.matrices = {m};
  }
  /// A matrix that decides something: f32.
  void exact(std::string_view name, const MatrixView& m) const { add(name, {m.rows(), m.cols()}, GgufForm::kMatrix).matrices = {m}; }
  void vector(std::string_view name, const View& v, GgufForm form = GgufForm::kVector) const {
    add(name, Shape(v.shape.begin(), v.shape.begin() + v.rank), form).vector = v;
  }
  void convolution(std::string_view name, const View& v) const { add(name, {1, v.dim(0), 1, v.dim(1)}, GgufForm::kVector).vector = v; }
  /// Matrices of one shape, stacked.
  void stack(std::string_view name, std::vector<MatrixView> matrices) const {
    const auto count = static_cast<int64_t>(matrices.size());
    GgufSource& row = add(name, {count, matrices[0].rows(), matrices[0].cols()}, GgufForm::kMatrix);
    row.chosen_type = true;
    row.matrices = std::move(matrices);
  }
  void kv_half(std::string_view name, Shape shape, GgufForm form, const MlaConfig& mla, const MatrixView& kv_b) const {
    GgufSource& row = add(name, std::move(shape), form);
    row.chosen_type = true;
    row.matrices = {kv_b};
    row.nope = mla.nope_dim;
    row.value = mla.v_dim;
  }

 private:
  GgufSource& add(std::string_view name, Shape shape, GgufForm form) const {
    out_.push_back({.tensor = {.name = prefix_ + std::string(name), .shape = std::move(shape)}, .form = form, .matrices = {}, .vector = {}});
    return out_.back();
  }
  std::vector<GgufSource>& out_;
  std::string prefix_;
};

void add_mhc(const Block& block, const std::string& site, const MhcWeights& w) {
  block.exact("hc_" + site + "_fn.weight", w.fn);
  block.vector("hc_" + site + "_base.weight", w.base);
  block.vector("hc_" + site + "_scale.weight", w.scale);
}

void add_kda(const Block& block, const KdaWeights& w) {
  block.matrix("attn_q.weight", w.q);
  block.matrix("attn_k.weight", w.k);
  block.matrix("attn_v.weight", w.v);
  block.convolution("ssm_conv1d_q.weight", w.q_conv);
  block.convolution("ssm_conv1d_k.weight", w.k_conv);
  block.convolution("ssm_conv1d_v.weight", w.v_conv);
  block.matrix("ssm_f_a.weight", w.f_a);
  block.matrix("ssm_f_b.weight", w.f_b);
  block.matrix("ssm_g_a.weight", w.g_a);
  block.matrix("ssm_g_b.weight", w.g_b);
  block.matrix("ssm_beta.weight", w.b);
  block.vector("ssm_a", w.a_log, GgufForm::kNegExp);
  block.vector("ssm_dt.bias", w.dt_bias);
  block.vector("ssm_norm.weight", w.o_norm);
  block.matrix("attn_output.weight", w.o);
}

void add_dsa(const Block& block, const MlaConfig& mla, const DsaWeights& w) {
  block.matrix("attn_q_a.weight", w.q_a);
  block.vector("attn_q_a_norm.weight", w.q_a_norm);
  block.matrix("attn_q_b.weight", w.q_b);
  block.matrix("attn_kv_a_mqa.weight", w.kv_a);
  block.vector("attn_kv_a_norm.weight", w.kv_a_norm);
  block.kv_half("attn_k_b.weight", {mla.heads, mla.kv_lora_rank, mla.nope_dim}, GgufForm::kKeysOfKv, mla, w.kv_b);
  block.kv_half("attn_v_b.weight", {mla.heads, mla.v_dim, mla.kv_lora_rank}, GgufForm::kValuesOfKv, mla, w.kv_b);
  block.matrix("attn_output.weight", w.o);
  if (!w.indexer) return;
  block.matrix("indexer.attn_q_b.weight", w.indexer->wq_b);
  block.matrix("indexer.attn_k.weight", w.indexer->wk);
  block.exact("indexer.proj.weight", w.indexer->weights_proj);
  block.vector("indexer.k_norm.weight", w.indexer->k_norm_weight);
  block.vector("indexer.k_norm.bias", w.indexer->k_norm_bias);
  block.matrix("indexer_compressor_gate.weight", w.indexer->compress_gate);
  block.vector("indexer_compressor_ape.weight", w.indexer->ape);
}

void add_moe(const Block& block, const MoeWeights& w) {
  block.exact("ffn_gate_inp.weight", w.router);
  block.vector("exp_probs_b.bias", w.correction_bias);
  const auto all = [&](MatrixView MlpWeights::* part) {
    std::vector<MatrixView> out;
    for (const MlpWeights& expert : w.experts) out.push_back(expert.*part);
    return out;
  };
  block.stack("ffn_gate_exps.weight", all(&MlpWeights::gate));
  block.stack("ffn_up_exps.weight", all(&MlpWeights::up));
  block.stack("ffn_down_exps.weight", all(&MlpWeights::down));
  block.matrix("ffn_gate_shexp.weight", w.shared.gate);
  block.matrix("ffn_up_shexp.weight", w.shared.up);
  block.matrix("ffn_down_shexp.weight", w.shared.down);
}

void add_layer(const Block& block, const Glm5NextConfig& c, const LayerWeights& w) {
  block.vector("attn_norm.weight", w.input_norm);
  block.vector("ffn_norm.weight", w.post_attention_norm);
  if (w.attn_mhc.fn.present()) {
    add_mhc(block, "attn", w.attn_mhc);
    add_mhc(block, "ffn", w.ffn_mhc);
  }
  if (w.kda) add_kda(block, *w.kda);
  if (w.dsa) add_dsa(block, c.mla, *w.dsa);
  if (w.moe) add_moe(block, *w.moe);
  if (!w.dense) return;
  block.matrix("ffn_gate.weight", w.dense->gate);
  block.matrix("ffn_up.weight", w.dense->up);
  block.matrix("ffn_down.weight", w.dense->down);
}

}  // namespace

std::vector<GgufSource> gguf_sources(const Glm5NextConfig& c, const Glm5NextWeights& w) {
  std::vector<GgufSource> out;
  const Block top(out, "");
  top.matrix("token_embd.weight", w.embedding);
  top.vector("output_norm.weight", w.norm);
  top.matrix("output.weight", w.head);
  for (size_t layer = 0; layer < w.layers.size(); ++layer) add_layer(Block(out, fmt::format("blk.{}.", layer)), c, w.layers[layer]);
  if (w.mtp) {
    const Block draft(out, fmt::format("blk.{}.", c.layers));
    draft.matrix("nextn.eh_proj.weight", w.mtp->eh_proj);
    draft.vector("nextn.enorm.weight", w.mtp->enorm);
    draft.vector("nextn.hnorm.weight", w.mtp->hnorm);
    draft.vector("nextn.shared_head_norm.weight", w.mtp->head_norm);
    add_layer(draft, c, w.mtp->layer);
  }
  return out;
}

void GgufSource::read_row(int64_t row, std::span<float> out) const {
  const auto cols = static_cast<int64_t>(out.size());
  switch (form) {
    case GgufForm::kMatrix: {
      const int64_t rows = matrices[0].rows();
      tensor::row_as_float(matrices[static_cast<size_t>(row / rows)], row % rows, out);
      return;
    }
    case GgufForm::kVector:
    case GgufForm::kNegExp:
      for (int64_t i = 0; i < cols; ++i) {
        const float stored = tensor::load_as_float(vector.dtype, vector.data, row * cols + i);
        out[static_cast<size_t>(i)] = form == GgufForm::kNegExp ? -std::exp(stored) : stored;
      }
      return;
    case GgufForm::kKeysOfKv: {  // row (head, latent): one column of the head's key rows
      const int64_t latents = matrices[0].cols();
      const int64_t first = row / latents * (nope + value);
      for (int64_t i = 0; i < cols; ++i) out[static_cast<size_t>(i)] = tensor::value_as_float(matrices[0], first + i, row % latents);
      return;
    }
    case GgufForm::kValuesOfKv: tensor::row_as_float(matrices[0], row / value * (nope + value) + nope + row % value, out); return;
  }
}

}  // namespace lathe::models
