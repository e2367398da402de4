// Goal: every byte of every part is computed once, whatever the number of threads; the first failure ends the work.
#include "weights/stream.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>

#include "base/file.h"

namespace lathe::weights {
namespace {

const std::string& test_file() {
  static const std::string path = testing::TempDir() + "lathe_stream_" + std::to_string(::getpid());
  return path;
}

/// Parts of 3, 1000 and 0 bytes and one in rows of 48.
const std::vector<StreamPart>& some_parts() {
  static const std::vector<StreamPart> parts = {
      {.offset = 0, .bytes = 3}, {.offset = 3, .bytes = 1000}, {.offset = 1003, .bytes = 0}, {.offset = 1003, .bytes = 480, .unit = 48}};
  return parts;
}
constexpr uint64_t kBytes = 1483;

std::byte value_at(size_t part, uint64_t at) { return static_cast<std::byte>(part * 50 + at * 7 + at / 100); }

Result<std::string> streamed(const StreamOptions& options, FillPart fill) {
  LATHE_TRY(base::OutputFile file, base::OutputFile::create(test_file(), kBytes));
  LATHE_TRY_VOID(stream_parts(file, some_parts(), fill, options));
  LATHE_TRY_VOID(file.commit());
  auto content = base::read_file(test_file(), kBytes);
  std::filesystem::remove(test_file());
  return content;
}

constexpr auto kFillWithValues = [](size_t part, uint64_t begin, std::span<std::byte> out) -> Result<void> {
  for (size_t i = 0; i < out.size(); ++i) out[i] = value_at(part, begin + i);
  return {};
};

TEST(Stream, WritesEveryByteForAnyNumberOfThreads) {
  std::string expected;
  for (size_t part = 0; part < some_parts().size(); ++part) {
    for (uint64_t i = 0; i < some_parts()[part].bytes; ++i) expected += static_cast<char>(value_at(part, i));
  }
  for (const int threads : {1, 3}) {
    base::ThreadPool pool(threads);
    for (const uint64_t piece : {1u, 100u, 4096u}) {
      const auto content = streamed({.pool = &pool, .piece_bytes = piece}, kFillWithValues);
      ASSERT_TRUE(content.has_value()) << content.error().message;
      EXPECT_EQ(*content, expected) << threads << " threads, pieces of " << piece;
    }
  }
}

TEST(Stream, PiecesAreOfWholeUnits) {
  std::atomic<int> wrong = 0;
  const auto fill = [&](size_t part, uint64_t begin, std::span<std::byte> out) -> Result<void> {
    const StreamPart& whole = some_parts()[part];
    const bool last = begin + out.size() == whole.bytes;
    if (begin % whole.unit != 0 || (!last && out.size() % whole.unit != 0) || out.size() > std::max<uint64_t>(whole.unit, 100)) ++wrong;
    return {};
  };
  ASSERT_TRUE(streamed({.piece_bytes = 100}, fill).has_value());
  EXPECT_EQ(wrong, 0);
}

TEST(Stream, AFailureIsTheResult) {
  base::ThreadPool pool(2);
  const auto fill = [](size_t part, uint64_t begin, std::span<std::byte> out) -> Result<void> {
    if (part == 1 && begin >= 400) return err(Code::kDataLoss, "broken at {}", begin);
    return kFillWithValues(part, begin, out);
  };
  const auto result = streamed({.pool = &pool, .piece_bytes = 500}, fill);
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().message, "broken at 496");
}

TEST(Stream, ProgressMayStopIt) {
  std::vector<uint64_t> told;
  const auto stop_at_end = [&](uint64_t done) { return told.push_back(done), done < kBytes + 10; };
  const base::FunctionRef<bool(uint64_t)> progress = stop_at_end;
  const auto result = streamed({.piece_bytes = 8, .done_before = 10, .progress = &progress}, kFillWithValues);
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, Code::kCancelled);
  EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
  EXPECT_EQ(told.back(), kBytes + 10);
}

}  // namespace
}  // namespace lathe::weights
