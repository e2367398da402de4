// embed, gather_rows and write_latents, all levels: copies of rows with a change of dtype, or made into codes.
//
// Floor   bytes of the rows in and out.
#include "kernels/cpu/batch_rows.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/vectors.h"
#include "ops/basic.h"
#include "ops/mla.h"

namespace lathe::kernels::cpu {
namespace {

struct Isa {
  const RowIsa& row;
  const MatmulIsa& matmul;
};

void embed(const Isa& isa, const ops::EmbedParams& p, const ops::LaunchContext& context) {
  const int64_t width = p.table.cols();
  const View& table = p.table.values;
  for_pieces(context, p.out.dim(0), width, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      float* const out = row(p.out, t);
      const int32_t image = p.override_row.present() ? p.override_row.i32()[t] : -1;
      LATHE_COUNT(context, kBytesRead, 4 + (p.override_row.present() ? 4 : 0) + width * (image >= 0 ? 4 : size_of(table)));
      LATHE_COUNT(context, kBytesWritten, width * 4);
      if (image >= 0) {
        std::memcpy(out, row(p.overrides, image), static_cast<size_t>(width) * 4);
        continue;
      }
      const int64_t id = p.ids.i32()[t], at = id * table.step(0);
      LATHE_CHECK(0 <= id && id < p.table.rows(), "id {} of {}", id, p.table.rows());
      LATHE_COUNT(context, kWeightBytes, width * size_of(table));
      if (table.dtype == DType::kF32) {
        std::memcpy(out, table.f32() + at, static_cast<size_t>(width) * 4);
      } else if (table.dtype == DType::kBF16) {
        isa.row.from_bf16(table.bf16() + at, width, out);
      } else {
        for (int64_t c = 0; c < width; ++c) out[c] = tensor::load_as_float(table.dtype, table.data, at + c);
      }
    }
  });
}

void gather_rows(const Isa&, const ops::GatherRowsParams& p, const ops::LaunchContext& context) {
  const int64_t width = p.out.dim(1);
  for_pieces(context, p.out.dim(0), width, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t from = p.rows.i32()[i];
      LATHE_CHECK(0 <= from && from < p.x.dim(0), "row {} of {}", from, p.x.dim(0));
      std::memcpy(row(p.out, i), row(p.x, from), static_cast<size_t>(width) * 4);
    }
    LATHE_COUNT(context, kBytesRead, (end - begin) * (4 + width * 4));
    LATHE_COUNT(context, kBytesWritten, (end - begin) * width * 4);
  });
}

void write_latents(const Isa& isa, const ops::WriteLatentsParams& p, const ops::LaunchContext& context) {
  const int64_t width = p.x.dim(1);
  LATHE_COUNT(context, kBytesRead, (2 * p.batch.sequences() + 1) * 4);
  for_pieces(context, p.x.dim(0), width, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t s = sequence_of(p.batch, t);
      write_paged(isa.row, isa.matmul, p.pool, paged_row(p.pool, s, position_of(p.batch, s, t)), row(p.x, t));
    }
    LATHE_COUNT(context, kBytesRead, (end - begin) * width * 4);
    LATHE_COUNT(context, kBytesWritten, (end - begin) * paged_row_bytes(p.pool));
  });
}

}  // namespace

#define LATHE_MOVE_KERNEL(name, Params)                                                     \
  void LATHE_KERNEL(name##_scalar)(const void* params, const ops::LaunchContext& context) { \
    name({kRowScalar, kMatmulScalar}, *static_cast<const ops::Params*>(params), context);   \
  }                                                                                         \
  void LATHE_KERNEL(name##_avx2)(const void* params, const ops::LaunchContext& context) {   \
    name({kRowAvx2, kMatmulAvx2}, *static_cast<const ops::Params*>(params), context);       \
  }                                                                                         \
  void LATHE_KERNEL(name##_avx512)(const void* params, const ops::LaunchContext& context) { \
    name({kRowAvx512, kMatmulAvx512}, *static_cast<const ops::Params*>(params), context);   \
  }

LATHE_MOVE_KERNEL(embed, EmbedParams)
LATHE_MOVE_KERNEL(gather_rows, GatherRowsParams)
LATHE_MOVE_KERNEL(write_latents, WriteLatentsParams)

#undef LATHE_MOVE_KERNEL

}  // namespace lathe::kernels::cpu
