#include "feedback/probe.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace lathe::feedback {

std::vector<TokenId> probe_ids(const models::ModelInfo& info, int64_t length, uint64_t seed) {
  std::vector<TokenId> ids;
  uint64_t x = seed * 2654435761u + 12345;
  while (static_cast<int64_t>(ids.size()) < length) {
    x = x * 6364136223846793005ull + 1442695040888963407ull;
    // The lower nine tenths of a vocabulary are text; special tokens stand at its end.
    const auto id = static_cast<TokenId>((x >> 33) % static_cast<uint64_t>(std::max<int64_t>(1, info.vocabulary * 9 / 10)));
    if (id != info.image_token) ids.push_back(id);
  }
  return ids;
}

Result<Trace> feed(engine::Engine& engine, SequenceId sequence, std::span<const TokenId> ids, const Feed& how, int64_t stride) {
  const int64_t from = engine.store().length(sequence);
  const auto length = static_cast<int64_t>(ids.size());
  Trace trace;
  std::vector<float> rows;
  size_t chunk = 0;
  for (int64_t at = from; at < length;) {
    const bool decode = how.decode_from >= 0 && at >= how.decode_from;
    int64_t tokens = how.chunks.empty() ? length - at : how.chunks[std::min(chunk, how.chunks.size() - 1)];
    ++chunk;
    const int64_t border = how.decode_from >= 0 && !decode ? how.decode_from : length;
    tokens = decode ? 1 : std::min({tokens, border - at, engine.model().options().max_batch_tokens});
    std::vector<int32_t> wanted;
    for (int64_t i = 0; i < tokens; ++i) {
      if ((at + i) % stride == stride - 1 || at + i == length - 1) wanted.push_back(static_cast<int32_t>(i));
    }
    LATHE_TRY_VOID(engine.store().append(sequence, tokens, 0));
    const models::StepItem item{.sequence = sequence,
                                .kind = decode ? models::ItemKind::kDecode : models::ItemKind::kPrefill,
                                .tokens = ids.subspan(static_cast<size_t>(at), static_cast<size_t>(tokens)),
                                .rows = {},
                                .logits = wanted.empty() ? models::Logits::kNone : models::Logits::kAt,
                                .at = wanted};
    auto result = engine.model().step({&item, 1}, engine.store());
    engine.store().commit(sequence, 0);
    if (!result) return base::forward_error(result);
    if (!wanted.empty()) {
      engine.read_rows(result->logits, 0, static_cast<int64_t>(wanted.size()), rows);
      trace.logits.insert(trace.logits.end(), rows.begin(), rows.end());
    }
    at += tokens;
  }
  return trace;
}

Result<Trace> feed_new(engine::Engine& engine, std::span<const TokenId> ids, const Feed& how, int64_t stride) {
  LATHE_TRY(const SequenceId sequence, engine.store().open());
  auto trace = feed(engine, sequence, ids, how, stride);
  engine.store().close(sequence);
  return trace;
}

double compare(const Trace& a, const Trace& b) {
  if (a.logits.size() != b.logits.size()) return std::numeric_limits<double>::infinity();
  double largest = 0;
  double worst = 0;
  for (size_t i = 0; i < a.logits.size(); ++i) {
    const auto x = static_cast<double>(a.logits[i]);
    const auto y = static_cast<double>(b.logits[i]);
    if (!std::isfinite(x) || !std::isfinite(y)) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, std::fabs(x));
    worst = std::max(worst, std::fabs(x - y));
  }
  return worst == 0 ? 0 : worst / largest;
}

}  // namespace lathe::feedback
