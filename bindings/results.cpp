// What the engine answers, as plain objects with read-only attributes.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/work.h"

namespace pop::python {
namespace {

void bind_model_info(nb::module_& m) {
  nb::class_<ByteShare>(m, "ByteShare", "Bytes of the weights that a dense token reads in one part of the model.")
      .def_ro("part", &ByteShare::part)
      .def_ro("bytes", &ByteShare::bytes);
  nb::class_<FfnInfo>(m, "FfnInfo", "The FFNs of one kind that a model has: dense, routed, shared.")
      .def_ro("kind", &FfnInfo::kind)
      .def_ro("count", &FfnInfo::count, "In all layers.")
      .def_ro("per_token", &FfnInfo::per_token, "Those that a token goes through.")
      .def_ro("f", &FfnInfo::f, "Channels of each.")
      .def_ro("weights", &FfnInfo::weights)
      .def_ro("weight_bytes", &FfnInfo::weight_bytes, "In memory, as laid out.")
      .def_ro("weight_bytes_per_token", &FfnInfo::weight_bytes_per_token, "Those that a dense token reads.");
  nb::class_<ModelInfo>(m, "ModelInfo", "What a model file says, and how it was loaded.")
      .def_ro("path", &ModelInfo::path)
      .def_ro("architecture", &ModelInfo::architecture)
      .def_ro("name", &ModelInfo::name)
      .def_ro("file_type", &ModelInfo::file_type)
      .def_ro("file_bytes", &ModelInfo::file_bytes)
      .def_ro("parameters", &ModelInfo::parameters)
      .def_ro("experts", &ModelInfo::experts, "Of a mixture of experts; 0: there are none.")
      .def_ro("experts_used", &ModelInfo::experts_used)
      .def_ro("expert_f", &ModelInfo::expert_f)
      .def_ro("shared_f", &ModelInfo::shared_f)
      .def_ro("layers", &ModelInfo::layers)
      .def_ro("d", &ModelInfo::d, "Width of the model.")
      .def_ro("f", &ModelInfo::f, "Channels of an FFN.")
      .def_ro("heads", &ModelInfo::heads)
      .def_ro("kv_heads", &ModelInfo::kv_heads)
      .def_ro("head_dim", &ModelInfo::head_dim)
      .def_ro("vocab", &ModelInfo::vocab)
      .def_ro("context_trained", &ModelInfo::context_trained)
      .def_ro("context", &ModelInfo::context, "Tokens that a prompt and its answer may have.")
      .def_ro("tied_head", &ModelInfo::tied_head)
      .def_ro("rope_scaling", &ModelInfo::rope_scaling)
      .def_ro("tokenizer_model", &ModelInfo::tokenizer_model)
      .def_ro("tokenizer_pre", &ModelInfo::tokenizer_pre)
      .def_ro("chat_template", &ModelInfo::chat_template, "Its Jinja source; \"\": there is none.")
      .def_ro("tensor_types", &ModelInfo::tensor_types, "(type, number of tensors)")
      .def_ro("bytes_per_token", &ModelInfo::bytes_per_token, "Weights that a dense token reads.")
      .def_ro("ffns", &ModelInfo::ffns, "The kinds of FFNs that there are.")
      .def_ro("weight_bytes", &ModelInfo::weight_bytes, "In memory, as laid out.")
      .def_ro("kv_bytes_per_token", &ModelInfo::kv_bytes_per_token)
      .def_ro("model_sha256", &ModelInfo::model_sha256)
      .def_ro("isa", &ModelInfo::isa)
      .def_ro("activations_decode", &ModelInfo::activations_decode)
      .def_ro("activations_prefill", &ModelInfo::activations_prefill)
      .def_ro("kv", &ModelInfo::kv)
      .def_ro("layout", &ModelInfo::layout)
      .def_ro("bos", &ModelInfo::bos)
      .def_ro("threads", &ModelInfo::threads)
      .def_ro("load_as", &ModelInfo::load_as, "The type that was asked for, or \"\".")
      .def_ro("from_cache", &ModelInfo::from_cache)
      .def_ro("load_s", &ModelInfo::load_s)
      .def_ro("warnings", &ModelInfo::warnings, "What a user should know, a line each.")
      .def_ro("metadata", &ModelInfo::metadata, "(key, value as text) of the file");
}

void bind_plans(nb::module_& m) {
  nb::class_<RealisedRatio>(m, "RealisedRatio", "What was left out, as a share of what ratio_of names.")
      .def_ro("blocks", &RealisedRatio::blocks, "Of the weights of all blocks, experts that no token met included.")
      .def_ro("active", &RealisedRatio::active, "Of those that a token goes through.")
      .def_ro("total", &RealisedRatio::total, "Of the model's.");
  nb::class_<PrunePlanInfo>(m, "Plan", "What the pruning options of a session came to.")
      .def_ro("method", &PrunePlanInfo::method)
      .def_ro("ratio", &PrunePlanInfo::ratio)
      .def_ro("ratio_of", &PrunePlanInfo::ratio_of)
      .def_ro("ffn_sparsity", &PrunePlanInfo::ffn_sparsity)
      .def_ro("gamma", &PrunePlanInfo::gamma)
      .def_ro("level", &PrunePlanInfo::level, "Of pop+: share skipped on the prompt's own scores.")
      .def_ro("metric", &PrunePlanInfo::metric)
      .def_ro("decode_metric", &PrunePlanInfo::decode_metric)
      .def_ro("norm", &PrunePlanInfo::norm)
      .def_ro("prefill", &PrunePlanInfo::prefill)
      .def_ro("plus_rule", &PrunePlanInfo::plus_rule)
      .def_ro("min_tokens", &PrunePlanInfo::min_tokens)
      .def_ro("few_tokens", &PrunePlanInfo::few_tokens)
      .def_ro("refresh", &PrunePlanInfo::refresh)
      .def_ro("refresh_last", &PrunePlanInfo::refresh_last)
      .def_ro("repaired", &PrunePlanInfo::repaired)
      .def_ro("calibration", &PrunePlanInfo::calibration)
      .def_ro("dense_bytes", &PrunePlanInfo::dense_bytes, "Weights that a token of the dense model reads.")
      .def_ro("planned_bytes", &PrunePlanInfo::planned_bytes, "Weights that a token is planned to read.")
      .def_ro("planned_bytes_without_candidates", &PrunePlanInfo::planned_bytes_without_candidates);
  nb::class_<Engine::Planned>(m, "Planned", "What a method would read per token, from the shapes alone.")
      .def_ro("ffn_sparsity", &Engine::Planned::ffn_sparsity)
      .def_ro("level", &Engine::Planned::level)
      .def_ro("weight_bytes_per_token", &Engine::Planned::weight_bytes_per_token)
      .def_ro("weights_read_share", &Engine::Planned::weights_read_share)
      .def_ro("selected_share", &Engine::Planned::selected_share)
      .def_ro("realised", &Engine::Planned::realised, "What the ratio comes to by each of its definitions.");
}

}  // namespace

void bind_results(nb::module_& m) {
  bind_model_info(m);
  bind_plans(m);
  nb::class_<FfnReads>(m, "FfnReads", "What a decoded token did with the FFNs of one kind: dense, routed, shared.")
      .def_ro("kind", &FfnReads::kind)
      .def_ro("per_token", &FfnReads::per_token, "How many it goes through, all layers together.")
      .def_ro("weight_bytes_per_token", &FfnReads::weight_bytes_per_token)
      .def_ro("left_out", &FfnReads::left_out, "Share of their weights; a candidate that was not chosen is left out.");
  nb::class_<ReadStats>(m, "ReadStats",
                        "Weights that decode read, counted from the lists given to the kernels; means over tokens.")
      .def_ro("tokens", &ReadStats::tokens)
      .def_ro("weight_bytes_per_token", &ReadStats::weight_bytes_per_token)
      .def_ro("weights_read_share", &ReadStats::weights_read_share, "Of the dense model's bytes, head included.")
      .def_ro("block_weights_read_share", &ReadStats::block_weights_read_share, "The same without the head.")
      .def_ro("selected_share", &ReadStats::selected_share, "Block weights used, by element.")
      .def_ro("realised", &ReadStats::realised, "What was left out, by each definition of the ratio.")
      .def_ro("ffns", &ReadStats::ffns, "The same by kind of FFN.")
      .def_ro("selections", &ReadStats::selections);
  nb::class_<Timing>(m, "Timing", "Seconds and tokens of each phase.")
      .def_ro("prefill_s", &Timing::prefill_s)
      .def_ro("partition_s", &Timing::partition_s)
      .def_ro("decode_s", &Timing::decode_s)
      .def_ro("pack_s", &Timing::pack_s, "Share of partition_s.")
      .def_ro("select_s", &Timing::select_s, "Share of decode_s.")
      .def_ro("refresh_s", &Timing::refresh_s, "Share of decode_s.")
      .def_ro("refreshed_tokens", &Timing::refreshed_tokens, "Read again by all weights; not counted in reads.")
      .def_ro("prefill_tokens", &Timing::prefill_tokens)
      .def_ro("decode_tokens", &Timing::decode_tokens);
  nb::class_<SessionMemory>(m, "SessionMemory", "Bytes that a conversation holds beside the weights.")
      .def_ro("kv", &SessionMemory::kv)
      .def_ro("packed", &SessionMemory::packed);
  nb::class_<TopToken>(m, "TopToken", "One of the most likely next tokens.")
      .def_ro("id", &TopToken::id)
      .def_ro("logit", &TopToken::logit);
  nb::class_<PartitionSummary>(m, "PartitionSummary",
                               "How many channels of an FFN the prompt retained, left open, pruned.")
      .def_ro("layer", &PartitionSummary::layer)
      .def_ro("expert", &PartitionSummary::expert)
      .def_ro("retained", &PartitionSummary::retained)
      .def_ro("candidate", &PartitionSummary::candidate)
      .def_ro("pruned", &PartitionSummary::pruned)
      .def_ro("retained_first", &PartitionSummary::retained_first, "Up to 10 of the retained channels, ascending.");
  nb::class_<BatchAnswer>(m, "BatchAnswer", "One answer of several that were written together.")
      .def_ro("ids", &BatchAnswer::ids)
      .def_ro("reads", &BatchAnswer::reads);
  nb::class_<BatchResult>(m, "BatchResult", "Answers to several prompts, one token of each per pass.")
      .def_ro("answers", &BatchResult::answers)
      .def_ro("timing", &BatchResult::timing, "Of all: tokens of every sequence counted.")
      .def_ro("forward_bytes", &BatchResult::forward_bytes, "Weights read by a pass, mean; 0: not counted.");
}

}  // namespace pop::python
