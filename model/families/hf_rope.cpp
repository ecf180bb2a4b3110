// Rotary positions of config.json: rope_theta and rope_scaling (transformers 4) or rope_parameters (5).
#include <fmt/format.h>

#include <cmath>
#include <numbers>
#include <optional>

#include "base/error.h"
#include "model/families/family.h"

namespace pop {
namespace {

constexpr int64_t kMostContext = 1 << 30;

// transformers 5 prefers the one beside the kind of positions to the one inside, transformers 4 does not read it.
int original_context(const JsonObject& config, const JsonObject& fields) {
  constexpr const char* kKey = "original_max_position_embeddings";
  const auto inside = fields.find_int(kKey, 1, kMostContext), outside = config.find_int(kKey, 1, kMostContext);
  const int64_t used = inside ? *inside : config.integer("max_position_embeddings", 1, kMostContext);
  if (outside && *outside != used) config.refuse(kKey, fmt::format("{}, the one that positions are scaled by", used));
  return int(used);
}

// Llama 3.1: long waves are stretched by the factor, short ones stay, those between are interpolated.
void read_llama3(const JsonObject& config, const JsonObject& fields, RopeSpec& rope) {
  const auto factor = float(fields.real("factor", 1.0, 1e6));
  const auto low = float(fields.real("low_freq_factor", 1e-3, 1e6)),
             high = float(fields.real("high_freq_factor", 1e-3, 1e6));
  if (!(high > low)) fields.refuse("high_freq_factor", fmt::format("more than low_freq_factor {}", low));
  const auto original = float(original_context(config, fields));
  for (int i = 0; i < rope.dim / 2; ++i) {
    const float frequency = 1.f / std::pow(rope.theta, float(2 * i) / float(rope.dim));
    const float wave = 2 * std::numbers::pi_v<float> / frequency;
    float divisor = 1.f;
    if (wave > original / low) {
      divisor = factor;
    } else if (wave >= original / high) {
      const float smooth = (original / wave - low) / (high - low);
      divisor = 1.f / ((1.f - smooth) / factor + smooth);
    }
    rope.frequency_divisors.push_back(divisor);
  }
}

// What cos and sin are multiplied by; 0: the default of the factor.
float yarn_attention_factor(const JsonObject& fields, float factor) {
  if (const auto said = fields.find_real("attention_factor", 1e-3, 1e3)) return float(*said);
  const double scale = fields.find_real("mscale", 0, 1e3).value_or(0),
               all = fields.find_real("mscale_all_dim", 0, 1e3).value_or(0);
  if (scale == 0 || all == 0 || factor <= 1.f) return 0.f;
  const double log = 0.1 * std::log(double(factor));
  return float((scale * log + 1) / (all * log + 1));
}

void read_yarn(const JsonObject& config, const JsonObject& fields, RopeSpec& rope) {
  rope.scaling = RopeSpec::Scaling::Yarn;
  rope.factor = float(fields.real("factor", 1.0, 1e6));
  rope.original_context = original_context(config, fields);
  rope.beta_fast = float(fields.find_real("beta_fast", 1e-3, 1e6).value_or(32.0));
  rope.beta_slow = float(fields.find_real("beta_slow", 1e-3, 1e6).value_or(1.0));
  rope.attention_factor = yarn_attention_factor(fields, rope.factor);
  if (!fields.flag("truncate", true)) fields.refuse("truncate", "true");
}

// What LongRoPE divides the pairs' frequencies by.
std::vector<float> factors(const JsonObject& fields, const char* key, int dim) {
  const std::vector<double> values = fields.reals(key, 1e-6, 1e6);
  if (values.size() != size_t(dim / 2)) fields.refuse(key, fmt::format("an array of {} numbers", dim / 2));
  return {values.begin(), values.end()};
}

// transformers 4 has the original context outside and takes max_position_embeddings over it for the factor; 5 has it in either place
// and takes the factor that is said.
void read_longrope(const JsonObject& config, const JsonObject& fields, RopeSpec& rope) {
  constexpr const char* kKey = "original_max_position_embeddings";
  const auto inside = fields.find_int(kKey, 2, kMostContext);
  rope.original_context = int(inside ? *inside : config.integer(kKey, 2, kMostContext));
  if (config.find_int(kKey, 2, kMostContext).value_or(rope.original_context) != rope.original_context)
    config.refuse(kKey, fmt::format("{}, the one that positions are scaled by", rope.original_context));
  const double ratio = double(config.integer("max_position_embeddings", 1, kMostContext)) / rope.original_context;
  if (fields.find_real("factor", 0, 1e6).value_or(ratio) != ratio)
    fields.refuse("factor", fmt::format("{}, max_position_embeddings over {}", ratio, kKey));
  rope.scaling = RopeSpec::Scaling::Long;
  rope.factor = float(ratio);
  rope.attention_factor = float(fields.find_real("attention_factor", 1e-3, 1e3).value_or(0));
  rope.frequency_divisors = factors(fields, "short_factor", rope.dim);
  rope.long_divisors = factors(fields, "long_factor", rope.dim);
}

// Of files that have both spellings transformers 5 reads rope_scaling, and 4 knows no other.
JsonObject position_fields(const JsonObject& config) {
  std::optional<JsonObject> five = config.find_object("rope_parameters"), four = config.find_object("rope_scaling");
  if (five && four && five->all() != four->all()) config.refuse("rope_scaling", "what rope_parameters says, or null");
  if (five) return *std::move(five);
  return four ? *std::move(four) : JsonObject::parse("{}", "");
}

// key: where transformers 4 has it.
float read_theta(const JsonObject& config, const JsonObject& fields, const char* key, double fallback) {
  const auto inside = fields.find_real("rope_theta", 1.0, 1e12), outside = config.find_real(key, 1.0, 1e12);
  if (inside && outside && *inside != *outside)
    config.refuse(key, fmt::format("{} as beside the kind of positions", *inside));
  return float(inside ? *inside : outside.value_or(fallback));
}

// "type" is the older name of "rope_type"; of two that differ each version of transformers takes another.
std::string position_kind(const JsonObject& fields, const char*& key) {
  const auto kind = fields.find_string("rope_type"), older = fields.find_string("type");
  if (kind && older && *kind != *older) fields.refuse("type", fmt::format("{} as in rope_type", printable(*kind)));
  if (!kind && !older && fields.find_real("factor", 0, 1e6)) fields.refuse("rope_type", "the kind that factor is of");
  key = !kind && older ? "type" : "rope_type";
  return kind ? *kind : older.value_or("default");
}

// Dimensions of a head that are rotated.
int rotated(const JsonObject& config, const JsonObject& fields, const Family& family, int head_dim) {
  constexpr const char* kKey = "partial_rotary_factor";
  const auto inside = fields.find_real(kKey, 0.0, 1.0), outside = config.find_real(kKey, 0.0, 1.0);
  const double part = inside ? *inside : outside.value_or(1.0);
  const JsonObject& said = inside ? fields : config;
  if (outside && *outside != part) config.refuse(kKey, fmt::format("{} as beside the kind of positions", part));
  if (!family.hf_partial_rotary && part != 1.0) said.refuse(kKey, "1");
  const int dim = int(head_dim * part);
  if (part == 1.0 && dim % 2 != 0) config.refuse("head_dim", "an even number");
  if (dim == 0 || dim % 2 != 0) said.refuse(kKey, fmt::format("what makes an even number of {}", head_dim));
  return dim;
}

// Of one kind of layers; fields: those of its kind of positions.
RopeSpec read_kind(const JsonObject& config, const JsonObject& fields, const Family& family, int head_dim,
                   float theta) {
  RopeSpec rope;
  rope.dim = rotated(config, fields, family, head_dim);
  rope.theta = theta;

  const char* kind_key = nullptr;
  const std::string kind = position_kind(fields, kind_key);
  if (kind == "linear") {
    rope.scaling = RopeSpec::Scaling::Linear;
    rope.factor = float(fields.real("factor", 1.0, 1e6));
  } else if (kind == "dynamic") {
    rope.scaling = RopeSpec::Scaling::Dynamic;
    rope.factor = float(fields.real("factor", 1.0, 1e6));
  } else if (kind == "llama3") {
    read_llama3(config, fields, rope);
  } else if (kind == "yarn") {
    if (fields.has("long_factor")) fields.refuse(kind_key, "longrope, whose long_factor is given");
    read_yarn(config, fields, rope);
  } else if (kind == "longrope" || kind == "su") {
    read_longrope(config, fields, rope);
  } else if (kind != "default") {
    fields.refuse(kind_key, "default, linear, dynamic, llama3, yarn or longrope");
  }
  return rope;
}

// Layers with a window have positions of their own: transformers 5 has an object for either, 4 scales the other layers' alone.
void read_both(const JsonObject& config, const Family& family, ModelSpec& spec) {
  constexpr const char *kFull = "full_attention", *kSliding = "sliding_attention";
  const auto five = config.find_object("rope_parameters"), four = config.find_object("rope_scaling");
  if (five && four) config.refuse("rope_scaling", "null beside rope_parameters");
  const JsonObject nothing = JsonObject::parse("{}", "");
  JsonObject full = four.value_or(nothing), sliding = nothing;
  if (five) {
    for (const auto& item : five->all().items())
      if (item.key() != kFull && item.key() != kSliding)
        five->refuse(item.key(), fmt::format("{} and {} alone", kFull, kSliding));
    full = five->find_object(kFull).value_or(nothing), sliding = five->find_object(kSliding).value_or(nothing);
  }
  spec.rope = read_kind(config, full, family, spec.head_dim, read_theta(config, full, "rope_theta", family.hf_theta));
  const float theta = read_theta(config, sliding, "rope_local_base_freq", family.window_theta);
  spec.window_rope = read_kind(config, sliding, family, spec.head_dim, theta);
}

}  // namespace

void read_rope(const JsonObject& config, const Family& family, ModelSpec& spec) {
  if (family.window_theta != 0) return read_both(config, family, spec);
  const JsonObject fields = position_fields(config);
  for (const auto& [key, value] : fields.all().items())
    if (value.is_object()) fields.refuse(key, "one kind of positions for all layers");
  spec.rope =
      read_kind(config, fields, family, spec.head_dim, read_theta(config, fields, "rope_theta", family.hf_theta));
}

}  // namespace pop
