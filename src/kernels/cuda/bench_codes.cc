// cuda_bench: products of INT8 codes.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/cuda/bench.h"
#include "kernels/cuda/codes_args.h"

namespace lathe::kernels::cuda {
namespace {

/// Weights (several sets), rows of x and everything between.
struct CodesData {
  CodesData(int64_t rows_, int64_t cols_, int sets, int64_t tokens)
      : rows(rows_),
        cols(cols_),
        weights(rows_ * cols_ * sets),
        scales(floats(rows_, 0.001f, 0.01f)),
        x(floats(tokens * cols_, -1, 1)),
        codes(codes_bytes(static_cast<int32_t>(tokens), static_cast<int32_t>(cols_))),
        x_scales(tokens * 4),
        y(tokens * rows_ * 4) {
    launch_fill(weights.as<void>(), Content::kF8, 0, 0, rows * cols * sets, bench.seed++, bench.stream);
  }
  CodesArgs args(int set, int tokens) const {
    CodesArgs a{};
    a.parts[0] = {.weight = weights.as<int8_t>() + set * rows * cols,
                  .stride = cols,
                  .scales = scales.as(),
                  .scale_stride = 1,
                  .bias = {nullptr, Type::kF32},
                  .y = y.as<void>(),
                  .y_stride = rows,
                  .rows = static_cast<int32_t>(rows),
                  .integers = false};
    a.count = 1;
    a.x = codes.as<int8_t>(), a.x_rows = codes_rows(tokens), a.x_scales = x_scales.as();
    a.tokens = tokens, a.cols = static_cast<int32_t>(cols);
    return a;
  }
  void to_codes(int64_t first, int tokens, int32_t* counters, int32_t count) const {
    launch_to_codes({.x = {x.as() + first * cols, cols},
                     .amax = nullptr,
                     .codes = codes.as<int8_t>(),
                     .rows = codes_rows(tokens),
                     .scales = x_scales.as(),
                     .counters = counters,
                     .tokens = tokens,
                     .cols = static_cast<int32_t>(cols),
                     .counter_count = count},
                    bench.stream);
  }
  int64_t rows, cols;
  Memory weights, scales, x, codes, x_scales, y;
};

bool check_shape(int64_t rows, int64_t cols) {
  constexpr int kTokens = 300;
  const CodesData data(rows, cols, 1, kTokens);
  data.to_codes(0, kTokens, nullptr, 0);
  launch_codes_plain(data.args(0, kTokens), bench.stream);
  const std::vector<float> expected = on_host(data.y.as(), kTokens * rows);
  int wrong = 0;
  for (const auto& [first, count] :
       {std::pair{0, 300}, std::pair{0, 1}, std::pair{7, 8}, std::pair{3, 13}, std::pair{40, 31}, std::pair{200, 64}, std::pair{100, 100}}) {
    launch_fill(data.y.as<void>(), Content::kF32, 1e20f, 2e20f, kTokens * rows, bench.seed++, bench.stream);
    const CodesArgs args = data.args(0, count);
    data.to_codes(first, count, nullptr, 0);
    const Memory counters(std::max(codes_counters(args), 1) * 4), partial(std::max<int64_t>(codes_partial_bytes(args), 4));
    BENCH_CUDA(cudaMemsetAsync(counters.as<void>(), 0, static_cast<size_t>(std::max(codes_counters(args), 1)) * 4, bench.stream));
    launch_codes_wgmma(args, counters.as<int32_t>(), partial.as<int32_t>(), bench.stream);
    BENCH_CUDA(cudaGetLastError());
    const std::vector<float> found = on_host(data.y.as(), count * rows);
    wrong += std::memcmp(found.data(), expected.data() + first * rows, found.size() * 4) != 0 ? 1 : 0;
  }
  std::printf("int8 codes %ldx%ld: %d of 7 parts with other bits than plain: %s\n", static_cast<long>(rows), static_cast<long>(cols), wrong,
              wrong == 0 ? "ok" : "WRONG");
  std::fprintf(bench.json, "{\"what\": \"codes check\", \"case\": \"%ldx%ld\", \"other_bits\": %d}\n", static_cast<long>(rows),
               static_cast<long>(cols), wrong);
  return wrong == 0;
}

void time_shape(int64_t rows, int64_t cols, std::string& table) {
  const int64_t bytes = rows * cols;
  const int sets = static_cast<int>(std::clamp<int64_t>((int64_t{400} << 20) / bytes, 3, 12));
  const CodesData data(rows, cols, sets, 8192);
  const Memory counters(1 << 20), partial(int64_t{256} << 20);
  data.to_codes(0, 8192, nullptr, 0);
  for (const bool with_codes : {true, false}) {
    table += fmt::format("{:>6}x{:<5} {:<9}", rows, cols, with_codes ? "from f32" : "alone");
    for (const int tokens : {1, 4, 8, 16, 32, 64, 256, 2048, 8192}) {
      const int32_t count = codes_counters(data.args(0, tokens));
      if (!with_codes && count > 0) {  // cut products need their counters made new
        table += "             -";
        continue;
      }
      const double us = measure(tokens > 64 ? 2 : sets, [&](int i) {
        if (with_codes) data.to_codes(0, tokens, counters.as<int32_t>(), count);
        launch_codes_wgmma(data.args(i % sets, tokens), counters.as<int32_t>(), partial.as<int32_t>(), bench.stream);
      });
      report(fmt::format("product/int8/{}", with_codes ? "from f32" : "alone"), fmt::format("{}x{} M={}", rows, cols, tokens), us,
             static_cast<double>(bytes), bench.read_gbs);
      if (tokens <= 64) {
        table += fmt::format("{:>8.1f} {:>4.0f}%", us, static_cast<double>(bytes) / us / 10 / bench.read_gbs);
      } else {
        table += fmt::format("{:>8.0f} {:>4.0f}T", us, 2.0 * static_cast<double>(tokens * rows * cols) / us / 1e6);
      }
    }
    table += "\n";
  }
}

}  // namespace

bool check_codes() {
  bool good = check_shape(1024, 4096);
  good = check_shape(1000, 528) && good;
  good = check_shape(136, 8192) && good;
  return check_shape(40, 16) && good;
}

void codes() {
  std::string table;
  for (const auto& [rows, cols] : {std::pair{2048, 4096}, std::pair{8192, 4096}, std::pair{4096, 8192}, std::pair{24576, 4096}})
    time_shape(rows, cols, table);
  std::printf("products of INT8 codes, us and %% of read bandwidth for M = 1, 4, 8, 16, 32, 64; us and TOP/s for 256, 2048, 8192\n%s", table.c_str());
}

}  // namespace lathe::kernels::cuda
