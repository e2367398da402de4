#include "plain_forward.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lathe::models::golden {
namespace {

double sigma(double x) { return 1.0 / (1.0 + std::exp(-x)); }

double element(const MatrixView& m, int64_t r, int64_t c) {
  const double value = tensor::load_as_float(m.values.dtype, m.values.data, r * m.values.step(0) + c);
  if (!m.scaled()) return value;
  return value * static_cast<double>(m.scales.f32()[(r + m.row_offset) / m.block_rows * m.scales.step(0) + (c + m.col_offset) / m.block_cols]);
}

/// y = x Wᵀ.
Table times(const Table& x, const MatrixView& w) {
  Table out(x.rows, w.rows());
  std::vector<double> row(static_cast<size_t>(w.cols()));
  for (int64_t n = 0; n < w.rows(); ++n) {
    for (int64_t k = 0; k < w.cols(); ++k) row[static_cast<size_t>(k)] = element(w, n, k);
    for (int64_t t = 0; t < x.rows; ++t) {
      double sum = 0;
      for (int64_t k = 0; k < w.cols(); ++k) sum += x.at(t, k) * row[static_cast<size_t>(k)];
      out.at(t, n) = sum;
    }
  }
  return out;
}

double entry(const View& v, int64_t i) { return tensor::load_as_float(v.dtype, v.data, i); }

/// Indices of the k largest values, lower index first on ties; the lead over the best one left out lowers `margin`.
std::vector<int64_t> top(const std::vector<double>& values, int64_t k, double& margin) {
  std::vector<int64_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return values[static_cast<size_t>(a)] > values[static_cast<size_t>(b)]; });
  if (static_cast<int64_t>(order.size()) > k) {
    const double lead = values[static_cast<size_t>(order[static_cast<size_t>(k - 1)])] - values[static_cast<size_t>(order[static_cast<size_t>(k)])];
    // Scores that are exactly zero (no head above the ReLU) tie in any arithmetic: the lower index wins, there is nothing to flip.
    if (lead != 0.0) margin = std::min(margin, lead);
    order.resize(static_cast<size_t>(k));
  }
  std::sort(order.begin(), order.end());
  return order;
}

/// Softmax of scores in place.
void softmax(std::vector<double>& scores) {
  if (scores.empty()) return;
  const double largest = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& s : scores) sum += s = std::exp(s - largest);
  for (double& s : scores) s /= sum;
}

}  // namespace

Table PlainForward::embed(const std::vector<TokenId>& ids) const {
  Table out(static_cast<int64_t>(ids.size()), c_.hidden);
  for (int64_t t = 0; t < out.rows; ++t) {
    for (int64_t d = 0; d < c_.hidden; ++d) out.at(t, d) = element(w_.embedding, ids[static_cast<size_t>(t)], d);
  }
  return out;
}

Table PlainForward::norm(const Table& x, const View& weight) const {
  Table out = x;
  for (int64_t t = 0; t < x.rows; ++t) {
    double square = 0;
    for (int64_t d = 0; d < x.cols; ++d) square += x.at(t, d) * x.at(t, d);
    const double factor = 1.0 / std::sqrt(square / static_cast<double>(x.cols) + static_cast<double>(c_.rms_norm_eps));
    for (int64_t d = 0; d < x.cols; ++d) out.at(t, d) = x.at(t, d) * factor * entry(weight, d);
  }
  return out;
}

PlainForward::Mixed PlainForward::mix(const std::vector<Table>& streams, const MhcWeights& site) const {
  const int64_t s = c_.mhc.streams;
  const int64_t rows = streams[0].rows;
  const double eps = static_cast<double>(c_.mhc.eps);
  Table flat(rows, s * c_.hidden);
  for (int64_t t = 0; t < rows; ++t) {
    double square = 0;
    for (int64_t a = 0; a < s; ++a) {
      for (int64_t d = 0; d < c_.hidden; ++d) square += std::pow(flat.at(t, a * c_.hidden + d) = streams[static_cast<size_t>(a)].at(t, d), 2);
    }
    const double factor = 1.0 / std::sqrt(square / static_cast<double>(flat.cols) + static_cast<double>(c_.rms_norm_eps));
    for (int64_t i = 0; i < flat.cols; ++i) flat.at(t, i) *= factor;
  }
  const Table m = times(flat, site.fn);
  Mixed out{.x = Table(rows, c_.hidden), .post = Table(rows, s), .comb = {}};
  for (int64_t t = 0; t < rows; ++t) {
    Table comb(s, s);
    for (int64_t a = 0; a < s; ++a) {
      const double pre = sigma(m.at(t, a) * entry(site.scale, 0) + entry(site.base, a)) + eps;
      out.post.at(t, a) = 2 * sigma(m.at(t, s + a) * entry(site.scale, 1) + entry(site.base, s + a));
      for (int64_t d = 0; d < c_.hidden; ++d) out.x.at(t, d) += pre * streams[static_cast<size_t>(a)].at(t, d);
      std::vector<double> row(static_cast<size_t>(s));
      for (int64_t b = 0; b < s; ++b)
        row[static_cast<size_t>(b)] = m.at(t, 2 * s + s * a + b) * entry(site.scale, 2) + entry(site.base, 2 * s + s * a + b);
      softmax(row);
      for (int64_t b = 0; b < s; ++b) comb.at(a, b) = row[static_cast<size_t>(b)] + eps;
    }
    const auto columns = [&] {
      for (int64_t b = 0; b < s; ++b) {
        double sum = eps;
        for (int64_t a = 0; a < s; ++a) sum += comb.at(a, b);
        for (int64_t a = 0; a < s; ++a) comb.at(a, b) /= sum;
      }
    };
    columns();
    for (int64_t round = 1; round < c_.mhc.sinkhorn_iterations; ++round) {
      for (int64_t a = 0; a < s; ++a) {
        double sum = eps;
        for (int64_t b = 0; b < s; ++b) sum += comb.at(a, b);
        for (int64_t b = 0; b < s; ++b) comb.at(a, b) /= sum;
      }
      columns();
    }
    out.comb.push_back(std::move(comb));
  }
  return out;
}

void PlainForward::unmix(std::vector<Table>& streams, const Mixed& mixed, const Table& y) const {
  const std::vector<Table> before = streams;
  for (int64_t t = 0; t < y.rows; ++t) {
    for (int64_t b = 0; b < c_.mhc.streams; ++b) {
      for (int64_t d = 0; d < c_.hidden; ++d) {
        double sum = mixed.post.at(t, b) * y.at(t, d);
        for (int64_t a = 0; a < c_.mhc.streams; ++a) sum += mixed.comb[static_cast<size_t>(t)].at(a, b) * before[static_cast<size_t>(a)].at(t, d);
        streams[static_cast<size_t>(b)].at(t, d) = sum;
      }
    }
  }
}

Table PlainForward::kda(const Table& u, const KdaWeights& w) const {
  const int64_t k = c_.kda.head_dim;
  const int64_t taps = c_.kda.conv_width;
  const auto convolved = [&](const MatrixView& projection, const View& conv) {
    const Table raw = times(u, projection);
    Table out(raw.rows, raw.cols);
    for (int64_t t = 0; t < raw.rows; ++t) {
      for (int64_t c = 0; c < raw.cols; ++c) {
        double sum = 0;
        for (int64_t j = 0; j < taps; ++j) sum += t - (taps - 1) + j >= 0 ? entry(conv, c * taps + j) * raw.at(t - (taps - 1) + j, c) : 0.0;
        out.at(t, c) = sum * sigma(sum);
      }
    }
    return out;
  };
  Table q = convolved(w.q, w.q_conv);
  Table key = convolved(w.k, w.k_conv);
  const Table v = convolved(w.v, w.v_conv);
  const Table decay = times(times(u, w.f_a), w.f_b);
  const Table gate = times(times(u, w.g_a), w.g_b);
  const Table b = times(u, w.b);
  Table joined(u.rows, c_.kda.channels());
  for (int64_t h = 0; h < c_.kda.heads; ++h) {
    Table state(k, k);
    for (int64_t t = 0; t < u.rows; ++t) {
      double qq = 1e-6;
      double kk = 1e-6;
      for (int64_t i = h * k; i < (h + 1) * k; ++i) qq += q.at(t, i) * q.at(t, i), kk += key.at(t, i) * key.at(t, i);
      std::vector<double> read(static_cast<size_t>(k));
      for (int64_t i = 0; i < k; ++i) {
        const int64_t c = h * k + i;
        q.at(t, c) /= std::sqrt(qq) * std::sqrt(static_cast<double>(k));
        key.at(t, c) /= std::sqrt(kk);
        const double a = decay.at(t, c) + entry(w.dt_bias, c);
        const double speed = std::exp(entry(w.a_log, h));
        const double g =
            c_.kda.gate_lower_bound ? static_cast<double>(*c_.kda.gate_lower_bound) * sigma(speed * a) : -speed * std::log1p(std::exp(a));
        for (int64_t j = 0; j < k; ++j) read[static_cast<size_t>(j)] += key.at(t, c) * (state.at(i, j) *= std::exp(g));
      }
      double square = 0;
      std::vector<double> o(static_cast<size_t>(k));
      for (int64_t j = 0; j < k; ++j) {
        const double delta = sigma(b.at(t, h)) * (v.at(t, h * k + j) - read[static_cast<size_t>(j)]);
        for (int64_t i = 0; i < k; ++i) o[static_cast<size_t>(j)] += q.at(t, h * k + i) * (state.at(i, j) += key.at(t, h * k + i) * delta);
        square += o[static_cast<size_t>(j)] * o[static_cast<size_t>(j)];
      }
      const double factor = 1.0 / std::sqrt(square / static_cast<double>(k) + static_cast<double>(c_.rms_norm_eps));
      for (int64_t j = 0; j < k; ++j)
        joined.at(t, h * k + j) = o[static_cast<size_t>(j)] * factor * entry(w.o_norm, j) * sigma(gate.at(t, h * k + j));
    }
  }
  return times(joined, w.o);
}

Table PlainForward::pooled_keys(const Table& u, const IndexerWeights& w) const {
  const int64_t pool = c_.indexer.kpool;
  const int64_t width = c_.indexer.head_dim;
  Table k = times(u, w.wk);
  for (int64_t t = 0; t < k.rows; ++t) {
    double mean = 0;
    double variance = 0;
    for (int64_t d = 0; d < width; ++d) mean += k.at(t, d) / static_cast<double>(width);
    for (int64_t d = 0; d < width; ++d) variance += std::pow(k.at(t, d) - mean, 2) / static_cast<double>(width);
    for (int64_t d = 0; d < width; ++d)
      k.at(t, d) = (k.at(t, d) - mean) / std::sqrt(variance + 1e-6) * entry(w.k_norm_weight, d) + entry(w.k_norm_bias, d);
  }
  const Table gate = times(u, w.compress_gate);
  Table out(u.rows / pool, width);
  for (int64_t p = 0; p < out.rows; ++p) {
    for (int64_t d = 0; d < width; ++d) {
      std::vector<double> alpha(static_cast<size_t>(pool));
      for (int64_t j = 0; j < pool; ++j) alpha[static_cast<size_t>(j)] = gate.at(p * pool + j, d) + entry(w.ape, j * width + d);
      softmax(alpha);
      for (int64_t j = 0; j < pool; ++j) out.at(p, d) += alpha[static_cast<size_t>(j)] * k.at(p * pool + j, d);
    }
  }
  return out;
}

void PlainForward::choose_pools(const Table& u, const Table& qr, const IndexerWeights& w) {
  const int64_t width = c_.indexer.head_dim;
  const Table keys = pooled_keys(u, w);
  const Table q = times(qr, w.wq_b);
  const Table weights = times(u, w.weights_proj);
  chosen_.assign(static_cast<size_t>(u.rows), {});
  for (int64_t t = 0; t < u.rows; ++t) {
    std::vector<double> scores(static_cast<size_t>((t + 1) / c_.indexer.kpool));
    for (size_t p = 0; p < scores.size(); ++p) {
      for (int64_t h = 0; h < c_.indexer.heads; ++h) {
        double dot = 0;
        for (int64_t d = 0; d < width; ++d) dot += q.at(t, h * width + d) * keys.at(static_cast<int64_t>(p), d);
        scores[p] += weights.at(t, h) / std::sqrt(static_cast<double>(c_.indexer.heads)) * std::max(0.0, dot / std::sqrt(static_cast<double>(width)));
      }
    }
    chosen_[static_cast<size_t>(t)] = top(scores, c_.indexer.topk_pools(), margin_);
  }
}

Table PlainForward::attend(const Table& q, const Table& latents, const DsaWeights& w) const {
  const MlaConfig& mla = c_.mla;
  const int64_t pool = c_.indexer.kpool;
  const Table kv = times(latents, w.kv_b);
  const int64_t head = mla.nope_dim + mla.v_dim;
  Table out(q.rows, mla.heads * mla.v_dim);
  for (int64_t t = 0; t < q.rows; ++t) {
    std::vector<int64_t> keys;
    for (const int64_t p : chosen_[static_cast<size_t>(t)]) {
      for (int64_t j = 0; j < pool; ++j) keys.push_back(p * pool + j);
    }
    for (int64_t i = (t + 1) / pool * pool; c_.indexer.always_select_tail && i <= t; ++i) keys.push_back(i);
    for (int64_t h = 0; h < mla.heads; ++h) {
      std::vector<double> scores;
      for (const int64_t i : keys) {
        double dot = 0;
        for (int64_t d = 0; d < mla.nope_dim; ++d) dot += q.at(t, h * mla.nope_dim + d) * kv.at(i, h * head + d);
        scores.push_back(dot / std::sqrt(static_cast<double>(mla.nope_dim)));
      }
      softmax(scores);
      for (size_t n = 0; n < keys.size(); ++n) {
        for (int64_t d = 0; d < mla.v_dim; ++d) out.at(t, h * mla.v_dim + d) += scores[n] * kv.at(keys[n], h * head + mla.nope_dim + d);
      }
    }
  }
  return out;
}

Table PlainForward::dsa(const Table& u, const DsaWeights& w) {
  const Table qr = norm(times(u, w.q_a), w.q_a_norm);
  const Table latents = norm(times(u, w.kv_a), w.kv_a_norm);
  if (w.indexer) choose_pools(u, qr, *w.indexer);
  return times(attend(times(qr, w.q_b), latents, w), w.o);
}

Table PlainForward::mlp(const Table& x, const MlpWeights& w) const {
  const double limit = static_cast<double>(c_.swiglu_limit);
  Table gate = times(x, w.gate);
  const Table up = times(x, w.up);
  for (size_t i = 0; i < gate.values.size(); ++i) {
    const double g = std::min(gate.values[i], limit);
    gate.values[i] = g * sigma(g) * std::clamp(up.values[i], -limit, limit);
  }
  return times(gate, w.down);
}

std::vector<int64_t> PlainForward::choose_experts(const std::vector<double>& biased) {
  const int64_t groups = c_.moe.groups;
  const int64_t size = c_.moe.experts / groups;
  std::vector<double> allowed = biased;
  if (groups > 1) {
    std::vector<double> best(static_cast<size_t>(groups));
    for (int64_t g = 0; g < groups; ++g) {
      std::vector<double> group(biased.begin() + g * size, biased.begin() + (g + 1) * size);
      std::sort(group.rbegin(), group.rend());
      best[static_cast<size_t>(g)] = group[0] + group[1];
    }
    const std::vector<int64_t> kept = top(best, c_.moe.groups_kept, margin_);
    for (int64_t e = 0; e < c_.moe.experts; ++e) {
      if (std::find(kept.begin(), kept.end(), e / size) == kept.end()) allowed[static_cast<size_t>(e)] = -1e30;
    }
  }
  return top(allowed, c_.moe.experts_per_token, margin_);
}

Table PlainForward::moe(const Table& x, const MoeWeights& w) {
  const Table logits = times(x, w.router);
  Table out = mlp(x, w.shared);
  for (int64_t t = 0; t < x.rows; ++t) {
    std::vector<double> biased;
    for (int64_t e = 0; e < c_.moe.experts; ++e) biased.push_back(sigma(logits.at(t, e)) + entry(w.correction_bias, e));
    const std::vector<int64_t> experts = choose_experts(biased);
    double sum = 1e-20;
    for (const int64_t e : experts) sum += sigma(logits.at(t, e));
    Table row(1, x.cols);
    for (int64_t d = 0; d < x.cols; ++d) row.at(0, d) = x.at(t, d);
    for (const int64_t e : experts) {
      const double weight = sigma(logits.at(t, e)) / (c_.moe.normalise_topk ? sum : 1.0) * static_cast<double>(c_.moe.routed_scale);
      const Table y = mlp(row, w.experts[static_cast<size_t>(e)]);
      for (int64_t d = 0; d < x.cols; ++d) out.at(t, d) += weight * y.at(0, d);
    }
  }
  return out;
}

Table PlainForward::hidden(const std::vector<TokenId>& ids) {
  std::vector<Table> streams(static_cast<size_t>(c_.mhc.streams), embed(ids));
  for (const LayerWeights& layer : w_.layers) {
    Mixed mixed = mix(streams, layer.attn_mhc);
    const Table u = norm(mixed.x, layer.input_norm);
    unmix(streams, mixed, layer.kda ? kda(u, *layer.kda) : dsa(u, *layer.dsa));
    mixed = mix(streams, layer.ffn_mhc);
    unmix(streams, mixed, ffn(norm(mixed.x, layer.post_attention_norm), layer));
  }
  Table mean(streams[0].rows, c_.hidden);
  for (const Table& stream : streams) {
    for (size_t i = 0; i < mean.values.size(); ++i) mean.values[i] += stream.values[i] / static_cast<double>(c_.mhc.streams);
  }
  return norm(mean, w_.norm);
}

Table PlainForward::logits(const Table& hidden) const { return times(hidden, w_.head); }

Table PlainForward::draft(const std::vector<TokenId>& ids, const Table& hidden) {
  const MtpWeights& w = *w_.mtp;
  const Table e = norm(embed({ids.begin() + 1, ids.end()}), w.enorm);
  const Table h = norm(hidden, w.hnorm);
  Table joined(e.rows, 2 * c_.hidden);
  for (int64_t t = 0; t < e.rows; ++t) {
    for (int64_t d = 0; d < c_.hidden; ++d) joined.at(t, d) = e.at(t, d), joined.at(t, c_.hidden + d) = h.at(t, d);
  }
  Table x = times(joined, w.eh_proj);
  const auto add = [&x](const Table& y) {
    for (size_t i = 0; i < x.values.size(); ++i) x.values[i] += y.values[i];
  };
  add(dsa(norm(x, w.layer.input_norm), *w.layer.dsa));
  add(ffn(norm(x, w.layer.post_attention_norm), w.layer));
  return norm(x, w.head_norm);
}

}  // namespace lathe::models::golden
