#pragma once
// The lists of a tokenizer.json as it spells them, for files of other forms.

#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace lathe::text {

struct Vocabulary {
  enum class Kind : uint8_t { kHole, kPlain, kAdded, kSpecial };
  struct Token {
    std::string name;  ///< a plain one in the byte-level alphabet, an added one as it is
    Kind kind = Kind::kHole;
  };
  std::vector<Token> tokens;        ///< by id
  std::vector<std::string> merges;  ///< "LEFT RIGHT" by rank
  /// The regular expression that cuts text, if that and the byte-level step are all that is done to text before the merges; else empty.
  std::string split;

  TokenId find(std::string_view name) const;  ///< −1: there is none
};

/// Reads a file that Tokenizer::load accepts. Errors: those of Tokenizer::load.
Result<Vocabulary> read_vocabulary(const std::string& path);

}  // namespace lathe::text
