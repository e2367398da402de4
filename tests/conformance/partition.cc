// Computing a problem in pieces: rows alone, sequences alone, sequences cut. Every piece works on one fresh copy of the problem, so at the end its memory must be
// that of the run in one piece.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>

#include "harness.h"
#include "ops/visit.h"

namespace lathe::conformance {
namespace {

using ops::OpId;
using ops::cases::Parts;

/// Views whose axis counts tokens. The axis is 0 but for partial outputs.
int token_axis(OpId op, const std::string& name, const View& view) {
  static const std::map<OpId, std::vector<std::string>> names = {
      {OpId::kEmbed, {"ids", "override_row", "out"}},
      {OpId::kGatherRows, {"rows", "out"}},
      {OpId::kAdd, {"a", "b", "out"}},
      {OpId::kRmsNorm, {"x", "out"}},
      {OpId::kLayerNorm, {"x", "out"}},
      {OpId::kGelu, {"x", "out"}},
      {OpId::kMatmul, {"x", "x_amax", "y"}},
      {OpId::kRowAmax, {"x", "out"}},
      {OpId::kScaleSums, {"sums", "x_amax", "y"}},
      {OpId::kSwiglu, {"gate", "up", "out"}},
      {OpId::kGateUp, {"x", "out"}},
      {OpId::kMhcIn, {"streams", "x", "post", "comb"}},
      {OpId::kMhcOut, {"streams", "y", "post", "comb", "out"}},
      {OpId::kStreamMean, {"streams", "out"}},
      {OpId::kShortConv, {"x", "out"}},
      {OpId::kKdaGate, {"a", "b", "g", "beta"}},
      {OpId::kKdaRecurrence, {"q", "k", "v", "g", "beta", "state_out", "o"}},
      {OpId::kKdaVerify, {"q", "k", "v", "g", "beta", "fold", "o"}},
      {OpId::kKdaFlush, {"state_in", "into", "checkpoint", "to", "slot"}},  // its rows are sequences
      {OpId::kGatedNorm, {"o", "gate", "out"}},
      {OpId::kWriteLatents, {"x"}},
      {OpId::kIndexKeys, {"k", "gate"}},
      {OpId::kIndexSelect, {"q", "weights", "selection", "scores"}},
      {OpId::kMlaAbsorb, {"q", "out"}},
      {OpId::kMlaAttend, {"q", "pools", "tail_begin", "out", "row_max", "row_sum"}},
      {OpId::kMlaUnabsorb, {"z", "out"}},
      {OpId::kMlaExpanded, {"q", "pools", "tail_begin", "out"}},
      {OpId::kRoute, {"logits", "ids", "weights"}},
      {OpId::kMoe, {"x", "ids", "weights", "y", "present"}},
      {OpId::kVisionRope, {"qkv", "positions"}},
      {OpId::kVisionAttend, {"qkv", "out"}},
  };
  const std::vector<std::string>& list = names.at(op);
  if (std::find(list.begin(), list.end(), name) == list.end()) return -1;
  if (name == "y" && (op == OpId::kMatmul || op == OpId::kMoe)) return view.rank - 2;
  return name == "present" ? 1 : 0;
}

bool counts_sequences(const std::string& name) {
  static const std::array<const char*, 7> names = {"slot", "state_in", "table", "pair_m", "pair_h", "state", "checkpoint"};
  return std::any_of(names.begin(), names.end(), [&](const char* n) { return name == n; });
}

/// Params of one piece: rows [r0, r1), and the sequence they belong to (−1: the op knows no sequences).
class Narrow : public ops::ViewVisitor {
 public:
  Narrow(OpId op, int64_t r0, int64_t r1, int64_t sequence) : op_(op), r0_(r0), r1_(r1), sequence_(sequence) {}
  void view(const char* name, ops::Role, View& view) override {
    const int axis = token_axis(op_, name, view);
    if (axis >= 0) view = view.slice(axis, r0_, r1_);
    if (sequence_ >= 0 && counts_sequences(name)) view = view.slice(0, sequence_, sequence_ + 1);
  }

 private:
  OpId op_;
  int64_t r0_, r1_, sequence_;
};

/// A run of some rows of the problem's own memory.
class Pieces {
 public:
  Pieces(const Variant& variant, Runner& runner, Problem& problem) : variant_(variant), runner_(runner), problem_(problem) {}

  void rows(int64_t r0, int64_t r1) {
    run([&](auto& p) { narrow(p, r0, r1, -1); });
  }

  /// Rows [c0, c1) of sequence s. before: the row of the step whose kept state the piece enters with, or −1.
  void sequence(int64_t s, int64_t c0, int64_t c1, int64_t before) {
    run([&](auto& p) {
      if constexpr (requires { p.batch; }) {
        const int64_t begin = p.batch.begin.i32()[s];
        const int32_t start = p.batch.start.i32()[s];
        narrow(p, begin + c0, begin + c1, s);
        p.batch.begin = integers({0, static_cast<int32_t>(c1 - c0)});
        p.batch.start = integers({static_cast<int32_t>(start + c0)});
        p.batch.longest = c1 - c0;
        p.batch.host_begin = p.batch.begin.i32();
        p.batch.host_start = p.batch.start.i32();
        if constexpr (requires { p.state_in; }) {
          if (before >= 0) {
            p.entering = p.states, p.entering_scales = p.states_scales;
            p.state_in = integers({problem_.get<ops::KdaRecurrenceParams>().state_out.i32()[before]});
          }
        }
      }
    });
  }

  void segment(int64_t r0, int64_t r1) {
    run([&](auto& p) {
      if constexpr (requires { p.segment_begin; }) {
        narrow(p, r0, r1, -1);
        p.segment_begin = integers({0, static_cast<int32_t>(r1 - r0)});
      }
    });
  }

 private:
  template <class F>
  void run(F&& change) {
    ops::cases::with_params(problem_.op(), problem_.params(), [&](auto& whole) {
      auto piece = whole;
      change(piece);
      runner_.run(variant_, &piece, nullptr);
    });
  }

  template <class Params>
  void narrow(Params& p, int64_t r0, int64_t r1, int64_t s) {
    Narrow narrow(Params::kId, r0, r1, s);
    ops::VisitAdapter adapter{narrow};
    Params::visit(p, adapter);
  }

  View integers(std::vector<int32_t> values) {
    std::vector<int32_t>& kept = kept_.emplace_back(std::move(values));
    return tensor::make_view(kept.data(), DType::kI32, {static_cast<int64_t>(kept.size())});
  }

  const Variant& variant_;
  Runner& runner_;
  Problem& problem_;
  std::deque<std::vector<int32_t>> kept_;
};

int64_t token_count(Problem& problem) {
  int64_t tokens = 0;
  ops::cases::with_params(problem.op(), problem.params(), [&](const auto& params) {
    bool found = false;
    ops::for_each_view(params, [&](const char* name, ops::Role, const View& view) {
      const int axis = token_axis(problem.op(), name, view);
      if (!found && axis >= 0) tokens = view.dim(axis), found = true;
    });
  });
  return tokens;
}

/// Borders of the sequences or segments of a problem.
std::vector<int32_t> borders(Problem& problem) {
  std::vector<int32_t> out;
  ops::cases::with_params(problem.op(), problem.params(), [&](const auto& p) {
    if constexpr (requires { p.batch; }) out.assign(p.batch.begin.i32(), p.batch.begin.i32() + p.batch.begin.dim(0));
    if constexpr (requires { p.segment_begin; }) out.assign(p.segment_begin.i32(), p.segment_begin.i32() + p.segment_begin.dim(0));
  });
  return out;
}

/// Sequence s in chunks of 1, 2, 3, … rows beginning with `first`.
void run_cut(Pieces& pieces, const std::vector<int32_t>& border, int64_t s, int64_t first) {
  const auto at = static_cast<size_t>(s);
  const int64_t rows = border[at + 1] - border[at];
  int64_t size = first;
  for (int64_t c0 = 0; c0 < rows; c0 += size, size = size % 3 + 1) {
    const int64_t c1 = std::min(rows, c0 + size);
    pieces.sequence(s, c0, c1, c0 > 0 ? border[at] + c0 - 1 : -1);
    size = c1 - c0;
  }
}

}  // namespace

std::vector<std::string> check_partition(const Case& item, const Variant& variant, Runner& runner, Problem& whole) {
  std::vector<std::string> wrong;
  const auto try_pieces = [&](const char* what, auto&& f) {
    const std::unique_ptr<Problem> problem = build(item);
    Pieces pieces(variant, runner, *problem);
    f(pieces);
    std::string text = compare_bits(whole, *problem);
    if (text.empty()) text = problem->damage();
    if (!text.empty()) wrong.push_back(fmt::format("{}: {}", what, text));
  };
  const int64_t tokens = token_count(whole);
  if (item.parts == Parts::kRows && tokens > 0) {
    try_pieces("rows alone", [&](Pieces& pieces) {
      for (int64_t t = 0; t < tokens; ++t) pieces.rows(t, t + 1);
    });
    try_pieces("rows in two parts", [&](Pieces& pieces) { pieces.rows(0, tokens / 3), pieces.rows(tokens / 3, tokens); });
  }
  const std::vector<int32_t> border = borders(whole);
  const auto sequences = static_cast<int64_t>(border.size()) - 1;
  if (item.parts == Parts::kSegments) {
    try_pieces("segments alone", [&](Pieces& pieces) {
      for (int64_t s = 0; s < sequences; ++s) pieces.segment(border[static_cast<size_t>(s)], border[static_cast<size_t>(s) + 1]);
    });
  }
  if (item.parts == Parts::kWhole || item.parts == Parts::kSequences) {
    try_pieces("sequences alone", [&](Pieces& pieces) {
      for (int64_t s = sequences - 1; s >= 0; --s) pieces.sequence(s, 0, border[static_cast<size_t>(s) + 1] - border[static_cast<size_t>(s)], -1);
    });
  }
  if (item.parts != Parts::kSequences) return wrong;
  for (int64_t first = 1; first <= 3; ++first) {
    try_pieces("sequences cut", [&](Pieces& pieces) {
      for (int64_t s = 0; s < sequences; ++s) run_cut(pieces, border, s, first);
    });
  }
  return wrong;
}

}  // namespace lathe::conformance
