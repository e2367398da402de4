// cuda_bench: matrix products and experts, rung by rung; and whether the rungs agree and a row has the same bits alone and among others.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "kernels/cuda/args.h"
#include "kernels/cuda/bench.h"

namespace lathe::kernels::cuda {
namespace {

struct ProductRung {
  const char* name;
  void (*launch)(const ProductArgs& args, void* scratch);
  int tokens_max;  ///< timed up to here; 0: not at all
};
constexpr std::array kProductRungs = {
    ProductRung{"mma", [](const ProductArgs& args, void*) { launch_product_mma(&args, 1, bench.stream); }, 0},
    ProductRung{"cluster", [](const ProductArgs& args, void*) { launch_product_cluster(&args, 1, bench.stream); }, 2048},
    ProductRung{"stream",
                [](const ProductArgs& args, void* scratch) {
                  if (product_stream_bytes(&args, 1) == 0) return launch_product_cluster(&args, 1, bench.stream);
                  launch_product_stream(&args, 1, scratch, bench.stream);
                },
                2048},
};

Matrix fp8_matrix(int64_t rows, int64_t cols) {
  return {.values = nullptr,
          .stride = cols,
          .scales = nullptr,
          .scale_stride = cols / 128,
          .rows = static_cast<int>(rows),
          .cols = static_cast<int>(cols),
          .block_rows = 128,
          .block_cols = 128,
          .row_offset = 0,
          .col_offset = 0,
          .type = Type::kF8};
}

/// Weights (several sets), x and y of a product.
struct ProductData {
  ProductData(Type type_, int64_t rows_, int64_t cols_, int sets, int64_t tokens, Content content)
      : type(type_),
        rows(rows_),
        cols(cols_),
        bytes(rows_ * cols_ * (type_ == Type::kF8 ? 1 : 2)),
        weights(bytes * sets),
        scales(floats(std::max<int64_t>(1, rows_ / 128 * (cols_ / 128)), 0.001f, 0.01f)),
        x(floats(tokens * cols_, -1, 1)),
        y(tokens * rows_ * 4),
        scratch((tokens + 64) * cols_ * 3) {
    launch_fill(weights.as<void>(), content, -0.05f, 0.05f, rows * cols * sets, bench.seed++, bench.stream);
  }
  ProductArgs args(int set, int64_t first, int tokens, bool tree = false) const {
    Matrix weight = fp8_matrix(rows, cols);
    weight.values = weights.as<char>() + set * bytes;
    weight.scales = type == Type::kF8 ? scales.as() : nullptr;
    weight.type = type;
    return {.weight = weight,
            .bias = {nullptr, Type::kF32},
            .x = x.as() + first * cols,
            .x_stride = cols,
            .x_head = 0,
            .y = y.as(),
            .y_stride = rows,
            .y_head = 0,
            .y_node = 0,
            .tokens = tokens,
            .heads = 1,
            .head_rows = static_cast<int>(rows),
            .first_row = 0,
            .rows = static_cast<int>(rows),
            .leaf_channels = tree ? 128 : 0,
            .leaf_begin = 0,
            .leaf_total = tree ? static_cast<int>(cols / 128) : 0,
            .partial = false,
            .fast = true};
  }
  Type type;
  int64_t rows, cols, bytes;
  Memory weights, scales, x, y, scratch;
};

/// One shape: every rung against the plain kernel, and rows of 70 alone and some together.
bool check_product(const char* name, Type type, Content content, int64_t rows, int64_t cols, bool tree = false) {
  constexpr int kTokens = 70;
  const ProductData data(type, rows, cols, 1, kTokens, content);
  const ProductArgs all = data.args(0, 0, kTokens, tree);
  launch_product_plain(&all, 1, bench.stream);
  const std::vector<float> expected = on_host(data.y.as(), kTokens * rows);
  bool good = true;
  for (const ProductRung& rung : kProductRungs) {
    launch_fill(data.y.as<void>(), Content::kF32, 1e20f, 2e20f, kTokens * rows, bench.seed++, bench.stream);
    rung.launch(all, data.scratch.as<void>());
    BENCH_CUDA(cudaGetLastError());
    const std::vector<float> found = on_host(data.y.as(), kTokens * rows);
    const double error = difference(found, expected);
    int differing = 0;
    for (const auto& [first, count] : {std::pair{0, 1}, std::pair{69, 1}, std::pair{7, 5}, std::pair{33, 13}, std::pair{3, 40}, std::pair{41, 25}}) {
      const ProductArgs some = data.args(0, first, count, tree);
      rung.launch(some, data.scratch.as<void>());
      const std::vector<float> part = on_host(data.y.as(), count * rows);
      differing += std::memcmp(part.data(), found.data() + first * rows, part.size() * 4) != 0 ? 1 : 0;
    }
    const bool fine = error < 2e-5 && differing == 0;
    std::printf("product %s %s %ldx%ld against plain: %.1e, %d of 6 parts with other bits: %s\n", rung.name, name, static_cast<long>(rows),
                static_cast<long>(cols), error, differing, fine ? "ok" : "WRONG");
    std::fprintf(bench.json, "{\"what\": \"product check\", \"rung\": \"%s\", \"case\": \"%s %ldx%ld\", \"error\": %.3e, \"other_bits\": %d}\n",
                 rung.name, name, static_cast<long>(rows), static_cast<long>(cols), error, differing);
    good = good && fine;
  }
  return good;
}

void time_product(Type type, int64_t rows, int64_t cols, bool tree, std::string& table) {
  const int64_t bytes = rows * cols * (type == Type::kF8 ? 1 : 2);
  const int sets = static_cast<int>(std::clamp<int64_t>((int64_t{400} << 20) / bytes, 3, 12));
  const ProductData data(type, rows, cols, sets, 2048, type == Type::kF8 ? Content::kF8 : Content::kBF16);
  const std::string name = fmt::format("{}{}", type == Type::kF8 ? "fp8" : "bf16", tree ? " tree" : "");
  for (const ProductRung& rung : kProductRungs) {
    if (rung.tokens_max == 0) continue;
    table += fmt::format("{:>9} {:<7} {:>6}x{:<5}", name, rung.name, rows, cols);
    for (const int tokens : {1, 4, 8, 16, 32, 64, 2048}) {
      if (tokens > rung.tokens_max) continue;
      const double us = measure(tokens > 64 ? 1 : sets, [&](int i) {
        const ProductArgs args = data.args(i, 0, tokens, tree);
        rung.launch(args, data.scratch.as<void>());
      });
      report(fmt::format("product/{}/{}", name, rung.name), fmt::format("{}x{} M={}", rows, cols, tokens), us, static_cast<double>(bytes),
             bench.read_gbs);
      if (tokens <= 64) {
        table += fmt::format("{:>8.1f} {:>3.0f}%", us, static_cast<double>(bytes) / us / 10 / bench.read_gbs);
      } else {
        table += fmt::format("{:>9.0f} {:>4.0f}T", us, 2.0 * static_cast<double>(tokens * rows * cols) / us / 1e6);
      }
    }
    table += "\n";
  }
}

constexpr int kExperts = 288;
constexpr int kChosen = 8;
constexpr int64_t kHidden = 4096;
constexpr int64_t kInner = 2048;
constexpr int64_t kExpertBytes = kHidden * kInner;

/// Weights of all experts at the published sizes.
struct ExpertWeights {
  ExpertWeights() : values(3 * kExperts * kExpertBytes), scales(floats(kExpertBytes / (128 * 128), 0.001f, 0.01f)) {
    launch_fill(values.as<void>(), Content::kF8, 0, 0, 3 * kExperts * kExpertBytes, bench.seed++, bench.stream);
    for (int i = 0; i < 3; ++i) {
      for (int e = 0; e < kExperts; ++e) {
        table.at[i * kExperts + e] = values.as<char>() + (int64_t{i} * kExperts + e) * kExpertBytes;
        table.at[(3 + i) * kExperts + e] = scales.as();
      }
    }
  }
  Memory values, scales;
  ExpertTable table{};
};

/// Rows that choose experts at random, and everything a launch needs.
struct ExpertRows {
  explicit ExpertRows(int tokens_)
      : tokens(tokens_),
        x(floats(tokens * kHidden, -1, 1)),
        w(floats(tokens * kChosen, 0.1f, 1)),
        y(tokens * kHidden * 4),
        list(kExperts * tokens * 4),
        counts(kExperts * 4),
        hidden(tokens * kChosen * kInner * 4),
        leaves(tokens * kChosen * kHidden * 4),
        pointers(6 * kExperts * 8) {
    std::vector<int32_t> all;
    std::vector<bool> chosen(kExperts);
    uint64_t state = 12345;
    for (int t = 0; t < tokens; ++t) {
      std::vector<int32_t> row;
      while (row.size() < kChosen) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        const auto e = static_cast<int32_t>((state >> 33) % kExperts);
        if (std::find(row.begin(), row.end(), e) == row.end()) row.push_back(e), chosen[static_cast<size_t>(e)] = true;
      }
      std::sort(row.begin(), row.end());
      all.insert(all.end(), row.begin(), row.end());
    }
    ids = integers(all);
    used = static_cast<int>(std::count(chosen.begin(), chosen.end(), true));
  }
  /// Rows [first, first + count).
  MoeArgs args(int first, int count) const {
    return {.x = {x.as() + first * kHidden, kHidden},
            .ids = ids.as<int32_t>() + first * kChosen,
            .ids_stride = kChosen,
            .weights = {w.as() + first * kChosen, kChosen},
            .gate = fp8_matrix(kInner, kHidden),
            .up = fp8_matrix(kInner, kHidden),
            .down = fp8_matrix(kHidden, kInner),
            .experts = kExperts,
            .expert_begin = 0,
            .experts_total = kExperts,
            .limit = 10,
            .fast = true,
            .y = y.as(),
            .y_node = 0,
            .y_stride = kHidden,
            .partial = false,
            .present = nullptr,
            .present_stride = 0,
            .tokens = count,
            .chosen = kChosen,
            .width = kHidden,
            .inner = kInner,
            .table = pointers.as<const void*>(),
            .counts = counts.as<int32_t>(),
            .lists = list.as<int32_t>(),
            .hidden = hidden.as(),
            .leaves = leaves.as()};
  }
  int tokens, used = 0;
  Memory x, w, y, list, counts, hidden, leaves, pointers, ids{4};
};

constexpr std::array kMoeRungs = {std::pair{"mma", MoeRung::kMma}, std::pair{"wgmma", MoeRung::kWgmma}};

}  // namespace

bool check_products() {
  bool good = check_product("bf16", Type::kBF16, Content::kBF16, 1000, 4096);
  good = check_product("fp8", Type::kF8, Content::kF8, 1024, 4096) && good;
  good = check_product("fp8, subnormal weights", Type::kF8, Content::kF8Tiny, 512, 1024) && good;
  good = check_product("fp8", Type::kF8, Content::kF8, 640, 8192) && good;
  good = check_product("fp8, leaves", Type::kF8, Content::kF8, 640, 8192, true) && good;
  good = check_product("fp8, leaves", Type::kF8, Content::kF8, 640, 4096, true) && good;
  return check_product("bf16, leaves", Type::kBF16, Content::kBF16, 500, 8192, true) && good;
}

bool check_small_products() {
  bool good = check_product("fp8", Type::kF8, Content::kF8, 128, 1024);
  good = check_product("fp8", Type::kF8, Content::kF8, 256, 384) && good;
  return check_product("bf16", Type::kBF16, Content::kBF16, 72, 1024) && good;
}

void products() {
  std::string table;
  for (const Type type : {Type::kBF16, Type::kF8}) {
    for (const auto& [rows, cols] : {std::pair{2048, 4096}, std::pair{8192, 4096}, std::pair{4096, 8192}, std::pair{24576, 4096}}) {
      time_product(type, rows, cols, false, table);
    }
    time_product(type, 4096, 8192, true, table);
  }
  std::printf("products (x in f32; tree: leaves of 128 channels), us and %% of read bandwidth for M = 1, 4, 8, 16, 32, 64; M = 2048 in TFLOP/s\n%s",
              table.c_str());
}

void launch_for_counters() {
  for (const int rows : {24576, 8192}) {
    const ProductData data(Type::kF8, rows, 4096, 1, 64, Content::kF8);
    for (const int tokens : {1, 16, 64}) {
      const ProductArgs args = data.args(0, 0, tokens);
      launch_product_wgmma(&args, 1, data.scratch.as<void>(), bench.stream);
    }
    BENCH_CUDA(cudaStreamSynchronize(bench.stream));
  }
  const ExpertWeights weights;
  const ExpertRows rows(64);
  launch_moe(rows.args(0, 64), weights.table, MoeRung::kWgmma, bench.stream);
  BENCH_CUDA(cudaStreamSynchronize(bench.stream));
}

bool check_experts() {
  constexpr int kTokens = 150;  // beyond two rows an expert
  const ExpertWeights weights;
  const ExpertRows rows(kTokens);
  bool good = true;
  std::vector<float> expected;
  for (const auto& [name, rung] : kMoeRungs) {
    launch_moe(rows.args(0, kTokens), weights.table, rung, bench.stream);
    BENCH_CUDA(cudaGetLastError());
    const std::vector<float> found = on_host(rows.y.as(), kTokens * kHidden);
    if (expected.empty()) expected = found;
    const double error = difference(found, expected);
    int differing = 0;
    for (const auto& [first, count] : {std::pair{0, 1}, std::pair{149, 1}, std::pair{20, 16}, std::pair{64, 64}}) {
      launch_moe(rows.args(first, count), weights.table, rung, bench.stream);
      const std::vector<float> part = on_host(rows.y.as(), count * kHidden);
      differing += std::memcmp(part.data(), found.data() + first * kHidden, part.size() * 4) != 0 ? 1 : 0;
    }
    const bool fine = error < 1e-4 && differing == 0;  // what is between gate and down is rounded to BF16, now up, now down
    std::printf("moe %s against mma: %.1e, %d of 4 parts with other bits: %s\n", name, error, differing, fine ? "ok" : "WRONG");
    good = good && fine;
  }
  return good;
}

void experts() {
  const ExpertWeights weights;
  for (const int tokens : {1, 4, 16, 64, 256}) {
    const ExpertRows rows(tokens);
    const double bytes = static_cast<double>(rows.used) * 3 * kExpertBytes;
    std::string line;
    for (const auto& [name, rung] : kMoeRungs) {
      const double us = measure(4, [&, rung = rung](int) { launch_moe(rows.args(0, tokens), weights.table, rung, bench.stream); });
      report(fmt::format("moe/fp8/{}", name), fmt::format("288 experts top 8 B={}", tokens), us, bytes, bench.read_gbs);
      line += fmt::format("  {} {:.1f} us, {:.0f}%", name, us, bytes / us / 10 / bench.read_gbs);
    }
    std::printf("moe fp8 288 x 4096 x 2048, top 8, B=%d, %d experts:%s of read bandwidth%s\n", tokens, rows.used, line.c_str(),
                tokens == 1 ? " (200 MB, the same experts each time)" : "");
  }
}

}  // namespace lathe::kernels::cuda
