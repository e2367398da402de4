#pragma once
// Test support: the golden values of the trained model (data/golden/tiny/README in short: prompts, greedy texts, pictures, three draft steps).

#include <string>
#include <vector>

#include "rig.h"

namespace lathe::models::golden {

/// Compares one prompt of a golden file of the trained model with a rig, in every respect that the file has values for. Failures are reported through GoogleTest.
class TinyPrompt {
 public:
  TinyPrompt(GoldenFile& gold, Rig& rig, int number) : gold_(gold), rig_(rig), number_(number) {}
  /// Prefill, pictures, drafts at the last positions, greedy decoding.
  void check();

 private:
  static constexpr int64_t kDraftPositions = 8;
  std::string name(const char* tensor) const { return std::string(tensor) + "." + std::to_string(number_); }
  void encode_pictures();
  /// Embedding rows for tokens [begin, end) of the prompt.
  std::vector<EmbeddingRows> rows_for(int64_t begin, int64_t end) const;
  void prefill();
  void draft_chunk(int64_t begin, int64_t end, const View& hidden);
  void draft_position(int64_t position, const View& hidden, int64_t row);
  void decode();
  double tolerance() const { return ids_.size() > 1000 ? 2e-3 : 5e-4; }

  GoldenFile& gold_;
  Rig& rig_;
  int number_;
  std::vector<TokenId> ids_, greedy_;
  std::vector<ImageRows> pictures_;
  SequenceId sequence_, draft_sequence_;
  std::vector<float> logits_;
};

}  // namespace lathe::models::golden
