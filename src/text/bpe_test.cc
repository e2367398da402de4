#include "text/bpe.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace lathe::text {
namespace {

/// A random merge table over the letters a … h and its Bpe; token ids are indices into `tokens`.
struct Model {
  std::vector<std::string> tokens;
  std::vector<Bpe::Merge> merges;
  std::map<std::pair<TokenId, TokenId>, std::pair<uint32_t, TokenId>> table;
  std::array<TokenId, 256> bytes{};

  explicit Model(unsigned seed, size_t letters = 8) {
    for (int byte = 0; byte < 256; ++byte) {
      tokens.emplace_back(1, static_cast<char>(byte));
      bytes[static_cast<size_t>(byte)] = byte;
    }
    std::mt19937 random(seed);
    std::vector<TokenId> usable;
    for (size_t i = 0; i < letters; ++i) usable.push_back('a' + static_cast<TokenId>(i));
    for (int tries = 0; tries < 20'000 && merges.size() < 300; ++tries) {
      const TokenId left = usable[random() % usable.size()];
      const TokenId right = usable[random() % usable.size()];
      const std::string joined = tokens[static_cast<size_t>(left)] + tokens[static_cast<size_t>(right)];
      if (joined.size() > 12 || table.contains({left, right})) continue;
      // Two pairs may give one token, as in real files.
      TokenId result = -1;
      for (size_t id = 256; id < tokens.size(); ++id) result = tokens[id] == joined ? static_cast<TokenId>(id) : result;
      if (result < 0) {
        result = static_cast<TokenId>(tokens.size());
        tokens.push_back(joined);
        usable.push_back(result);
      }
      table[{left, right}] = {static_cast<uint32_t>(merges.size()), result};
      merges.push_back({left, right, result});
    }
  }
  Bpe make(std::vector<bool> guarded = {}) const {
    guarded.resize(tokens.size());
    return {bytes, merges, std::move(guarded), {}};
  }
  /// The definition: join the pair of lowest rank, leftmost first, until there is none.
  std::vector<TokenId> slow(std::string_view piece, const std::vector<bool>& forbidden = {}) const {
    std::vector<TokenId> parts;
    for (const char c : piece) parts.push_back(bytes[static_cast<unsigned char>(c)]);
    while (true) {
      size_t best = parts.size();
      auto best_rank = ~uint32_t{0};
      TokenId result = -1;
      for (size_t i = 0; i + 1 < parts.size(); ++i) {
        const auto it = table.find({parts[i], parts[i + 1]});
        if (it == table.end() || it->second.first >= best_rank) continue;
        if (!forbidden.empty() && forbidden[static_cast<size_t>(it->second.second)]) continue;
        best = i;
        std::tie(best_rank, result) = it->second;
      }
      if (result < 0) return parts;
      parts[best] = result;
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
  }
};

std::string letters(std::mt19937& random, size_t size, unsigned kinds = 8) {
  std::string text;
  for (size_t i = 0; i < size; ++i) text.push_back(static_cast<char>('a' + random() % kinds));
  return text;
}

TEST(Bpe, EqualsTheDefinitionAtEveryLength) {
  std::mt19937 random(5);
  for (unsigned seed = 0; seed < 6; ++seed) {
    const Model model(seed, seed % 2 == 0 ? 8 : 2);
    const Bpe bpe = model.make();
    Bpe::Scratch plain(0);
    Bpe::Scratch cached(1 << 20);
    // Around the border between scan and heap, and far above it.
    for (const size_t size : {1u, 2u, 3u, 5u, 9u, 23u, 24u, 63u, 64u, 65u, 66u, 130u, 400u}) {
      for (int round = 0; round < 20; ++round) {
        const std::string text = letters(random, size, seed % 2 == 0 ? 8 : 2);
        for (Bpe::Scratch* scratch : {&plain, &cached, &cached}) {
          std::vector<TokenId> ids;
          bpe.encode(text, *scratch, ids);
          ASSERT_EQ(ids, model.slow(text)) << text;
        }
      }
    }
  }
}

TEST(Bpe, OneRepeatedLetter) {
  const Model model(3, 1);
  const Bpe bpe = model.make();
  Bpe::Scratch scratch(0);
  for (const size_t size : {7u, 64u, 65u, 1000u}) {
    std::vector<TokenId> ids;
    bpe.encode(std::string(size, 'a'), scratch, ids);
    EXPECT_EQ(ids, model.slow(std::string(size, 'a')));
  }
}

TEST(Bpe, GuardedTokensNeverComeOut) {
  std::mt19937 random(6);
  const Model model(9);
  std::vector<bool> guarded(model.tokens.size());
  for (size_t id = 256; id < guarded.size(); id += 3) guarded[id] = true;
  const Bpe bpe = model.make(guarded);
  Bpe::Scratch scratch(1 << 20, Bpe::Guard::kOn);
  Bpe::Scratch free(1 << 20);
  bool differed = false;
  for (const size_t size : {8u, 40u, 100u}) {
    for (int round = 0; round < 50; ++round) {
      const std::string text = letters(random, size);
      std::vector<TokenId> ids;
      std::vector<TokenId> unguarded;
      bpe.encode(text, scratch, ids);
      bpe.encode(text, free, unguarded);
      ASSERT_EQ(ids, model.slow(text, guarded)) << text;
      for (const TokenId id : ids) ASSERT_FALSE(guarded[static_cast<size_t>(id)]);
      differed = differed || ids != unguarded;
    }
  }
  EXPECT_TRUE(differed);
}

}  // namespace
}  // namespace lathe::text
