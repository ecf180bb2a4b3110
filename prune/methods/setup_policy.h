// The Policy of a method whose states look at one setup: plain data with a PrunePlan `plan`, made once.
#pragma once
#include <memory>
#include <utility>

#include "prune/policy.h"

namespace pop {

// State: constructible from const Setup&, which it may point to.
template <class State, class Setup>
class SetupPolicy : public Policy {
 public:
  explicit SetupPolicy(Setup setup) : setup_(std::move(setup)) {}
  const PrunePlan& plan() const final { return setup_.plan; }
  std::unique_ptr<PolicyState> begin() const final { return std::make_unique<State>(setup_); }

 protected:
  Setup setup_;
};

}  // namespace pop
