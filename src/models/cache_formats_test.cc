// Goal: cache formats are read from texts as written, and what is wrong is told with family, value and expectation.

#include "models/cache_formats.h"

#include <gtest/gtest.h>

#include "models/model.h"

namespace lathe::models {
namespace {

CacheFormats parsed(std::string_view text, const CacheFormats& base = kFastCaches) {
  const auto formats = parse_cache_formats(text, base);
  EXPECT_TRUE(formats.has_value()) << text << ": " << (formats ? "" : formats.error().message);
  return formats.value_or(CacheFormats{});
}

TEST(CacheFormats, FamiliesThatAreNotNamedStayAsTheyAre) {
  EXPECT_EQ(parsed(""), kFastCaches);
  EXPECT_EQ(parsed("", kExactCaches), kExactCaches);
  CacheFormats wanted = kExactCaches;
  wanted.index = DType::kF8E4M3;
  EXPECT_EQ(parsed("index=fp8", kExactCaches), wanted);
  wanted = {.latent = DType::kI8, .index = DType::kF8E4M3, .state = DType::kF16, .keeping = StateKeeping::kReplay, .conv = DType::kBF16};
  EXPECT_EQ(parsed("latent=int8,index=fp8,state=fp16+replay,conv=bf16"), wanted);
  wanted.keeping = StateKeeping::kPlain;
  EXPECT_EQ(parsed("state=fp16", wanted), wanted);
  EXPECT_EQ(parsed("state=fp16", parsed("state=fp16+replay")).keeping, StateKeeping::kPlain);
}

TEST(CacheFormats, AMixSaysAllAndIsChangedBehindIt) {
  const CacheFormats balanced = parsed("balanced");
  EXPECT_EQ(parsed("balanced", kExactCaches), balanced);
  EXPECT_EQ(parsed("plain", kExactCaches), parsed("plain"));
  EXPECT_NE(parsed("plain"), balanced);
  CacheFormats changed = balanced;
  changed.latent = DType::kF32;
  EXPECT_EQ(parsed("balanced,latent=fp32"), changed);
}

TEST(CacheFormats, TextsAndFormatsAreTheSame) {
  EXPECT_EQ(cache_formats_text(kFastCaches), "latent=bf16,index=bf16,state=fp32,conv=fp32");
  for (const char* text : {"latent=fp32,index=fp32,state=fp32,conv=fp32", "latent=int8,index=fp8,state=fp16+replay,conv=bf16",
                           "latent=fp8,index=int8,state=int8+replay,conv=fp32", "latent=bf16,index=bf16,state=fp32+replay,conv=bf16"}) {
    EXPECT_EQ(cache_formats_text(parsed(text)), text);
  }
}

TEST(CacheFormats, WhatIsWrongIsTold) {
  const std::pair<const char*, const char*> cases[] = {
      {"latent=int4", "cache family 'latent' as 'int4': expected fp32, bf16, fp8 or int8"},
      {"index=", "cache family 'index' as '': expected fp32, bf16, fp8 or int8"},
      {"latent=int8+replay", "cache family 'latent' as 'int8+replay': expected fp32, bf16, fp8 or int8"},
      {"state=bf16", "cache family 'state' as 'bf16': expected fp32, fp16, fp32+replay, fp16+replay or int8+replay"},
      {"state=int8", "cache family 'state' as 'int8': rounded at every token it loses too much, expected int8+replay"},
      {"conv=fp16", "cache family 'conv' as 'fp16': expected fp32 or bf16"},
      {"latents=int8", "'latents=int8' is no cache format: expected balanced, plain, or latent, index, state or conv with '=' and a format"},
      {"int8", "'int8' is no cache format: expected balanced, plain, or latent, index, state or conv with '=' and a format"},
      {"latent=int8,,conv=bf16", "'' is no cache format: expected balanced, plain, or latent, index, state or conv with '=' and a format"},
      {"latent=int8,", "cache formats 'latent=int8,': nothing follows the last comma"},
      {"latent=int8,latent=fp8", "cache formats 'latent=int8,latent=fp8': family 'latent' is given twice"},
      {"conv=bf16,balanced", "cache formats 'conv=bf16,balanced': the mix 'balanced' says all families, expected it first"},
  };
  for (const auto& [text, message] : cases) {
    const auto formats = parse_cache_formats(text, kFastCaches);
    ASSERT_FALSE(formats.has_value()) << text;
    EXPECT_EQ(formats.error().code, Code::kInvalidArgument) << text;
    EXPECT_EQ(formats.error().message, message);
  }
}

TEST(CacheFormats, OthersThanAFamilyTakesAreRefused) {
  EXPECT_TRUE(check_cache_formats(kFastCaches).has_value());
  EXPECT_TRUE(check_cache_formats(kExactCaches).has_value());
  CacheFormats formats = kFastCaches;
  formats.state = DType::kBF16;
  EXPECT_EQ(check_cache_formats(formats).error().message,
            "cache family 'state' as bf16: expected fp32, fp16, fp32+replay, fp16+replay or int8+replay");
  formats = kFastCaches;
  formats.latent = DType::kF16;
  EXPECT_FALSE(check_cache_formats(formats).has_value());
}

TEST(CacheFormats, ThePrecisionDecidesWhereNobodySays) {
  ModelOptions options{.precision = Precision::kExact, .shards = {}, .groups = {}};
  EXPECT_EQ(options.cache_formats(), kExactCaches);
  options.precision = Precision::kFast;
  EXPECT_EQ(options.cache_formats(), kFastCaches);
  options.caches = kExactCaches;
  EXPECT_EQ(options.cache_formats(), kExactCaches);
}

}  // namespace
}  // namespace lathe::models
