#include "base/error.h"
#include "model/families/families.h"

namespace pop {
namespace {

const Family* const kFamilies[] = {&kGemma2, &kGemma3, &kLlama,    &kMistral, &kMixtral, &kOlmoe,
                                   &kPhi3,   &kQwen2,  &kQwen2Moe, &kQwen3,   &kQwen3Moe};

}  // namespace

const Family& find_family(const GgufFile& file) {
  const std::string architecture = file.get_string("general.architecture");
  std::string known;
  for (const Family* family : kFamilies) {
    if (family->gguf_as != nullptr) continue;
    if (architecture == family->architecture) return *family;
    known += (known.empty() ? "" : ", ") + std::string(family->architecture);
  }
  fail("{}: key general.architecture: expected one of {}, found \"{}\"", file.path(), known, printable(architecture));
}

const Family& find_family(const JsonObject& config) {
  const auto classes = config.find_strings("architectures");
  std::string known;
  for (const Family* family : kFamilies) {
    if (family->hf_class == nullptr) continue;
    if (classes && classes->size() == 1 && (*classes)[0] == family->hf_class) {
      const char* const expected = family->hf_type != nullptr ? family->hf_type : family->architecture;
      if (const auto type = config.find_string("model_type"); type && *type != expected)
        config.refuse("model_type", fmt::format("{}, that of {}", expected, family->hf_class));
      return *family;
    }
    known += (known.empty() ? "" : ", ") + std::string(family->hf_class);
  }
  config.refuse("architectures", fmt::format("one of {} in an array", known));
}

const Family& gguf_family(const ModelSpec& spec, const std::string& name) {
  std::string architecture = spec.architecture;
  for (const Family* family : kFamilies)
    if (architecture == family->architecture && family->gguf_as != nullptr) architecture = family->gguf_as;
  for (const Family* family : kFamilies)
    if (architecture == family->architecture && family->gguf_as == nullptr) return *family;
  fail("{}: expected a family that GGUF files know, found {}", name, printable(spec.architecture));
}

// Of the families that GGUF files call the same, the first that has experts and can have windows as this model has.
const Family& hf_family(const ModelSpec& spec, const std::string& name) {
  for (const Family* family : kFamilies) {
    const std::string gguf = family->gguf_as != nullptr ? family->gguf_as : family->architecture;
    const bool experts = family->hf_experts.width != nullptr;
    if (family->hf_class == nullptr || gguf != spec.architecture || experts != (spec.moe.experts > 0)) continue;
    const bool can = family->window == WindowRule::All || family->window == WindowRule::Pattern;
    if (!spec.windows.empty() && !can) continue;
    return *family;
  }
  fail("{}: expected a model whose folder can be written, found {}{}{}", name, spec.architecture,
       spec.moe.experts > 0 ? " with experts" : "", spec.windows.empty() ? "" : " with a sliding window");
}

}  // namespace pop
