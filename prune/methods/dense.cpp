// dense: nothing is skipped, nothing is asked. The base every other method is compared with.
#include "prune/methods/methods.h"

namespace pop {
namespace {

class DenseState final : public PolicyState {
 public:
  void observe(Site, int, const float*, int, size_t, int) override {}
  void partition() override {}
  Selection select(Site, int, std::span<const float>, int) override { return {}; }
  std::unique_ptr<PolicyState> clone() const override { return std::make_unique<DenseState>(*this); }
};

class DensePolicy final : public Policy {
 public:
  DensePolicy() { plan_.method = "dense"; }
  const PrunePlan& plan() const override { return plan_; }
  bool prunes() const override { return false; }
  std::unique_ptr<PolicyState> begin() const override { return std::make_unique<DenseState>(); }

 private:
  PrunePlan plan_;
};

}  // namespace

std::unique_ptr<Policy> create_dense(const PruneOptions&, const PolicyContext&) {
  return std::make_unique<DensePolicy>();
}

}  // namespace pop
