#pragma once
// Every place where the forward pass calls an op. One site per call, so that each is planned, counted and observed on its own.

#include <cstdint>

#include "backend/dispatch.h"

namespace lathe::models {

inline backend::OpSite op_site(const char* name) {
  backend::OpSite site;
  site.name = name;
  return site;
}

/// Before and after an INT8 product whose channels a cut splits.
struct CutSites {
  backend::OpSite amax, scale;
};

struct MhcSites {
  backend::OpSite in, out;
};

struct KdaSites {
  backend::OpSite projections = op_site("kda.projections");
  backend::OpSite decay_up = op_site("kda.decay_up");
  backend::OpSite gate_up = op_site("kda.gate_up");
  backend::OpSite conv = op_site("kda.conv");
  backend::OpSite gate = op_site("kda.gate");
  backend::OpSite pair = op_site("kda.pair");
  backend::OpSite recurrence = op_site("kda.recurrence");
  backend::OpSite flush = op_site("kda.flush");
  backend::OpSite verify = op_site("kda.verify");
  backend::OpSite rebuild = op_site("kda.rebuild");  ///< of a state for a prefix snapshot, between steps
  backend::OpSite norm = op_site("kda.norm");
  backend::OpSite output = op_site("kda.output");
  CutSites output_cut{op_site("kda.output_amax"), op_site("kda.output_scale")};
};

struct DsaSites {
  backend::OpSite projections = op_site("dsa.projections");
  backend::OpSite index_weights = op_site("dsa.index_weights");
  backend::OpSite q_norm = op_site("dsa.q_norm");
  backend::OpSite latent_norm = op_site("dsa.latent_norm");
  backend::OpSite q_projections = op_site("dsa.q_projections");
  backend::OpSite latents = op_site("dsa.latents");
  backend::OpSite index_keys = op_site("dsa.index_keys");
  backend::OpSite select = op_site("dsa.select");
  backend::OpSite absorb = op_site("dsa.absorb");
  backend::OpSite attend = op_site("dsa.attend");
  backend::OpSite unabsorb = op_site("dsa.unabsorb");
  backend::OpSite expanded = op_site("dsa.expanded");
  backend::OpSite output = op_site("dsa.output");
  CutSites output_cut{op_site("dsa.output_amax"), op_site("dsa.output_scale")};
};

struct FfnSites {
  backend::OpSite gate_up = op_site("ffn.gate_up");
  backend::OpSite down = op_site("ffn.down");
  CutSites down_cut{op_site("ffn.down_amax"), op_site("ffn.down_scale")};
  backend::OpSite router = op_site("moe.router");
  backend::OpSite route = op_site("moe.route");
  backend::OpSite experts = op_site("moe.experts");
  backend::OpSite shared_gate_up = op_site("moe.shared_gate_up");
  backend::OpSite shared_down = op_site("moe.shared_down");
  CutSites shared_down_cut{op_site("moe.shared_down_amax"), op_site("moe.shared_down_scale")};
  backend::OpSite add = op_site("moe.add");
};

struct LayerSites {
  explicit LayerSites(int32_t layer) {
    for (backend::OpSite* site :
         {&attn_mhc.in,     &attn_mhc.out,       &ffn_mhc.in,      &ffn_mhc.out,    &input_norm,      &post_norm,         &kda.projections,
          &kda.decay_up,    &kda.gate_up,        &kda.conv,        &kda.gate,       &kda.pair,        &kda.recurrence,    &kda.flush,
          &kda.verify,      &kda.rebuild,        &kda.norm,        &kda.output,     &dsa.projections, &dsa.index_weights, &dsa.q_norm,
          &dsa.latent_norm, &dsa.q_projections,  &dsa.latents,     &dsa.index_keys, &dsa.select,      &dsa.absorb,        &dsa.attend,
          &dsa.unabsorb,    &dsa.expanded,       &dsa.output,      &ffn.gate_up,    &ffn.down,        &ffn.router,        &ffn.route,
          &ffn.experts,     &ffn.shared_gate_up, &ffn.shared_down, &ffn.add}) {
      site->layer = layer;
    }
    for (CutSites* sites : {&kda.output_cut, &dsa.output_cut, &ffn.down_cut, &ffn.shared_down_cut}) sites->amax.layer = sites->scale.layer = layer;
  }
  /// Tells the sites which heads of the model this rank works on; `of_index`: of the indexer, never cut.
  void set_heads(backend::OpRange of_kda, backend::OpRange of_mla, backend::OpRange of_index) {
    for (backend::OpSite* site : {&kda.projections, &kda.decay_up, &kda.gate_up, &kda.conv, &kda.gate, &kda.pair, &kda.recurrence, &kda.flush,
                                  &kda.verify, &kda.rebuild, &kda.norm, &kda.output, &kda.output_cut.amax, &kda.output_cut.scale}) {
      site->heads = of_kda;
    }
    for (backend::OpSite* site :
         {&dsa.q_projections, &dsa.absorb, &dsa.attend, &dsa.unabsorb, &dsa.expanded, &dsa.output, &dsa.output_cut.amax, &dsa.output_cut.scale}) {
      site->heads = of_mla;
    }
    for (backend::OpSite* site : {&dsa.index_weights, &dsa.select}) site->heads = of_index;
  }
  MhcSites attn_mhc{op_site("mhc.attn_in"), op_site("mhc.attn_out")};
  MhcSites ffn_mhc{op_site("mhc.ffn_in"), op_site("mhc.ffn_out")};
  backend::OpSite input_norm = op_site("norm.input");
  backend::OpSite post_norm = op_site("norm.post_attention");
  KdaSites kda;
  DsaSites dsa;
  FfnSites ffn;
};

/// Outside the layers.
struct TextSites {
  backend::OpSite embed = op_site("embed");
  backend::OpSite embed_rows = op_site("embed.rows");
  backend::OpSite mean = op_site("final.mean");
  backend::OpSite norm = op_site("final.norm");
  backend::OpSite gather = op_site("head.gather");
  backend::OpSite head = op_site("head.logits");
};

struct DraftSites {
  explicit DraftSites(int32_t layer) : block(layer), step_block(layer) {
    for (backend::OpSite* site : {&embed, &embed_rows, &embed_norm, &hidden_gather, &hidden_norm, &join, &add_mixer, &add_ffn, &step_add_mixer,
                                  &step_add_ffn, &norm, &gather, &head}) {
      site->layer = layer;
    }
  }
  backend::OpSite embed = op_site("draft.embed");
  backend::OpSite embed_rows = op_site("draft.embed_rows");
  backend::OpSite embed_norm = op_site("draft.embed_norm");
  backend::OpSite hidden_gather = op_site("draft.hidden_gather");
  backend::OpSite hidden_norm = op_site("draft.hidden_norm");
  backend::OpSite join = op_site("draft.join");
  backend::OpSite add_mixer = op_site("draft.add_mixer");
  backend::OpSite add_ffn = op_site("draft.add_ffn");
  backend::OpSite step_add_mixer = op_site("draft.step_add_mixer");
  backend::OpSite step_add_ffn = op_site("draft.step_add_ffn");
  backend::OpSite norm = op_site("draft.norm");
  backend::OpSite gather = op_site("draft.gather");
  backend::OpSite head = op_site("draft.logits");
  LayerSites block;
  LayerSites step_block;  ///< later steps of a round: no indexer
};

}  // namespace lathe::models
