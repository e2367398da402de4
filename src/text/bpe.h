#pragma once
// Byte-pair encoding of one piece of text: starts from the tokens of its bytes and joins the adjacent pair of lowest rank (leftmost first) until
// no pair has a merge.
//
// Source   Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units" (arXiv 1508.07909), over bytes as in GPT-2.
// Time     O(n log n) for a piece of n bytes: short pieces scan for the best pair, long ones keep a linked list and a heap.
// Threads  Bpe is immutable; each thread needs its own Scratch.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/ids.h"

namespace lathe::text {

class Bpe {
 public:
  struct Merge {
    TokenId left;
    TokenId right;
    TokenId result;
  };
  struct Options {
    /// Tokens by their bytes: a piece found here is that token, whatever the merges say ("ignore_merges"). Not owned; null: no such rule.
    const std::unordered_map<std::string_view, TokenId>* whole_pieces = nullptr;
  };

  /// kOn: no guarded token comes out, except one that is the token of a single byte.
  enum class Guard : uint8_t { kOff, kOn };

  Bpe() = default;
  /// `byte_tokens`: the token of each byte (-1 for bytes that valid UTF-8 never has). `merges` by ascending rank, each pair once.
  /// `guarded`: by id, the tokens that encode() avoids on request.
  Bpe(std::array<TokenId, 256> byte_tokens, const std::vector<Merge>& merges, std::vector<bool> guarded, Options options);

  /// Buffers and cache of one thread; for one Bpe and one kind of guard.
  class Scratch {
   public:
    /// A cache of short pieces pays off for long texts only.
    explicit Scratch(size_t text_bytes, Guard guard = Guard::kOff);

   private:
    friend class Bpe;
    struct Part {
      TokenId token;
      uint32_t rank;  // of the pair that begins here
    };
    struct Node {
      TokenId token;
      int32_t previous;
      int32_t next;
    };
    struct Candidate {
      uint32_t rank;
      int32_t at;
      TokenId left;
      TokenId right;
    };
    static constexpr size_t kCachedBytes = 23;
    static constexpr size_t kCachedTokens = 9;
    struct Entry {
      uint8_t length = 0;  // 0: empty
      char bytes[kCachedBytes];
      uint32_t count;
      TokenId tokens[kCachedTokens];
    };
    Guard guard_;
    std::vector<Part> parts_;
    std::vector<Node> nodes_;
    std::vector<Candidate> heap_;
    std::vector<Entry> cache_;
  };

  /// Appends the tokens of `piece`.
  void encode(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const;

 private:
  struct Slot {
    uint64_t pair = kEmpty;
    uint32_t rank = kNoRank;
    TokenId result = -1;
  };
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  static constexpr uint32_t kNoRank = ~uint32_t{0};

  Slot find(TokenId left, TokenId right, Guard guard) const;
  void encode_short(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const;
  void encode_long(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const;

  std::array<TokenId, 256> byte_tokens_{};
  std::vector<Slot> slots_ = std::vector<Slot>(1);  // open addressing, a power of two
  std::vector<bool> guarded_;
  Options options_;
};

}  // namespace lathe::text
