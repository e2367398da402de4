// Goal: a model with caches in any format goes on from a snapshot with the same bits, stays close to one that rounds nothing, keeps the bytes that were
// foretold, and never takes what another format has written.

#include <gtest/gtest.h>

#include "backend/fake_device.h"
#include "ops/mla.h"
#include "rig.h"

namespace lathe::models::golden {
namespace {

struct Format {
  const char* name;
  CacheFormats formats;
  double budget;  ///< relative error of the logits against f32 caches: three times what was measured
};

/// In exact mode, so that nothing but the caches rounds.
const Format kFormats[] = {
    {"fp32", kExactCaches, 0},
    {"bf16_latents", {.latent = DType::kBF16, .index = DType::kF32}, 5e-4},
    {"int8_latents", {.latent = DType::kI8, .index = DType::kF32}, 1e-2},
    {"fp8_latents", {.latent = DType::kF8E4M3, .index = DType::kF32}, 1e-2},
    {"bf16_keys", {.latent = DType::kF32, .index = DType::kBF16}, 1e-4},
    {"int8_keys", {.latent = DType::kF32, .index = DType::kI8}, 1.2e-4},
    {"fp8_keys", {.latent = DType::kF32, .index = DType::kF8E4M3}, 3e-4},
    {"fp16_states", {.latent = DType::kF32, .index = DType::kF32, .state = DType::kF16}, 4e-4},
    {"int8_states", {.latent = DType::kF32, .index = DType::kF32, .state = DType::kI8}, 1e-2},
    {"bf16_windows", {.latent = DType::kF32, .index = DType::kF32, .conv = DType::kBF16}, 5e-4},
    {"plain", kPlainCaches, 7e-4},
    {"balanced", kBalancedCaches, 1e-2},
};

RigOptions options(const CacheFormats& caches) {
  return {.directory = data_path("builtin"),
          .model = {.precision = Precision::kExact, .max_batch_tokens = 320, .caches = caches, .shards = {}, .groups = {}},
          .isa = "",
          .blocks = 12,
          .slots = 3,
          .dispatch = {}};
}
/// Long enough that index keys decide what is attended to (beyond 259 tokens).
std::vector<TokenId> text(size_t length) {
  std::vector<TokenId> ids = GoldenFile(data_path("golden/tiny/golden_fp8.safetensors")).tokens("ids.10");
  ids.resize(length);
  return ids;
}

class Caches : public testing::TestWithParam<Format> {};

TEST_P(Caches, SnapshotsAndCopiesGoOnWithTheSameBits) {
  Rig rig(options(GetParam().formats));
  const std::vector<TokenId> ids = text(30);
  const std::vector<TokenId> rest(ids.begin() + 21, ids.end());
  SequenceId uncut;
  rig.prefill({ids.begin(), ids.begin() + 21}, {}, &uncut);
  const cache::Snapshot snapshot = must(rig.store().snapshot(uncut), "snapshot");
  const SequenceId copied = must(rig.store().copy(uncut), "copy");
  const std::vector<float> wanted = rig.feed(uncut, rest, ItemKind::kDecode);
  const std::vector<float> kept = rig.caches(uncut);
  EXPECT_TRUE(same_bits(rig.feed(copied, rest, ItemKind::kDecode), wanted));
  EXPECT_TRUE(same_bits(rig.caches(copied), kept));
  Rig other(options(GetParam().formats));
  const SequenceId restored = must(other.store().restore(snapshot), "restore");
  EXPECT_TRUE(same_bits(other.feed(restored, rest, ItemKind::kDecode), wanted));
  EXPECT_TRUE(same_bits(other.caches(restored), kept));
}

TEST_P(Caches, OutputsAreCloseToThoseOfCachesThatRoundNothing) {
  const std::vector<TokenId> ids = text(300);
  const std::vector<float> wanted = Rig(options(kExactCaches)).prefill(ids);
  const double error = relative_frobenius(Rig(options(GetParam().formats)).prefill(ids), wanted);
  RecordProperty("error", std::to_string(error));
  EXPECT_LE(error, GetParam().budget);
  EXPECT_GE(error, GetParam().budget / 10) << "the format is not in use";
}

TEST_P(Caches, TheStoreReservesWhatWasForetold) {
  Rig rig(options(GetParam().formats));
  int64_t foretold = 0;
  for (const cache::FamilyBytes& entry : cache::reserved_cache_bytes(rig.model().cache_families(), rig.store().options())) foretold += entry.bytes;
  EXPECT_EQ(rig.store().bytes(), foretold);
}

INSTANTIATE_TEST_SUITE_P(Formats, Caches, testing::ValuesIn(kFormats), [](const auto& test) { return test.param.name; });

/// Of a model that loads in no time.
RigOptions small(const CacheFormats& caches) {
  RigOptions out = options(caches);
  out.directory = data_path("golden/base");
  return out;
}
const std::vector<TokenId> kTokens = {1, 20, 3, 47, 5, 60, 7, 8, 9};

TEST(CacheFormatsApart, ASnapshotOfAnotherFormatIsRefused) {
  std::vector<cache::Snapshot> snapshots;
  for (const Format& format : kFormats) {
    Rig rig(small(format.formats));
    SequenceId sequence;
    rig.prefill(kTokens, {}, &sequence);
    snapshots.push_back(must(rig.store().snapshot(sequence), "snapshot"));
  }
  for (size_t mine = 0; mine < std::size(kFormats); ++mine) {
    Rig rig(small(kFormats[mine].formats));
    for (size_t theirs = 0; theirs < std::size(kFormats); ++theirs) {
      const auto restored = rig.store().restore(snapshots[theirs]);
      EXPECT_EQ(restored.has_value(), mine == theirs) << kFormats[theirs].name << " for " << kFormats[mine].name;
      if (restored) {
        rig.store().close(*restored);
      } else {
        EXPECT_EQ(restored.error().code, Code::kFailedPrecondition);
        EXPECT_NE(restored.error().message.find(" has layout "), std::string::npos) << restored.error().message;
      }
    }
    EXPECT_EQ(rig.store().free_slots(), 3);
  }
}

/// What load_model says on a device; "": nothing.
std::string refusal(const RigOptions& options, backend::Device& device) {
  const auto dispatch = must(backend::Dispatch::create(device, options.dispatch), "dispatch");
  const auto model = load_model(options.directory, *dispatch, options.model);
  return model ? "" : model.error().message;
}
std::string refusal(const RigOptions& options) { return refusal(options, *Rig::cpu_device(options)); }

TEST(CacheFormatsApart, WhatAModelCannotKeepIsRefusedByName) {
  RigOptions ranges = small({.state = DType::kF16});
  ranges.model.token_ranges = true;
  EXPECT_EQ(refusal(ranges), "cache formats latent=bf16,index=bf16,state=fp16,conv=fp32: token ranges take states and windows of fp32 alone");
  EXPECT_EQ(refusal(small({.latent = DType::kF16})), "cache family 'latent' as f16: expected fp32, bf16, fp8 or int8");
}

bool rows_without_scales(const void* params) { return !static_cast<const ops::WriteLatentsParams*>(params)->pool.scales.present(); }

TEST(CacheFormatsApart, AFormatWithoutAKernelIsAFallbackOrRefused) {
  std::vector<ops::Variant> table(backend::reference_table().begin(), backend::reference_table().end());
  for (ops::Variant& variant : table) {
    if (variant.op == ops::OpId::kWriteLatents) variant.supports = rows_without_scales;
  }
  RigOptions narrow = small(kBalancedCaches);
  narrow.reference = true;
  narrow.dispatch.host_reference = backend::reference_table();
  Rig all(narrow);
  Rig lacking(narrow, must(backend::FakeDevice::create(table), "device"));
  EXPECT_TRUE(same_bits(lacking.prefill(kTokens), all.prefill(kTokens)));
  EXPECT_GT(lacking.dispatch().fallback_calls(), 0);
  narrow.dispatch.no_fallback = true;
  const auto device = must(backend::FakeDevice::create(table), "device");
  const std::string message = refusal(narrow, *device);
  EXPECT_NE(message.find("with caches latent=int8,index=int8,state=fp16,conv=bf16: "), std::string::npos) << message;
  EXPECT_NE(message.find("write_latents"), std::string::npos) << message;
  narrow.model.caches = kPlainCaches;
  EXPECT_EQ(refusal(narrow, *device), "");
}

}  // namespace
}  // namespace lathe::models::golden
