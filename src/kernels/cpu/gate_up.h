#pragma once
// Two products of the same rows panel by panel, for gate_up and the experts. Included in kernel files only; internal linkage.

#include "kernels/cpu/rows.h"

namespace lathe::kernels::cpu {
namespace {

inline void count_swiglu([[maybe_unused]] int64_t elements, [[maybe_unused]] const ops::LaunchContext& context) {
  LATHE_COUNT(context, kFlops, 3 * elements);
  LATHE_COUNT(context, kExponentials, elements);
  LATHE_COUNT(context, kDivisions, elements);
}

struct GateUp {
  PanelSource gate, up;

  GateUp(const Level& level, const MatrixView& gate_matrix, const MatrixView& up_matrix, ops::Compute compute)
      : gate(level, gate_matrix, compute, 0), up(level, up_matrix, compute, 0) {}
  int64_t bytes(int64_t rows) const { return PanelRun::bytes(gate, rows, 1) + PanelRun::bytes(up, rows, 1); }

  /// Calls done(row, count, present outputs, gate totals, up totals) for every block of rows [begin, end), of at most `block`.
  template <class Done>
  void run(int64_t panel, int64_t begin, int64_t end, const Rows& gate_x, const Rows& up_x, int64_t block, void* local,
           const ops::LaunchContext& context, const Done& done) const {
    PanelRun gates(gate, context, local, block), ups(up, context, static_cast<char*>(local) + PanelRun::bytes(gate, block, 1), block);
    gates.begin(panel);
    ups.begin(panel);
    const int64_t blocks = ceil_div(end - begin, block);
    for (int64_t i = 0; i < blocks; ++i) {
      const int64_t row = begin + (end - begin) * i / blocks, count = begin + (end - begin) * (i + 1) / blocks - row;
      float* const gate_totals = gates.node(gate_x, row, count, 0, 1, 0);
      float* const up_totals = ups.node(up_x, row, count, 0, 1, 0);
      done(row, count, gates.present(), gate_totals, up_totals);
    }
  }
};

}  // namespace
}  // namespace lathe::kernels::cpu
