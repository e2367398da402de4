// index_keys, all levels.
//
// Idea    every raw key is normalised once into scratch; then each row that completes a pool makes its key, channel by channel; then the raw tail goes to the
//         ring. Rows run side by side in both passes; the ring is read before it is written.
// Floor   bytes of k and gate in, of pooled keys and tail out.
#include "kernels/cpu/attention_isa.h"
#include "kernels/cpu/batch_rows.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/vectors.h"
#include "ops/mla.h"

namespace lathe::kernels::cpu {
namespace {

constexpr int64_t kPoolMax = 64;

struct Isa {
  const MatmulIsa& matmul;
  const RowIsa& row;
  const AttentionIsa& attention;
};

class IndexKeys {
 public:
  IndexKeys(const Isa& isa, const ops::IndexKeysParams& p, const ops::LaunchContext& context)
      : isa_(isa), p_(p), context_(context), rows_(p.k.dim(0)), width_(p.k.dim(1)), pool_(p.ape.dim(0)) {}

  void run() {
    [[maybe_unused]] const int64_t weights = width_ * (size_of(p_.norm_weight) + size_of(p_.norm_bias) + pool_ * size_of(p_.ape));
    LATHE_COUNT(context_, kWeightBytes, weights);
    LATHE_COUNT(context_, kBytesRead, weights + (3 * p_.batch.sequences() + 1) * 4);
    if (rows_ == 0) return;
    const int64_t weight_bytes = float_bytes(p_.norm_weight), bias_bytes = float_bytes(p_.norm_bias), ape_bytes = round_up(pool_ * width_ * 4, 64);
    char* const memory = static_cast<char*>(context_.scratch->shared(weight_bytes + bias_bytes + ape_bytes + rows_ * width_ * 4));
    if (memory == nullptr) return;
    const float* const weight = as_floats(isa_.row, p_.norm_weight, memory);
    const float* const bias = as_floats(isa_.row, p_.norm_bias, memory + weight_bytes);
    ape_ = reinterpret_cast<float*>(memory + weight_bytes + bias_bytes);
    for (int64_t j = 0; j < pool_; ++j) {
      for (int64_t c = 0; c < width_; ++c) ape_[j * width_ + c] = tensor::load_as_float(p_.ape.dtype, p_.ape.data, j * p_.ape.step(0) + c);
    }
    normed_ = reinterpret_cast<float*>(memory + weight_bytes + bias_bytes + ape_bytes);
    for_pieces(context_, rows_, 2 * width_, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) isa_.row.layer_norm(row(p_.k, t), weight, bias, p_.eps, width_, normed_ + t * width_);
      LATHE_COUNT(context_, kRowsNormalised, end - begin);
      LATHE_COUNT(context_, kDivisions, end - begin);
      LATHE_COUNT(context_, kFlops, 7 * (end - begin) * width_);
      LATHE_COUNT(context_, kBytesRead, (end - begin) * width_ * 8);
    });
    for_pieces(context_, rows_, 8 * width_, [&](int64_t begin, int64_t end, int worker) {
      float* const key = static_cast<float*>(context_.scratch->local(worker, width_ * 4));
      if (key == nullptr) return;
      for (int64_t t = begin; t < end; ++t) complete(t, key);
    });
    for (int64_t s = 0; s < p_.batch.sequences(); ++s) keep(s);
  }

 private:
  float* ring_row(int64_t s, int64_t position) const { return row(p_.ring, p_.slot.i32()[s]) + position % p_.ring.dim(1) * p_.ring.step(1); }

  /// Makes the pooled key if row t ends a pool.
  void complete(int64_t t, float* key) const {
    const int64_t s = sequence_of(p_.batch, t), position = position_of(p_.batch, s, t), start = p_.batch.start.i32()[s];
    if ((position + 1) % pool_ != 0) return;
    const float* keys[kPoolMax];
    const float* gates[kPoolMax];
    for (int64_t j = 0; j < pool_; ++j) {
      const int64_t at = position - (pool_ - 1) + j;
      if (at < start) {
        keys[j] = ring_row(s, at), gates[j] = keys[j] + p_.ring.step(2);
        LATHE_COUNT(context_, kBytesRead, 2 * width_ * 4);
      } else {
        const int64_t source = p_.batch.begin.i32()[s] + at - start;
        keys[j] = normed_ + source * width_, gates[j] = row(p_.gate, source);
      }
    }
    const int64_t to = paged_row(p_.keys, s, position / pool_);
    if (p_.keys.pool.dtype == DType::kF32) {
      isa_.attention.pool(keys, gates, ape_, pool_, width_, p_.keys.pool.f32() + to * p_.keys.pool.step(0));
    } else {
      isa_.attention.pool(keys, gates, ape_, pool_, width_, key);
      write_paged(isa_.row, isa_.matmul, p_.keys, to, key);
    }
    LATHE_COUNT(context_, kBytesWritten, paged_row_bytes(p_.keys));
    LATHE_COUNT(context_, kFlops, 5 * pool_ * width_);
    LATHE_COUNT(context_, kExponentials, pool_ * width_);
    LATHE_COUNT(context_, kDivisions, width_);
  }

  void keep(int64_t s) const {
    const int64_t begin = p_.batch.begin.i32()[s], end = p_.batch.begin.i32()[s + 1];
    for (int64_t t = std::max(begin, end - p_.ring.dim(1)); t < end; ++t) {
      float* const to = ring_row(s, position_of(p_.batch, s, t));
      std::memcpy(to, normed_ + t * width_, static_cast<size_t>(width_) * 4);
      std::memcpy(to + p_.ring.step(2), row(p_.gate, t), static_cast<size_t>(width_) * 4);
      LATHE_COUNT(context_, kBytesWritten, 2 * width_ * 4);
    }
  }

  const Isa& isa_;
  const ops::IndexKeysParams& p_;
  const ops::LaunchContext& context_;
  int64_t rows_, width_, pool_;
  float* ape_ = nullptr;     ///< [P, dx]
  float* normed_ = nullptr;  ///< [T, dx]
};

void run(const Isa& isa, const void* params, const ops::LaunchContext& context) {
  IndexKeys(isa, *static_cast<const ops::IndexKeysParams*>(params), context).run();
}

}  // namespace

void LATHE_KERNEL(index_keys_scalar)(const void* params, const ops::LaunchContext& context) {
  run({kMatmulScalar, kRowScalar, kAttentionScalar}, params, context);
}
void LATHE_KERNEL(index_keys_avx2)(const void* params, const ops::LaunchContext& context) {
  run({kMatmulAvx2, kRowAvx2, kAttentionAvx2}, params, context);
}
void LATHE_KERNEL(index_keys_avx512)(const void* params, const ops::LaunchContext& context) {
  run({kMatmulAvx512, kRowAvx512, kAttentionAvx512}, params, context);
}

}  // namespace lathe::kernels::cpu
