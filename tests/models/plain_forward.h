#pragma once
// Test support: the text model and the draft layer in double precision, one sequence at once, straight from the formulas of the specification. Shares nothing
// with the ops: it judges configurations for which no public reference has values.

#include <cstdint>
#include <vector>

#include "models/glm5_next_config.h"
#include "models/glm5_next_tensors.h"

namespace lathe::models::golden {

/// Row-major [rows, cols].
struct Table {
  int64_t rows = 0, cols = 0;
  std::vector<double> values;
  Table() = default;
  Table(int64_t r, int64_t c) : rows(r), cols(c), values(static_cast<size_t>(r * c)) {}
  double& at(int64_t r, int64_t c) { return values[static_cast<size_t>(r * cols + c)]; }
  double at(int64_t r, int64_t c) const { return values[static_cast<size_t>(r * cols + c)]; }
};

class PlainForward {
 public:
  /// The weights' views must stay valid.
  PlainForward(const Glm5NextConfig& config, const Glm5NextWeights& weights) : c_(config), w_(weights) {}

  /// After the final norm, for every token.
  Table hidden(const std::vector<TokenId>& ids);
  Table logits(const Table& hidden) const;
  /// The draft layer at positions 0 … n−2 of n tokens; hidden states after its last norm.
  Table draft(const std::vector<TokenId>& ids, const Table& hidden);
  /// Smallest lead of a chosen expert or pool over the best one left out, in all that was computed so far: where it is tiny, rounding may choose otherwise.
  double margin() const { return margin_; }

 private:
  struct Mixed {
    Table x, post;
    std::vector<Table> comb;
  };
  Table embed(const std::vector<TokenId>& ids) const;
  Table norm(const Table& x, const View& weight) const;
  Mixed mix(const std::vector<Table>& streams, const MhcWeights& site) const;
  void unmix(std::vector<Table>& streams, const Mixed& mixed, const Table& y) const;
  Table kda(const Table& u, const KdaWeights& w) const;
  Table dsa(const Table& u, const DsaWeights& w);
  Table pooled_keys(const Table& u, const IndexerWeights& w) const;
  void choose_pools(const Table& u, const Table& qr, const IndexerWeights& w);
  Table attend(const Table& q, const Table& latents, const DsaWeights& w) const;
  Table mlp(const Table& x, const MlpWeights& w) const;
  Table moe(const Table& x, const MoeWeights& w);
  std::vector<int64_t> choose_experts(const std::vector<double>& biased);
  Table ffn(const Table& x, const LayerWeights& w) { return w.dense ? mlp(x, *w.dense) : moe(x, *w.moe); }

  const Glm5NextConfig& c_;
  const Glm5NextWeights& w_;
  std::vector<std::vector<int64_t>> chosen_;  ///< per token: pools, of the last indexer
  double margin_ = 1e300;
};

}  // namespace lathe::models::golden
