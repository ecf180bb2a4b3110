// One site in either phase: in prefill the policies observe, in decode they select.
#include "model/project.h"

namespace pop {
namespace {

void observe(const Pass& pass, Site site, int layer, const float* x, int width) {
  for_each_sequence(pass, [&](int first, int count) {
    if (PolicyState* policy = pass.rows[size_t(first)].sequence->policy.get())
      policy->observe(site, pass.place(site, layer, first), x + size_t(first) * size_t(width), count, size_t(width),
                      pass.positions[first]);
  });
}

// act(gate) of the rows of prefill, for those who look at them.
void observe_gates(const Pass& pass) {
  for (int r = 0; r < pass.count(); ++r) {
    PolicyState* policy = pass.rows[size_t(r)].sequence->policy.get();
    if (policy == nullptr || !policy->gate_first()) continue;
    const auto f = size_t(pass.model.spec.f);
    policy->observe_gates(pass.ffns[r], activated_gates(pass, f32(pass.scratch.gate_up) + size_t(r) * 2 * f));
  }
}

}  // namespace

void project(const Pass& pass, Site site, int layer, const float* x, int width, TargetsOf targets_of) {
  const std::function<bool()>* interrupted = pass.run.interrupted;
  if (interrupted != nullptr && *interrupted && (*interrupted)()) throw PassInterrupted();
  if (pass.phase == Phase::Decode) {
    const PolicyState* policy = pass.rows[0].sequence->policy.get();  // of one kind in all rows
    if (site == Site::GateUp && policy != nullptr && policy->gate_first())
      return project_gate_first(pass, layer, x, targets_of);
    return project_decode(pass, site, layer, x, width, targets_of);
  }
  observe(pass, site, layer, x, width);
  pass.run.watch.mark(Part::Observe);
  Selection selection;
  if (site == Site::GateUp && pass.rows[0].sequence->policy != nullptr)
    selection = pass.rows[0].sequence->policy->select_prefill(site, pass.ffns[0]);
  project_prefill(pass, targets_of(pass, layer, 0), x, width,
                  selection.kind == Selection::Kind::Rows ? &selection.list : nullptr);
  if (site == Site::GateUp) observe_gates(pass);
}

}  // namespace pop
