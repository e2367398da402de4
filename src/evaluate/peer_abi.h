#pragma once
// What a library of products gives to `bench rival` as a module that is loaded: C functions, so that neither the library nor its thread pool is part of the
// program.

#include <stddef.h>
#include <stdint.h>

extern "C" {

/// y [rows, outputs] f32 = x [rows, channels] · Wᵀ, W [outputs, channels]: both sides BF16, or INT8 codes with sums in INT32. The values do not matter.
struct LathePeerProduct {
  int32_t int8;
  int32_t threads;
  int64_t rows, outputs, channels;
};

/// "oneDNN 2.6.3"
const char* lathe_peer_name(void);
/// Everything that happens once: memory, the library's own layout of the weights. Null: `error` says why.
void* lathe_peer_create(const LathePeerProduct* product, char* error, size_t error_bytes);
/// One product, to its end.
void lathe_peer_run(void* peer);
void lathe_peer_destroy(void* peer);

}  // extern "C"
