#include "text/bpe.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace lathe::text {
namespace {

// Above this many bytes the heap is faster than the scan (measured on random letters; the exact place hardly matters).
constexpr size_t kShortBytes = 64;
// Below this a cache costs more to clear than it saves.
constexpr size_t kCacheTextBytes = 4096;
constexpr size_t kCacheEntriesMax = 1u << 14;

uint64_t mix(uint64_t x) {
  x ^= x >> 32;
  x *= 0x9E3779B97F4A7C15u;
  return x ^ x >> 29;
}

uint64_t pair_key(TokenId left, TokenId right) { return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right); }

}  // namespace

Bpe::Bpe(std::array<TokenId, 256> byte_tokens, const std::vector<Merge>& merges, std::vector<bool> guarded, Options options)
    : byte_tokens_(byte_tokens), guarded_(std::move(guarded)), options_(options) {
  size_t size = 16;
  while (size < merges.size() * 2) size *= 2;
  slots_.assign(size, Slot{});
  uint32_t rank = 0;
  for (const Merge& merge : merges) {
    const uint64_t key = pair_key(merge.left, merge.right);
    size_t at = mix(key) & (size - 1);
    while (slots_[at].pair != kEmpty && slots_[at].pair != key) at = (at + 1) & (size - 1);
    slots_[at] = {key, rank++, merge.result};
  }
}

Bpe::Scratch::Scratch(size_t text_bytes, Guard guard) : guard_(guard) {
  if (text_bytes < kCacheTextBytes) return;
  size_t entries = 256;
  while (entries < kCacheEntriesMax && entries < text_bytes / 64) entries *= 2;
  cache_.resize(entries);
}

Bpe::Slot Bpe::find(TokenId left, TokenId right, Guard guard) const {
  const uint64_t key = pair_key(left, right);
  for (size_t at = mix(key) & (slots_.size() - 1); slots_[at].pair != kEmpty; at = (at + 1) & (slots_.size() - 1)) {
    if (slots_[at].pair != key) continue;
    if (guard == Guard::kOn && guarded_[static_cast<size_t>(slots_[at].result)]) return {};
    return slots_[at];
  }
  return {};
}

void Bpe::encode(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const {
  if (options_.whole_pieces != nullptr) {
    const auto whole = options_.whole_pieces->find(piece);
    if (whole != options_.whole_pieces->end() && !(scratch.guard_ == Guard::kOn && guarded_[static_cast<size_t>(whole->second)])) {
      out.push_back(whole->second);
      return;
    }
  }
  if (piece.size() == 1) {
    out.push_back(byte_tokens_[static_cast<unsigned char>(piece[0])]);
    return;
  }
  if (piece.size() > kShortBytes) return encode_long(piece, scratch, out);
  if (scratch.cache_.empty() || piece.size() > Scratch::kCachedBytes) return encode_short(piece, scratch, out);
  const size_t hash = mix(std::hash<std::string_view>()(piece));
  Scratch::Entry& entry = scratch.cache_[hash & (scratch.cache_.size() - 1)];
  if (entry.length == piece.size() && std::memcmp(entry.bytes, piece.data(), piece.size()) == 0) {
    out.insert(out.end(), entry.tokens, entry.tokens + entry.count);
    return;
  }
  const size_t before = out.size();
  encode_short(piece, scratch, out);
  const size_t count = out.size() - before;
  if (count > Scratch::kCachedTokens) return;
  entry.length = static_cast<uint8_t>(piece.size());
  std::memcpy(entry.bytes, piece.data(), piece.size());
  entry.count = static_cast<uint32_t>(count);
  std::copy_n(out.begin() + static_cast<std::ptrdiff_t>(before), count, entry.tokens);
}

void Bpe::encode_short(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const {
  auto& parts = scratch.parts_;
  parts.clear();
  for (const char byte : piece) parts.push_back({byte_tokens_[static_cast<unsigned char>(byte)], kNoRank});
  for (size_t i = 0; i + 1 < parts.size(); ++i) parts[i].rank = find(parts[i].token, parts[i + 1].token, scratch.guard_).rank;
  while (true) {
    size_t best = 0;
    for (size_t i = 1; i < parts.size(); ++i) {
      if (parts[i].rank < parts[best].rank) best = i;
    }
    if (parts[best].rank == kNoRank) break;
    parts[best].token = find(parts[best].token, parts[best + 1].token, scratch.guard_).result;
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    parts[best].rank = best + 1 < parts.size() ? find(parts[best].token, parts[best + 1].token, scratch.guard_).rank : kNoRank;
    if (best > 0) parts[best - 1].rank = find(parts[best - 1].token, parts[best].token, scratch.guard_).rank;
  }
  for (const auto& part : parts) out.push_back(part.token);
}

void Bpe::encode_long(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const {
  auto& nodes = scratch.nodes_;
  auto& heap = scratch.heap_;
  const auto later = [](const Scratch::Candidate& a, const Scratch::Candidate& b) { return std::pair(a.rank, a.at) > std::pair(b.rank, b.at); };
  const auto size = static_cast<int32_t>(piece.size());
  nodes.clear();
  heap.clear();
  const auto node = [&](int32_t at) -> Scratch::Node& { return nodes[static_cast<size_t>(at)]; };
  const auto candidate_at = [&](int32_t at) -> Scratch::Candidate {
    const TokenId left = node(at).token;
    const TokenId right = node(node(at).next).token;
    return {find(left, right, scratch.guard_).rank, at, left, right};
  };
  for (int32_t i = 0; i < size; ++i)
    nodes.push_back({byte_tokens_[static_cast<unsigned char>(piece[static_cast<size_t>(i)])], i - 1, i + 1 < size ? i + 1 : -1});
  for (int32_t i = 0; i + 1 < size; ++i) {
    if (const auto candidate = candidate_at(i); candidate.rank != kNoRank) heap.push_back(candidate);
  }
  std::make_heap(heap.begin(), heap.end(), later);
  const auto push = [&](int32_t at) {
    const auto candidate = candidate_at(at);
    if (candidate.rank == kNoRank) return;
    heap.push_back(candidate);
    std::push_heap(heap.begin(), heap.end(), later);
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const Scratch::Candidate top = heap.back();
    heap.pop_back();
    Scratch::Node& left = node(top.at);
    // A candidate is stale once one of its tokens was merged away; a node that is gone has token -1.
    if (left.token != top.left || left.next < 0 || node(left.next).token != top.right) continue;
    const int32_t gone = left.next;
    left.token = find(top.left, top.right, scratch.guard_).result;
    left.next = node(gone).next;
    if (left.next >= 0) node(left.next).previous = top.at;
    node(gone).token = -1;
    if (left.previous >= 0) push(left.previous);
    if (left.next >= 0) push(top.at);
  }
  for (int32_t at = 0; at >= 0; at = node(at).next) out.push_back(node(at).token);
}

}  // namespace lathe::text
