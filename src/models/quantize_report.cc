#include "models/quantize_report.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace lathe::models {
namespace {

using config::Json;

double relative(double error, double square) { return square > 0 ? std::sqrt(error / square) : 0; }

constexpr std::array kTypes = {DType::kF32, DType::kBF16, DType::kF16, DType::kF8E4M3, DType::kI8};

/// One row read back; every member must be there and of its kind.
class Row {
 public:
  explicit Row(const Json& json) : json_(json) {}

  double number(const char* key) {
    const Json* value = json_.find(key);
    good_ = good_ && value != nullptr && value->is_number();
    return good_ ? value->as_double() : 0;
  }
  int64_t integer(const char* key) {
    const Json* value = json_.find(key);
    good_ = good_ && value != nullptr && value->is_int();
    return good_ ? value->as_int() : 0;
  }
  std::string text(const char* key) {
    const Json* value = json_.find(key);
    good_ = good_ && value != nullptr && value->is_string();
    return good_ ? value->as_string() : "";
  }
  DType type(const char* key) {
    const std::string name = text(key);
    const auto at = std::find_if(kTypes.begin(), kTypes.end(), [&](DType type) { return name == tensor::dtype_name(type); });
    good_ = good_ && at != kTypes.end();
    return good_ ? *at : DType::kF32;
  }
  /// The members of a calibrated matrix come together or not at all.
  bool calibrated() const { return json_.find("output_rms") != nullptr; }
  bool good() const { return good_; }

 private:
  const Json& json_;
  bool good_ = true;
};

}  // namespace

QuantizedMatrix matrix_errors(const RowErrors& errors) {
  QuantizedMatrix out;
  for (size_t row = 0; row < errors.error.size(); ++row) {
    out.error += errors.error[row];
    out.square += errors.square[row];
    const double own = relative(errors.error[row], errors.square[row]);
    if (own <= out.worst_channel_rms) continue;
    out.worst_channel_rms = own;
    out.worst_channel = static_cast<int64_t>(row);
  }
  out.relative_rms = relative(out.error, out.square);
  RowClip all{.amax = 0};
  for (const RowClip& clip : errors.clips) {
    all.error += clip.error, all.error_plain += clip.error_plain, all.square += clip.square;
    if (clip.error < clip.error_plain) ++out.channels_clipped;
  }
  out.output_rms = relative(all.error, all.square);
  out.output_rms_plain = relative(all.error_plain, all.square);
  return out;
}

Json matrices_json(const std::vector<QuantizedMatrix>& matrices) {
  Json::Array out;
  for (const QuantizedMatrix& m : matrices) {
    Json row = (Json::Object{{"name", m.name},
                             {"kind", m.kind},
                             {"from", std::string(tensor::dtype_name(m.from))},
                             {"to", std::string(tensor::dtype_name(m.to))},
                             {"rows", m.rows},
                             {"columns", m.cols},
                             {"relative_rms", m.relative_rms},
                             {"worst_channel", m.worst_channel},
                             {"worst_channel_rms", m.worst_channel_rms},
                             {"error", m.error},
                             {"square", m.square},
                             {"bytes_before", static_cast<int64_t>(m.bytes_before)},
                             {"bytes_after", static_cast<int64_t>(m.bytes_after)}});
    if (m.output_rms > 0) {
      row.set("output_rms", m.output_rms);
      row.set("output_rms_plain", m.output_rms_plain);
      row.set("channels_clipped", m.channels_clipped);
    }
    out.push_back(std::move(row));
  }
  return out;
}

Result<std::vector<QuantizedMatrix>> read_matrices(const Json& json) {
  std::vector<QuantizedMatrix> out;
  if (!json.is_array()) return err(Code::kInvalidArgument, "the report is {}, expected an array", json.kind_name());
  for (const Json& item : json.as_array()) {
    Row row(item);
    QuantizedMatrix m{.name = row.text("name"),
                      .kind = row.text("kind"),
                      .from = row.type("from"),
                      .to = row.type("to"),
                      .rows = row.integer("rows"),
                      .cols = row.integer("columns"),
                      .relative_rms = row.number("relative_rms"),
                      .worst_channel = row.integer("worst_channel"),
                      .worst_channel_rms = row.number("worst_channel_rms"),
                      .error = row.number("error"),
                      .square = row.number("square"),
                      .output_rms = row.calibrated() ? row.number("output_rms") : 0,
                      .output_rms_plain = row.calibrated() ? row.number("output_rms_plain") : 0,
                      .channels_clipped = row.calibrated() ? row.integer("channels_clipped") : 0,
                      .bytes_before = static_cast<uint64_t>(row.integer("bytes_before")),
                      .bytes_after = static_cast<uint64_t>(row.integer("bytes_after"))};
    if (!row.good()) return err(Code::kInvalidArgument, "row {} of the report lacks a value", out.size());
    out.push_back(std::move(m));
  }
  return out;
}

std::vector<QuantizedKind> kinds_of(const std::vector<QuantizedMatrix>& matrices) {
  struct Sums {
    double error = 0, square = 0;
  };
  std::vector<QuantizedKind> out;
  std::vector<Sums> sums;
  for (const QuantizedMatrix& m : matrices) {
    auto at = std::find_if(out.begin(), out.end(), [&](const QuantizedKind& kind) { return kind.kind == m.kind; });
    if (at == out.end()) {
      out.push_back({.kind = m.kind});
      sums.emplace_back();
      at = out.end() - 1;
    }
    Sums& sum = sums[static_cast<size_t>(at - out.begin())];
    ++at->matrices;
    at->bytes_before += m.bytes_before;
    at->bytes_after += m.bytes_after;
    sum.error += m.error;
    sum.square += m.square;
    at->relative_rms = relative(sum.error, sum.square);
  }
  return out;
}

}  // namespace lathe::models
