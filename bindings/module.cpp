// The extension popcpp._core: pop.cpp's public interface (engine/pop.h) for Python.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "base/error.h"
#include "bindings/work.h"
#include "prune/registry.h"

namespace pop::python {
namespace {

std::vector<std::string> option_names(const MethodInfo& method) {
  std::vector<std::string> names(method.options.begin(), method.options.end());
  for (std::string& name : names)
    for (char& c : name)
      if (c == '-') c = '_';
  return names;
}

void bind_registry(nb::module_& m) {
  nb::class_<MethodInfo>(m, "MethodInfo", "A pruning method.")
      .def_ro("name", &MethodInfo::name)
      .def_ro("summary", &MethodInfo::summary)
      .def_ro("source", &MethodInfo::source, "A paper, or \"ours\".")
      .def_ro("needs", &MethodInfo::needs, "nothing, prompt, calibration text")
      .def_ro("selects", &MethodInfo::selects, "nothing, rows, columns")
      .def_ro("count", &MethodInfo::count, "exact (in every layer), total (over all layers), threshold")
      .def_ro("experts", &MethodInfo::experts, "Whether it runs on mixtures of experts.")
      .def_prop_ro("options", &option_names, "Keyword arguments of Engine.session that apply to it.");
  m.def(
      "methods", [] { return std::vector<MethodInfo>(methods().begin(), methods().end()); },
      "The pruning methods there are.");
}

}  // namespace
}  // namespace pop::python

NB_MODULE(_core, m) {
  namespace nb = nanobind;
  m.doc() = "pop.cpp: large language models on a CPU, pruned while they run.";
  nb::exception<pop::Error>(m, "Error", PyExc_RuntimeError).doc() =
      "What the engine refuses: one line that names the file or option, what was expected and what was found.";
  pop::python::bind_registry(m);
  pop::python::bind_results(m);
  pop::python::bind_session(m);
  pop::python::bind_engine(m);
  nb::class_<pop::BuildInfo>(m, "BuildInfo", "How the library was built.")
      .def_ro("version", &pop::BuildInfo::version)
      .def_ro("commit", &pop::BuildInfo::commit)
      .def_ro("compiler", &pop::BuildInfo::compiler)
      .def_ro("build_type", &pop::BuildInfo::build_type);
  m.def("build_info", &pop::build_info);
  m.def("built_isas", &pop::built_isa_names, "Instruction sets that were built in.");
  m.def("available_isas", &pop::available_isa_names, "Instruction sets that this machine runs.");
}
