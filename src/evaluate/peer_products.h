#pragma once
// `bench rival --onednn`: our products and those of a library in one process, in pairs whose order is drawn.

#include <string>
#include <vector>

#include "backend/cpu/cpu_device.h"
#include "evaluate/bench_ab.h"
#include "evaluate/machine.h"

namespace lathe::evaluate {

struct PeerProductsOptions {
  std::string module;             ///< path of a module with the functions of peer_abi.h
  std::vector<int64_t> tokens{};  ///< rows of x
  backend::CpuOptions cpu;        ///< threads of both
  PairOptions pairs;
};

/// One product of both.
struct PeerProduct {
  std::string name;  ///< "int8 4096x4096", outputs x channels
  int64_t tokens = 0;
  double operations = 0;  ///< of a call, two for each multiply-add
  double weight_bytes = 0;
  double roof = 0;      ///< operations per second of the machine in this format
  BenchMetric rates{};  ///< calls per second: A the library, B ours
};

struct PeerProducts {
  std::string library;
  std::vector<PeerProduct> products;
};

/// INT8 codes and BF16, matrices of the published model. Ours also makes the codes of x, the library is given them; each has its weights in the layout that it
/// wants. Errors: failed_precondition (no such module, a product that it does not have), invalid_argument (tokens, pairs), those of the device.
Result<PeerProducts> bench_peer_products(const PeerProductsOptions& options, Roofs& roofs, base::FunctionRef<void(int done, int total)> progress);

std::string peer_page(const PeerProducts& peers);
config::Json peer_json(const PeerProducts& peers);

}  // namespace lathe::evaluate
