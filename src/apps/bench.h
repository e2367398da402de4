#pragma once
// The verb `bench`: ops, model, ab, rival, ladder, make-slice.

#include <cstdint>
#include <string>
#include <vector>

#include "apps/ladder.h"
#include "apps/make_slice.h"
#include "base/result.h"
#include "config/settings.h"

namespace lathe::apps {

struct BenchOptions {
  std::string suite;  ///< "ops", "model", "ab", "rival", "ladder", "make-slice"
  bool json = false;
  std::string baseline;  ///< report to compare with; empty: this machine's recorded one, if there is one

  std::string op;                ///< ops: only this one
  std::string shapes = "model";  ///< ops: model, published, all
  std::string tokens = "1,128";  ///< ops: rows of a call
  bool no_reference = false;     ///< ops: do not time the reference

  std::string prompts = "128,512,2048,4096";  ///< model: prompt lengths
  std::string batches = "1,4,16";             ///< model: sequences that decode together
  int64_t decode_context = 512;               ///< model: tokens before decoding
  int64_t samples = 5;                        ///< model: of each figure
  bool long_prompt = false;                   ///< model: a prompt of 65,536 tokens too
  bool samples_only = false;                  ///< model: no floors, no times by op
  std::string text;                           ///< model: file whose text is gone on with, with drafts and without
  bool check = false;                         ///< model: check settings, model and lengths, measure nothing

  std::string a, b;       ///< ab: arms
  std::string arguments;  ///< ab: for both
  int64_t pairs = 7;      ///< ab
  int64_t seed = 1;

  std::string llama_bench;  ///< rival: the program
  std::string gguf;         ///< rival: its weights
  std::string server;       ///< rival: or the URL of a server
  bool onednn = false;      ///< rival: or products alone, those of oneDNN
  std::string products_tokens = "1,16,64,512";
  std::string rival_arguments;  ///< rival: more flags for it

  LadderVerbOptions ladder;  ///< ladder
  MakeSliceOptions slice;    ///< make-slice
};
/// `bench ab` with arms given in place: an arm that begins with a dash, like "--isa avx2", would be taken for a flag. One that is a word of its own with
/// blanks in it becomes --a=… or --b=…, like every other word that is no value of a flag and all words behind `--`; the first one is A.
std::vector<std::string> with_named_arms(std::vector<std::string> arguments);

Result<int> bench_verb(const config::Settings& settings, const BenchOptions& options);

}  // namespace lathe::apps
