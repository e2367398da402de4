// oneDNN as a peer of our products: activations as they are given to it, weights in the layout that it asks for.

#include <omp.h>

#include <cstdio>
#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

#include "evaluate/peer_abi.h"

namespace {

using dnnl::memory;

struct Peer {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::matmul matmul;
  memory x, w, y;
  int threads = 1;
};

/// Small values of both signs, so that no product is a special number.
void fill(const memory& to, bool int8) {
  auto* const bytes = static_cast<unsigned char*>(to.get_data_handle());
  const size_t size = to.get_desc().get_size();
  unsigned state = 1;
  for (size_t i = 0; i < size; i += int8 ? 1 : 2) {
    state = state * 1664525U + 1013904223U;
    if (int8) {
      bytes[i] = static_cast<unsigned char>(state >> 24);
    } else {
      bytes[i] = static_cast<unsigned char>(state >> 24), bytes[i + 1] = static_cast<unsigned char>(0x3E | (state >> 8 & 0x80));
    }
  }
}

Peer* create(const LathePeerProduct& p) {
  const auto type = p.int8 != 0 ? memory::data_type::s8 : memory::data_type::bf16;
  const bool int8 = p.int8 != 0;
  omp_set_num_threads(p.threads);
  auto* const out = new Peer;
  out->threads = p.threads;
  const memory::desc x({p.rows, p.channels}, type, memory::format_tag::ab);
  const memory::desc given({p.channels, p.outputs}, type, memory::format_tag::ba);
  const memory::desc any({p.channels, p.outputs}, type, memory::format_tag::any);
  const memory::desc y({p.rows, p.outputs}, memory::data_type::f32, memory::format_tag::ab);
  const dnnl::matmul::primitive_desc plan(dnnl::matmul::desc(x, any, y), out->engine);
  out->matmul = dnnl::matmul(plan);
  out->x = memory(x, out->engine), out->y = memory(y, out->engine), out->w = memory(plan.weights_desc(), out->engine);
  memory rows(given, out->engine);
  fill(out->x, int8), fill(rows, int8);
  dnnl::reorder(rows, out->w).execute(out->stream, rows, out->w);
  out->stream.wait();
  return out;
}

}  // namespace

extern "C" {

const char* lathe_peer_name(void) {
  static char name[64];
  const dnnl_version_t* const version = dnnl_version();
  std::snprintf(name, sizeof name, "oneDNN %d.%d.%d", version->major, version->minor, version->patch);
  return name;
}

void* lathe_peer_create(const LathePeerProduct* product, char* error, size_t error_bytes) {
  try {
    return create(*product);
  } catch (const std::exception& exception) {
    std::snprintf(error, error_bytes, "%s", exception.what());
    return nullptr;
  }
}

void lathe_peer_run(void* peer) {
  Peer& p = *static_cast<Peer*>(peer);
  p.matmul.execute(p.stream, {{DNNL_ARG_SRC, p.x}, {DNNL_ARG_WEIGHTS, p.w}, {DNNL_ARG_DST, p.y}});
  p.stream.wait();
}

void lathe_peer_destroy(void* peer) { delete static_cast<Peer*>(peer); }

}  // extern "C"
