#pragma once
// Test support: the values that the public reference computed for a small checkpoint (golden/base, golden/real_heads), compared with a rig.

#include <string>
#include <vector>

#include "rig.h"

namespace lathe::models::golden {

/// Each method compares whatever the file has of its kind, reports failures through GoogleTest and returns the number of tensors compared, so that a test
/// can say how many there must be: a file with other names does not pass by comparing nothing.
class ReferenceGolden {
 public:
  ReferenceGolden(GoldenFile& gold, Rig& rig) : gold_(gold), rig_(rig) {}

  int logits();          ///< full prefill
  int chunked_logits();  ///< prefill in the file's chunks
  int greedy();          ///< tokens and logits of cached decode
  int streams();         ///< residual streams after every layer, and the final norm
  int selections();      ///< keys that each token attends to, as sets
  int states();          ///< KDA states and conv windows
  int pictures();        ///< tower, embeddings and logits of prompts with pictures

 private:
  static constexpr double kLogits = 1e-3;
  static constexpr double kStreams = 1e-4;
  static constexpr double kStates = 5e-5;
  static std::string name(const char* tensor, int prompt) { return std::string(tensor) + "." + std::to_string(prompt); }
  static std::string name(const char* tensor, int prompt, int layer) { return name(tensor, prompt) + "." + std::to_string(layer); }
  int prompts() const;
  int layers() { return static_cast<int>(rig_.model().info().layers); }
  void selection(int prompt, int layer, const std::vector<float>& chosen);
  void conv_window(SequenceId sequence, int prompt, int layer);
  void picture(int image);

  GoldenFile& gold_;
  Rig& rig_;
};

}  // namespace lathe::models::golden
