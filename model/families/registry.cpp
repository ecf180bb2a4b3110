#include "base/error.h"
#include "model/families/families.h"

namespace pop {
namespace {

const Family* const kFamilies[] = {&kLlama, &kQwen2, &kQwen3};

}  // namespace

const Family& find_family(const GgufFile& file) {
  const std::string architecture = file.get_string("general.architecture");
  std::string known;
  for (const Family* family : kFamilies) {
    if (architecture == family->architecture) return *family;
    known += (known.empty() ? "" : ", ") + std::string(family->architecture);
  }
  fail("{}: key general.architecture: expected one of {}, found \"{}\"", file.path(), known, printable(architecture));
}

}  // namespace pop
