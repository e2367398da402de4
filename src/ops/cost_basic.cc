#include "ops/contracts.h"
#include "ops/costing.h"

namespace lathe::ops {

Cost cost(const EmbedParams& p) {
  Cost c;
  const int64_t rows = p.out.dim(0);
  add_weights(c, rows * p.table.cols() * static_cast<int64_t>(tensor::dtype_bytes(p.table.values.dtype)));
  c[Counter::kBytesRead] += bytes(p.ids) + bytes(p.override_row);
  c[Counter::kBytesWritten] = bytes(p.out);
  return c;
}

Cost cost(const GatherRowsParams& p) {
  Cost c;
  c[Counter::kBytesRead] = bytes(p.rows) + bytes(p.out);
  c[Counter::kBytesWritten] = bytes(p.out);
  return c;
}

Cost cost(const AddParams& p) {
  Cost c;
  c[Counter::kBytesRead] = bytes(p.a) + bytes(p.b);
  c[Counter::kBytesWritten] = bytes(p.out);
  c[Counter::kFlops] = p.out.elements();
  return c;
}

Cost cost(const RmsNormParams& p) {
  Cost c;
  add_weights(c, bytes(p.weight));
  c[Counter::kBytesRead] += bytes(p.x);
  c[Counter::kBytesWritten] = bytes(p.out);
  c[Counter::kFlops] = 4 * p.x.elements();  // square, add, two factors
  c[Counter::kRowsNormalised] = p.x.dim(0);
  c[Counter::kDivisions] = p.x.dim(0);
  return c;
}

Cost cost(const LayerNormParams& p) {
  Cost c;
  add_weights(c, bytes(p.weight) + bytes(p.bias));
  c[Counter::kBytesRead] += bytes(p.x);
  c[Counter::kBytesWritten] = bytes(p.out);
  c[Counter::kFlops] = 7 * p.x.elements();  // sum; deviation, square, sum; two factors, bias
  c[Counter::kRowsNormalised] = p.x.dim(0);
  c[Counter::kDivisions] = p.x.dim(0);
  return c;
}

Cost cost(const GeluParams& p) {
  Cost c;
  c[Counter::kBytesRead] = bytes(p.x);
  c[Counter::kBytesWritten] = bytes(p.out);
  c[Counter::kFlops] = 4 * p.x.elements();
  c[Counter::kExponentials] = p.x.elements();
  return c;
}

Cost cost(const MatmulParams& p) {
  Cost c;
  int64_t outputs = 0;
  for (int32_t i = 0; i < p.part_count; ++i) {
    const MatmulPart& part = p.parts[static_cast<size_t>(i)];
    outputs += part.weight.rows();
    add_product(c, p.x.dim(0), part.weight, part.bias);
    c[Counter::kBytesWritten] += bytes(part.y);
  }
  if (outputs > 0) c[Counter::kBytesRead] += bytes(p.x) + bytes(p.x_amax);
  return c;
}

Cost cost(const RowAmaxParams& p) {
  Cost c;
  c[Counter::kBytesRead] = bytes(p.x);
  c[Counter::kBytesWritten] = bytes(p.out);
  return c;
}

Cost cost(const ScaleSumsParams& p) {
  Cost c;
  if (p.y.elements() == 0) return c;
  add_weights(c, bytes(p.scales) + bytes(p.bias));
  c[Counter::kBytesRead] += bytes(p.sums) + bytes(p.x_amax);
  c[Counter::kBytesWritten] = bytes(p.y);
  c[Counter::kFlops] = p.bias.present() ? p.y.elements() : 0;
  return c;
}

Cost cost(const SwigluParams& p) {
  Cost c;
  c[Counter::kBytesRead] = bytes(p.gate) + bytes(p.up);
  c[Counter::kBytesWritten] = bytes(p.out);
  add_swiglu(c, p.out.elements());
  return c;
}

Cost cost(const GateUpParams& p) {
  Cost c;
  c[Counter::kBytesRead] = bytes(p.x);
  c[Counter::kBytesWritten] = bytes(p.out);
  add_product(c, p.x.dim(0), p.gate, p.gate_bias);
  add_product(c, p.x.dim(0), p.up, p.up_bias);
  add_swiglu(c, p.out.elements());
  return c;
}

}  // namespace lathe::ops
