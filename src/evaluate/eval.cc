#include "evaluate/eval.h"

#include <algorithm>
#include <cmath>

#include "base/file.h"
#include "engine/generate.h"
#include "evaluate/draft_eval.h"
#include "evaluate/logits.h"
#include "evaluate/pictures.h"

namespace lathe::evaluate {
namespace {

/// −log softmax(row)[target], over all rows of the head.
double negative_log_likelihood(std::span<const float> row, TokenId target) {
  const float maximum = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (const float z : row) sum += std::exp(static_cast<double>(z) - static_cast<double>(maximum));
  return std::log(sum) + static_cast<double>(maximum) - static_cast<double>(row[static_cast<size_t>(target)]);
}

Result<BitsPerByte> run_heldout(engine::Engine& engine, const EvalSets& sets, EvalProgress progress) {
  BitsPerByte out;
  std::vector<double> per_row;
  for (const auto& [ids, place] : sets.heldout) {
    LogitsJob job{.ids = ids, .chunks = {}, .at = {}, .images = {}};
    job.ids.pop_back();
    const auto computed = compute_logits(engine, job, [](int64_t) {});
    if (!computed) return base::forward_error(computed, place);
    const LogitsTable& table = *computed;
    double nll = 0;
    for (int64_t t = 0; t < table.rows; ++t) {
      const std::span<const float> row(table.logits.data() + t * table.vocabulary, static_cast<size_t>(table.vocabulary));
      nll += negative_log_likelihood(row, ids[static_cast<size_t>(t) + 1]);
    }
    out.nll_nats += nll;
    out.tokens += table.rows;
    per_row.push_back(nll / (static_cast<double>(table.rows) * std::log(2.0) * sets.bytes_per_token));
    progress("heldout", ++out.rows, static_cast<int64_t>(sets.heldout.size()));
  }
  if (out.rows == 0) return out;
  out.bits_per_byte = out.nll_nats / (static_cast<double>(out.tokens) * std::log(2.0) * sets.bytes_per_token);
  double squares = 0;
  for (const double value : per_row) squares += (value - out.bits_per_byte) * (value - out.bits_per_byte);
  if (out.rows > 1) out.half_width = 1.96 * std::sqrt(squares / static_cast<double>(out.rows - 1) / static_cast<double>(out.rows));
  return out;
}

Result<std::vector<engine::PromptImage>> row_images(engine::Engine& engine, const TaskRow& row, const media::PreprocessConfig& preprocess) {
  LATHE_TRY(std::vector<models::ImageRows> pictures, encode_files(engine, row.images, preprocess));
  return place_pictures(row.prompt, engine.info().image_token, std::move(pictures));
}

Result<SetScore> run_set(engine::Engine& engine, const TaskSet& set, const media::PreprocessConfig& preprocess, EvalProgress progress) {
  engine::Generator generator(engine);
  for (const TaskRow& row : set.rows) {
    engine::Request request{.prompt = row.prompt, .images = {}, .sampling = {.temperature = 0, .logit_bias = {}}, .stop_tokens = {}};
    request.prompt.insert(request.prompt.end(), row.answer.begin(), row.answer.begin() + row.reasoning);
    request.max_tokens = static_cast<int64_t>(row.answer.size()) - row.reasoning;
    auto images = row_images(engine, row, preprocess);
    if (!images) return base::forward_error(base::file_content(std::move(images)), row.place);
    request.images = std::move(*images);
    LATHE_TRY(const int32_t id, generator.add(std::move(request)));
    (void)id;
  }
  std::vector<int64_t> matched(set.rows.size());
  int64_t ended = 0;
  int32_t failed = -1;
  const auto on_token = [&](const engine::TokenEvent& event) {
    if (event.finish == engine::Finish::kError) {
      failed = event.request;
      return;
    }
    const TaskRow& row = set.rows[static_cast<size_t>(event.request)];
    int64_t& right = matched[static_cast<size_t>(event.request)];
    const bool hit = event.token == row.answer[static_cast<size_t>(row.reasoning + right)];
    right += hit ? 1 : 0;
    if (!hit) generator.cancel(event.request);  // decided
    if (!hit || event.finish != engine::Finish::kNone) progress(set.name, ++ended, static_cast<int64_t>(set.rows.size()));
  };
  for (bool more = true; more;) {
    LATHE_TRY(more, generator.step(on_token));
    if (failed >= 0)
      return tl::unexpected<Error>(generator.error(failed).with_context("row " + std::to_string(set.rows[static_cast<size_t>(failed)].number)));
  }
  SetScore score;
  for (size_t i = 0; i < set.rows.size(); ++i) {
    const TaskRow& row = set.rows[i];
    const bool right = matched[i] == static_cast<int64_t>(row.answer.size()) - row.reasoning;
    score.right += right ? 1 : 0;
    score.rows += right ? '1' : '0';
    score.numbers.push_back(row.number);
  }
  return score;
}

}  // namespace

int64_t longest_row(const EvalSets& sets) {
  int64_t longest = 256;  // draft texts: prompt and 150 ids
  for (const TaskSet& set : sets.tasks) {
    for (const TaskRow& row : set.rows) longest = std::max(longest, row.length() + 1);
  }
  for (const HeldoutRow& row : sets.heldout) longest = std::max(longest, static_cast<int64_t>(row.ids.size()));
  for (const DraftRow& row : sets.drafts)
    longest = std::max(longest, static_cast<int64_t>(row.prompt.size() + std::max<size_t>(row.given.size(), 150)) + 8);
  return longest;
}

std::pair<double, double> wilson(int64_t right, int64_t n) {
  if (n == 0) return {0, 1};
  constexpr double z = 1.959964;
  const double count = static_cast<double>(n);
  const double p = static_cast<double>(right) / count;
  const double center = (p + z * z / (2 * count)) / (1 + z * z / count);
  const double half = z / (1 + z * z / count) * std::sqrt(p * (1 - p) / count + z * z / (4 * count * count));
  return {std::max(0.0, center - half), std::min(1.0, center + half)};
}

Result<EvalReport> run_eval(engine::Engine& engine, const EvalSets& sets, const media::PreprocessConfig& preprocess, EvalProgress progress) {
  EvalReport report;
  LATHE_TRY_VOID(check_eval_sets(sets, engine.info()));
  LATHE_TRY(report.heldout, run_heldout(engine, sets, progress));
  for (const TaskSet& set : sets.tasks) {
    auto score = run_set(engine, set, preprocess, progress);
    if (!score) return base::forward_error(score, "set '" + set.name + "'");
    report.sets.emplace(set.name, std::move(*score));
  }
  if (engine.info().has_draft && !sets.drafts.empty()) LATHE_TRY_VOID(run_draft_eval(engine, sets, report, progress));
  return report;
}

}  // namespace lathe::evaluate
