#include "evaluate/eval.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/file.h"
#include "engine/generate.h"
#include "evaluate/draft_eval.h"
#include "evaluate/pictures.h"
#include "evaluate/text_logits.h"

namespace lathe::evaluate {
namespace {

constexpr int64_t kPiece = 1024;  // positions whose logits are in memory at a time

/// Σ −log softmax(logits)[next id] over a text, over all rows of the head.
Result<double> negative_log_likelihood(engine::Engine& engine, std::span<const TokenId> ids) {
  TextLogits text(engine, ids.first(ids.size() - 1));
  const auto vocabulary = static_cast<size_t>(engine.info().vocabulary);
  double nll = 0;
  for (size_t at = 1; at < ids.size();) {
    LATHE_TRY(const std::span<const float> logits, text.next(kPiece));
    for (size_t begin = 0; begin < logits.size(); begin += vocabulary, ++at) {
      const std::span<const float> row = logits.subspan(begin, vocabulary);
      nll += log_sum_exp(row) - static_cast<double>(row[static_cast<size_t>(ids[at])]);
    }
  }
  return nll;
}

Result<BitsPerByte> run_heldout(engine::Engine& engine, const EvalSets& sets, EvalProgress progress) {
  std::vector<double> nll;
  std::vector<double> tokens;
  for (const auto& [ids, place] : sets.heldout) {
    const auto row = negative_log_likelihood(engine, ids);
    if (!row) return base::forward_error(row, place);
    nll.push_back(*row);
    tokens.push_back(static_cast<double>(ids.size() - 1));
    progress("heldout", static_cast<int64_t>(nll.size()), static_cast<int64_t>(sets.heldout.size()));
  }
  return bits_per_byte(nll, tokens, sets.bytes_per_token);
}

Result<std::vector<engine::PromptImage>> row_images(engine::Engine& engine, const TaskRow& row, const media::PreprocessConfig& preprocess) {
  LATHE_TRY(std::vector<models::ImageRows> pictures, encode_files(engine, row.images, preprocess));
  return place_pictures(row.prompt, engine.info().image_token, std::move(pictures));
}

}  // namespace

BitsPerByte bits_per_byte(std::span<const double> nll_nats, std::span<const double> tokens, double bytes_per_token) {
  BitsPerByte out{.rows = static_cast<int64_t>(nll_nats.size())};
  if (out.rows == 0) return out;
  const Estimate nats = ratio_over_rows(nll_nats, tokens);
  const double bytes = std::log(2.0) * bytes_per_token;
  out.nll_nats = std::accumulate(nll_nats.begin(), nll_nats.end(), 0.0);
  out.tokens = static_cast<int64_t>(std::accumulate(tokens.begin(), tokens.end(), 0.0));
  out.bits_per_byte = nats.value / bytes;
  out.half_width = nats.half_width.value_or(0) / bytes;
  return out;
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

RowLength longest_row(const EvalSets& sets) {
  constexpr int64_t kDraftText = 150;  // ids that are generated after the prompt of a draft row
  RowLength longest;
  const auto take = [&](int64_t tokens, const std::string& place) {
    if (tokens > longest.tokens) longest = {.tokens = tokens, .place = place};
  };
  for (const TaskSet& set : sets.tasks) {
    for (const TaskRow& row : set.rows) take(row.length() + 1, row.place);
  }
  for (const HeldoutRow& row : sets.heldout) take(static_cast<int64_t>(row.ids.size()), row.place);
  for (const DraftRow& row : sets.drafts) {
    take(static_cast<int64_t>(row.prompt.size()) + std::max(static_cast<int64_t>(row.given.size()), kDraftText) + 8, row.place);
  }
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
