#pragma once
// Keys of a GGUF file that hold a tokenizer.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "weights/gguf.h"

namespace lathe::weights {

/// Numbers of the format.
enum class GgufTokenKind : int32_t { kNormal = 1, kControl = 3, kUser = 4, kUnused = 5 };

/// A byte-level BPE tokenizer.
struct GgufVocabulary {
  std::vector<std::string> tokens;   ///< by id, in the byte-level alphabet; of an unused id empty
  std::vector<GgufTokenKind> kinds;  ///< of each
  std::vector<std::string> merges;   ///< "LEFT RIGHT" by rank
  std::string pre;                   ///< how text is cut into words, by the readers' names: "glm4"
  std::string chat_template;         ///< empty: none
  std::optional<uint32_t> bos, eos, eot, eom, unknown, padding;
};

/// Its keys for a model with `rows` rows of embedding: ids that the tokenizer lacks become unused tokens, because readers want one for every row.
/// Errors: invalid_argument (more tokens than rows).
Result<std::vector<GgufKey>> gguf_vocabulary_keys(const GgufVocabulary& vocabulary, int64_t rows);

/// The keys of a file without a tokenizer, which takes and gives ids.
std::vector<GgufKey> gguf_no_vocabulary_keys();

}  // namespace lathe::weights
