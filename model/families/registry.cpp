#include "base/error.h"
#include "model/families/families.h"

namespace pop {
namespace {

const Family* const kFamilies[] = {&kGemma2, &kGemma3, &kLlama,    &kMistral, &kMixtral,
                                   &kPhi3,   &kQwen2,  &kQwen2Moe, &kQwen3,   &kQwen3Moe};

}  // namespace

const Family& find_family(const GgufFile& file) {
  const std::string architecture = file.get_string("general.architecture");
  std::string known;
  for (const Family* family : kFamilies) {
    if (!family->in_gguf) continue;
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

}  // namespace pop
