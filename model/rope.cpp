#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace pop {

float attention_factor(const RopeSpec& spec) {
  const bool yarn = spec.scaling == RopeSpec::Scaling::Yarn;
  if (!yarn && spec.scaling != RopeSpec::Scaling::Long) return 1.f;
  if (spec.attention_factor > 0) return spec.attention_factor;
  if (!(spec.factor > 1.f)) return 1.f;
  return yarn ? 0.1f * std::log(spec.factor) + 1.f
              : float(std::sqrt(1 + std::log(double(spec.factor)) / std::log(double(spec.original_context))));
}

RopeTable::RopeTable(const RopeSpec& spec, int context) {
  const int half = spec.dim / 2;
  inverse_frequency_.resize(size_t(half));
  for (int i = 0; i < half; ++i)
    inverse_frequency_[size_t(i)] = 1.f / std::pow(spec.theta, float(2 * i) / float(spec.dim));
  if (spec.scaling == RopeSpec::Scaling::Linear)
    for (float& f : inverse_frequency_) f /= spec.factor;
  if (spec.scaling == RopeSpec::Scaling::Yarn) {
    // YaRN (arXiv 2309.00071, section 3.2): dimensions that turn often keep their frequency, those that turn less than
    // beta_slow times over the original context are interpolated, a linear ramp lies between.
    const double log_theta = std::log(double(spec.theta));
    const auto dimension_of = [&](double rotations) {
      return spec.dim * std::log(spec.original_context / (rotations * 2 * std::numbers::pi)) / (2 * log_theta);
    };
    const double low = std::max(std::floor(dimension_of(spec.beta_fast)), 0.0);
    double high = std::min(std::ceil(dimension_of(spec.beta_slow)), double(spec.dim - 1));
    if (high == low) high += 0.001;
    for (int i = 0; i < half; ++i) {
      const float ramp = std::clamp(float((i - low) / (high - low)), 0.f, 1.f);
      float& f = inverse_frequency_[size_t(i)];
      f = f / spec.factor * ramp + f * (1.f - ramp);
    }
  }
  attention_factor_ = attention_factor(spec);
  const bool lengthened = spec.scaling == RopeSpec::Scaling::Long && context > spec.original_context;
  const std::vector<float>& divisors = lengthened ? spec.long_divisors : spec.frequency_divisors;
  for (size_t i = 0; i < divisors.size(); ++i) inverse_frequency_[i] /= divisors[i];
}

void RopeTable::angles(int position, float* cos_sin) const {
  for (size_t i = 0; i < inverse_frequency_.size(); ++i) {
    const float angle = float(position) * inverse_frequency_[i];
    cos_sin[2 * i] = std::cos(angle) * attention_factor_;
    cos_sin[2 * i + 1] = std::sin(angle) * attention_factor_;
  }
}

}  // namespace pop
