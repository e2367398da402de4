#include "evaluate/logits.h"

#include <algorithm>

#include "evaluate/pictures.h"
#include "evaluate/text_logits.h"
#include "models/model.h"
#include "tensor/argmax.h"

namespace lathe::evaluate {
namespace {

/// Runs the ids through one sequence piece by piece and collects the wanted rows.
class LogitsRun {
 public:
  LogitsRun(engine::Engine& engine, const LogitsJob& job, base::FunctionRef<void(int64_t)> progress)
      : engine_(engine), job_(job), progress_(progress) {}

  Result<LogitsTable> run() {
    LATHE_TRY(sequence_, engine_.store().open());
    auto done = pieces();
    engine_.store().close(sequence_);
    if (!done) return base::forward_error(done);
    return std::move(table_);
  }

 private:
  int64_t length() const { return static_cast<int64_t>(job_.ids.size()); }

  Result<void> pieces() {
    const int64_t prefill_end = job_.decode_from >= 0 ? std::min(job_.decode_from, length()) : length();
    size_t chunk = 0;
    while (position_ < prefill_end) {
      int64_t want = prefill_end - position_;
      if (chunk < job_.chunks.size()) want = std::min(want, job_.chunks[chunk++]);
      // A chunk larger than one step is read in several: chunk borders do not change bits.
      for (int64_t left = want; left > 0;) {
        const int64_t tokens = std::min(left, engine_.model().options().max_batch_tokens);
        LATHE_TRY_VOID(piece(tokens, models::ItemKind::kPrefill));
        left -= tokens;
      }
    }
    while (position_ < length()) LATHE_TRY_VOID(piece(1, models::ItemKind::kDecode));
    return {};
  }

  /// Rows of the piece that are wanted, as indices into it.
  std::vector<int32_t> wanted(int64_t tokens) const {
    std::vector<int32_t> rows;
    if (job_.at.empty()) {
      for (int64_t i = 0; i < tokens; ++i) rows.push_back(static_cast<int32_t>(i));
      return rows;
    }
    const auto first = std::lower_bound(job_.at.begin(), job_.at.end(), position_);
    for (auto at = first; at != job_.at.end() && *at < position_ + tokens; ++at) rows.push_back(static_cast<int32_t>(*at - position_));
    return rows;
  }

  std::span<const float> row(size_t i) const {
    return std::span(rows_).subspan(i * static_cast<size_t>(table_.vocabulary), static_cast<size_t>(table_.vocabulary));
  }

  Result<void> piece(int64_t tokens, models::ItemKind kind) {
    const std::vector<int32_t> rows = wanted(tokens);
    const bool last = position_ + tokens == length();
    std::vector<int32_t> asked = rows;
    // The draft at the last position is fed with the best token there.
    if (job_.draft && last && (asked.empty() || asked.back() != tokens - 1)) asked.push_back(static_cast<int32_t>(tokens - 1));
    LATHE_TRY_VOID(engine_.store().append(sequence_, tokens, 0));
    engine::rows_between(job_.images, position_, position_ + tokens, image_rows_);
    const models::StepItem item{.sequence = sequence_,
                                .kind = kind,
                                .tokens = std::span<const TokenId>(job_.ids).subspan(static_cast<size_t>(position_), static_cast<size_t>(tokens)),
                                .rows = image_rows_,
                                .logits = asked.empty() ? models::Logits::kNone : models::Logits::kAt,
                                .at = asked};
    LATHE_TRY(const models::StepResult result, engine_.model().step({&item, 1}, engine_.store()));
    if (!asked.empty()) {
      engine_.read_rows(result.logits, 0, static_cast<int64_t>(asked.size()), rows_);
      table_.vocabulary = result.logits.dim(1);
      for (size_t i = 0; i < asked.size(); ++i) LATHE_TRY_VOID(check_finite(row(i), "logits", position_ + asked[i]));
      table_.logits.insert(table_.logits.end(), rows_.begin(), rows_.begin() + static_cast<int64_t>(rows.size()) * table_.vocabulary);
      table_.rows += static_cast<int64_t>(rows.size());
    }
    if (job_.draft) LATHE_TRY_VOID(draft(tokens, kind, result.hidden, rows));
    engine_.store().commit(sequence_, 0);
    position_ += tokens;
    progress_(position_);
    return {};
  }

  Result<void> draft(int64_t tokens, models::ItemKind kind, const View& hidden, const std::vector<int32_t>& rows) {
    std::vector<TokenId> next(job_.ids.begin() + position_ + 1, job_.ids.begin() + std::min(position_ + tokens + 1, length()));
    if (static_cast<int64_t>(next.size()) < tokens) {
      const auto last = std::span(rows_).last(static_cast<size_t>(table_.vocabulary));
      const auto sampled = static_cast<size_t>(std::min<int64_t>(table_.vocabulary, engine_.sampled_vocabulary()));
      next.push_back(static_cast<TokenId>(tensor::argmax(last.first(sampled))));
    }
    engine::rows_between(job_.images, position_ + 1, position_ + 1 + tokens, image_rows_);
    const models::DraftItem item{.sequence = sequence_,
                                 .kind = kind,
                                 .start = position_,
                                 .tokens = next,
                                 .rows = image_rows_,
                                 .logits = rows.empty() ? models::Logits::kNone : models::Logits::kAll};
    LATHE_TRY(const models::DraftResult result, engine_.model().draft_prefill({&item, 1}, hidden, engine_.store()));
    for (const int32_t at : rows) {
      engine_.read_rows(result.logits, at, 1, rows_);
      LATHE_TRY_VOID(check_finite(rows_, "draft logits", position_ + at));
      table_.draft_logits.insert(table_.draft_logits.end(), rows_.begin(), rows_.end());
    }
    return {};
  }

  engine::Engine& engine_;
  const LogitsJob& job_;
  base::FunctionRef<void(int64_t)> progress_;
  SequenceId sequence_;
  int64_t position_ = 0;
  LogitsTable table_;
  std::vector<float> rows_;
  std::vector<models::EmbeddingRows> image_rows_;
};

}  // namespace

Result<LogitsTable> compute_logits(engine::Engine& engine, const LogitsJob& job, base::FunctionRef<void(int64_t)> progress) {
  const auto length = static_cast<int64_t>(job.ids.size());
  if (length == 0) return err(Code::kInvalidArgument, "no ids given: expected at least one");
  if (length > engine.options().context_tokens)
    return err(Code::kInvalidArgument, "{} ids do not fit the context of {} tokens", length, engine.options().context_tokens);
  for (const int64_t chunk : job.chunks) {
    if (chunk < 1) return err(Code::kInvalidArgument, "chunk of {} tokens: expected at least 1", chunk);
  }
  for (const int64_t at : job.at) {
    if (at < 0 || at >= length) return err(Code::kInvalidArgument, "position {} is outside the {} ids", at, length);
  }
  for (const TokenId id : job.ids) {
    if (id < 0 || id >= engine.info().vocabulary)
      return err(Code::kInvalidArgument, "id {} is outside the vocabulary of {}", id, engine.info().vocabulary);
  }
  return LogitsRun(engine, job, progress).run();
}

Result<std::vector<int64_t>> resolve_positions(std::span<const int64_t> positions, int64_t length) {
  std::vector<int64_t> out;
  for (const int64_t position : positions) {
    const int64_t at = position < 0 ? position + length : position;
    if (at < 0 || at >= length)
      return err(Code::kInvalidArgument, "position {} is outside the {} ids: expected {} to {}", position, length, -length, length - 1);
    out.push_back(at);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

Result<std::vector<engine::PromptImage>> place_images(engine::Engine& engine, std::span<const TokenId> ids, std::span<const float> patches,
                                                      std::span<const std::array<int64_t, 3>> grids) {
  LATHE_TRY(std::vector<models::ImageRows> pictures, encode_patches(engine, patches, grids));
  return place_pictures(ids, engine.info().image_token, std::move(pictures));
}

}  // namespace lathe::evaluate
