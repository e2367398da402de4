#include "evaluate/text_logits.h"

#include <algorithm>
#include <cmath>

namespace lathe::evaluate {

TextLogits::~TextLogits() {
  if (open_) engine_.store().close(sequence_);
}

Result<std::span<const float>> TextLogits::next(int64_t tokens) {
  if (!open_) {
    LATHE_TRY(sequence_, engine_.store().open());
    open_ = true;
  }
  const auto count =
      std::min({static_cast<size_t>(tokens), ids_.size() - position_, static_cast<size_t>(engine_.model().options().max_batch_tokens)});
  if (count == 0) return std::span<const float>();
  LATHE_TRY_VOID(engine_.store().append(sequence_, static_cast<int64_t>(count), 0));
  const models::StepItem item{.sequence = sequence_,
                              .kind = models::ItemKind::kPrefill,
                              .tokens = ids_.subspan(position_, count),
                              .rows = {},
                              .logits = models::Logits::kAll,
                              .at = {}};
  LATHE_TRY(const models::StepResult result, engine_.model().step({&item, 1}, engine_.store()));
  engine_.read_rows(result.logits, 0, static_cast<int64_t>(count), rows_);
  engine_.store().commit(sequence_, 0);
  const size_t width = rows_.size() / count;
  for (size_t i = 0; i < count; ++i)
    LATHE_TRY_VOID(check_finite(std::span<const float>(rows_).subspan(i * width, width), "logits", static_cast<int64_t>(position_ + i)));
  position_ += count;
  return std::span<const float>(rows_);
}

Result<void> check_finite(std::span<const float> row, const char* what, int64_t position) {
  for (size_t i = 0; i < row.size(); ++i) {
    if (!std::isfinite(row[i])) return err(Code::kDataLoss, "{} of position {} are not finite: that of token {} is {}", what, position, i, row[i]);
  }
  return {};
}

double log_sum_exp(std::span<const float> row) {
  const float maximum = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (const float z : row) sum += std::exp(static_cast<double>(z) - static_cast<double>(maximum));
  return std::log(sum) + static_cast<double>(maximum);
}

}  // namespace lathe::evaluate
