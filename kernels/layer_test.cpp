// Everything but the weight products and attention, of every table: against float64 written here, with tolerances from the number of
// float32 operations (2^-24 each, relative to the terms), and the rule that a cut of the work changes no bit.
#include <algorithm>

#include "kernels/test_matrix.h"

namespace pop::kernel_test {
namespace {

constexpr double kEps = 0x1p-24;
constexpr double kExp = 3e-7;  // relative error of a table's exponential, with room

class Layer : public IsaTest {};

TEST_P(Layer, RmsNorm) {
  for (const int n : {1, 7, 16, 33, 576, 4100}) {
    const std::vector<float> x = random_vector(n, 1, 3.f), weight = random_vector(n, 2);
    std::vector<float> out(x.size());
    table().rms_norm(x.data(), weight.data(), n, 1e-5f, out.data());
    double squares = 0;
    for (const float v : x) squares += double(v) * double(v);
    for (size_t i = 0; i < x.size(); ++i) {
      const double want = double(x[i]) / std::sqrt(squares / n + 1e-5) * double(weight[i]);
      ASSERT_NEAR(out[i], want, (n + 8) * kEps * std::fabs(want)) << n << " " << i;
    }
  }
}

TEST_P(Layer, ReadLinesReadsEveryLineOnce) {
  constexpr size_t kLines = 203;
  alignas(64) uint64_t words[kLines * 8];
  uint64_t want = 0;
  for (size_t i = 0; i < std::size(words); ++i) want += words[i] = (i + 1) * 0x9e3779b97f4a7c15ull;
  for (const int streams : {1, 2, 4, 8})
    for (const int ahead : {0, 4096})
      EXPECT_EQ(table().read_lines(reinterpret_cast<const uint8_t*>(words), kLines, streams, ahead), want) << streams;
}

TEST_P(Layer, MultiplyAddsCountsItsWork) {
  for (const ActType type : {ActType::F32, ActType::BF16, ActType::I16, ActType::I8}) {
    const double one = table().multiply_adds(type, 10);
    EXPECT_GE(one, 80);
    EXPECT_EQ(table().multiply_adds(type, 30), 3 * one);
  }
}

TEST_P(Layer, Add) {
  for (const int n : {1, 15, 16, 577}) {
    const std::vector<float> x = random_vector(n, 1);
    std::vector<float> y = random_vector(n, 2), want = y;
    for (size_t i = 0; i < y.size(); ++i) want[i] += x[i];
    table().add(x.data(), n, y.data());
    ASSERT_TRUE(same_bits(y, want));
  }
}

using GateMul = void (*)(const float*, IndexList, int, int, float*);

// Gates from small to absurd against want(gate), a double, and its tolerance; then cut, and through lists.
template <class Want>
void check_gate_mul(GateMul gate_mul, Want&& want_of) {
  constexpr int kF = 301;
  std::vector<float> gate_up = random_vector(2 * kF, 3, 4.f);
  gate_up[0] = 80.f, gate_up[2] = -80.f, gate_up[4] = 0.f, gate_up[6] = 500.f, gate_up[8] = -500.f, gate_up[10] = 1e-6f;
  std::vector<float> whole(kF, -77.f);
  gate_mul(gate_up.data(), {nullptr, kF}, 0, kF, whole.data());
  for (size_t i = 0; i < kF; ++i) {
    const double gate = gate_up[2 * i], up = gate_up[2 * i + 1];
    const auto [want, tolerance] = want_of(gate);
    ASSERT_NEAR(whole[i], want * up, tolerance * std::fabs(up) + 1e-33) << gate << " " << up;
  }
  std::vector<float> cut(kF, -77.f);
  for (int i = 0; i < kF; i += 7) gate_mul(gate_up.data(), {nullptr, kF}, i, std::min(kF, i + 7), cut.data());
  EXPECT_TRUE(same_bits(cut, whole));
  for (const double keep : {0.0, 0.5, 0.98, 1.0}) {
    const std::vector<int32_t> list = random_list(kF, keep, 4);
    std::vector<float> h(kF, -77.f), want(kF, -77.f);
    for (const int32_t i : list) want[size_t(i)] = whole[size_t(i)];
    gate_mul(gate_up.data(), {list.data(), int(list.size())}, 0, int(list.size()), h.data());
    EXPECT_TRUE(same_bits(h, want)) << keep;
  }
}

TEST_P(Layer, SiluMul) {
  check_gate_mul(table().silu_mul, [](double gate) {
    const double want = gate / (1 + std::exp(-gate));
    return std::pair(want, (kExp + 4 * kEps) * std::fabs(want));
  });
}

// The definition with tanh, whose sum cancels where the gate is far below 0; the argument is rounded before the exponential.
TEST_P(Layer, GeluMul) {
  check_gate_mul(table().gelu_mul, [](double gate) {
    const double u = std::sqrt(2 / M_PI) * (gate + 0.044715 * gate * gate * gate);
    const double want = gate / 2 * (1 + std::tanh(u));
    return std::pair(want, (kExp + (4 + 8 * std::fabs(u)) * kEps) * std::fabs(want) + 4e-16 * std::fabs(gate));
  });
}

TEST_P(Layer, SoftCap) {
  constexpr double kTanh = 7e-7;
  for (const int n : {1, 7, 16, 33, 600})
    for (const float cap : {0.5f, 30.f}) {
      std::vector<float> x = random_vector(n, 5, 20.f), whole = x, cut = x;
      x[0] = whole[0] = cut[0] = 1e-5f;
      if (n > 6) x[5] = whole[5] = cut[5] = -1e30f, x[6] = whole[6] = cut[6] = INFINITY;
      table().soft_cap(whole.data(), n, cap);
      for (size_t i = 0; i < x.size(); ++i) {
        const double want = double(cap) * std::tanh(double(x[i]) / double(cap));
        ASSERT_NEAR(whole[i], want, kTanh * std::fabs(want)) << x[i] << " " << cap;
      }
      for (int i = 0; i < n; i += 5) table().soft_cap(cut.data() + i, std::min(5, n - i), cap);
      EXPECT_TRUE(same_bits(cut, whole)) << n;
    }
  float nan = NAN;
  table().soft_cap(&nan, 1, 30.f);
  EXPECT_TRUE(std::isnan(nan));
}

TEST_P(Layer, Rope) {
  for (const int dim : {2, 16, 48, 64, 128})
    for (const bool interleaved : {false, true}) {
      const std::vector<float> head = random_vector(dim, 5);
      std::vector<float> cos_sin(head.size()), out = head;
      for (int i = 0; i < dim / 2; ++i) {
        cos_sin[size_t(2 * i)] = std::cos(float(i) + 0.5f);
        cos_sin[size_t(2 * i + 1)] = std::sin(float(i) + 0.5f);
      }
      table().rope(out.data(), dim, interleaved, cos_sin.data());
      for (int i = 0; i < dim / 2; ++i) {
        const size_t a = size_t(interleaved ? 2 * i : i), b = size_t(interleaved ? 2 * i + 1 : i + dim / 2);
        const double cos = cos_sin[size_t(2 * i)], sin = cos_sin[size_t(2 * i + 1)],
                     size = std::fabs(head[a]) + std::fabs(head[b]);
        ASSERT_NEAR(out[a], head[a] * cos - head[b] * sin, 4 * kEps * size) << dim << " " << i;
        ASSERT_NEAR(out[b], head[a] * sin + head[b] * cos, 4 * kEps * size) << dim << " " << i;
      }
    }
}

TEST_P(Layer, Argmax) {
  for (const int n : {1, 5, 16, 100, 1000}) {
    const std::vector<float> x = random_vector(n, 10);
    ASSERT_EQ(table().argmax(x.data(), n), int(std::max_element(x.begin(), x.end()) - x.begin()));
    for (int at = 0; at < n; at += 3) {
      std::vector<float> ties(size_t(n), -2.f);
      ties[size_t(at)] = ties[size_t(n - 1)] = -1.f;
      ASSERT_EQ(table().argmax(ties.data(), n), at);
      ties[0] = NAN;
      ASSERT_EQ(table().argmax(ties.data(), n), at > 0 || n == 1 ? at : n - 1);
    }
  }
  const std::vector<float> nothing(20, NAN), low(20, -INFINITY);
  EXPECT_EQ(table().argmax(nothing.data(), 20), 0);
  EXPECT_EQ(table().argmax(low.data(), 20), 0);
}

TEST_P(Layer, LogSumExp) {
  for (const int n : {1, 5, 31, 1000, 49152}) {
    const std::vector<float> x = random_vector(n, 11, 20.f);
    const double top = *std::max_element(x.begin(), x.end());
    double sum = 0;
    for (const float v : x) sum += std::exp(double(v) - top);
    EXPECT_NEAR(table().log_sum_exp(x.data(), n), top + std::log(sum), 2 * kExp) << n;
  }
  const std::vector<float> huge(17, 1e30f);
  EXPECT_NEAR(table().log_sum_exp(huge.data(), 17) / double(1e30f), 1.0, 1e-9);
}

TEST_P(Layer, AllFinite) {
  for (const int n : {1, 16, 37}) {
    std::vector<float> x = random_vector(n, 12);
    x[0] = 3.4028235e38f;
    EXPECT_TRUE(table().all_finite(x.data(), n));
    for (const float bad : {NAN, INFINITY, -INFINITY})
      for (int at = 0; at < n; ++at) {
        std::vector<float> y = x;
        y[size_t(at)] = bad;
        ASSERT_FALSE(table().all_finite(y.data(), n)) << at;
      }
  }
}

TEST_P(Layer, AddSquares) {
  constexpr int kN = 5, kWidth = 37;
  constexpr size_t kStride = 40;
  const std::vector<float> x = random_vector(kN * int(kStride), 13);
  std::vector<double> sums(kWidth, 0.25), want = sums, pieces = sums;
  for (size_t t = 0; t < kN; ++t)
    for (size_t i = 0; i < kWidth; ++i) want[i] += double(x[t * kStride + i]) * double(x[t * kStride + i]);
  table().add_squares(x.data(), kN, kStride, kWidth, sums.data());
  EXPECT_EQ(sums, want);  // squares of floats are exact in float64, so the order given is the only rounding
  for (size_t t = 0; t < kN; ++t) table().add_squares(x.data() + t * kStride, 1, kStride, kWidth, pieces.data());
  EXPECT_EQ(pieces, want);
}

TEST_P(Layer, AbsScores) {
  for (int t = 0; t < kDTypeCount; ++t)
    for (const int unit : {1, 2})
      for (const Norm norm : {Norm::One, Norm::Two, Norm::Max}) {
        const DType type = DType(t);
        const int units = 5, cols = is_plain(type) ? 333 : 512 + (traits(type).block_elems == 32 ? 7 * 32 : 0);
        const TestMatrix m = random_matrix(type, Layout::Rows, units * unit, cols, unit, 14);
        const std::vector<float> x = random_vector(cols, 15);
        std::vector<float> out(units, -77.f), some(units, -77.f);
        table().abs_scores(m.w, x.data(), norm, {nullptr, units}, 0, units, out.data());
        for (int u = 0; u < units; ++u) {
          double total = 0;
          for (int k = 0; k < cols; ++k) {
            double w = 0;
            for (int j = 0; j < unit; ++j) w += std::fabs(double(m.values[size_t((u * unit + j) * cols + k)]));
            const double term = w * std::fabs(double(x[size_t(k)]));
            total = norm == Norm::Max ? std::max(total, term) : total + (norm == Norm::One ? term : term * term);
          }
          if (norm == Norm::Two) total = std::sqrt(total);
          ASSERT_NEAR(out[size_t(u)], total, (cols + 8) * kEps * total) << traits(type).name << " unit " << u;
        }
        const std::vector<int32_t> list = {0, 2, 3};
        AlignedBuffer memory(pack_bytes(m.w, {list.data(), 3}));
        PackedTables tables;
        const Matrix packed = pop::pack(m.w, {list.data(), 3}, memory.data(), tables);
        table().abs_scores(packed, x.data(), norm, {list.data(), 3}, 1, 3, some.data());
        EXPECT_EQ(some, (std::vector<float>{-77.f, -77.f, out[2], out[3], -77.f}));
      }
}

TEST_P(Layer, ChannelScores) {
  const std::vector<float> h = random_vector(200, 16), norm = random_vector(200, 17);
  for (const double keep : {0.0, 0.3, 1.0}) {
    const std::vector<int32_t> list = random_list(200, keep, 18);
    std::vector<float> out(list.size()), want(list.size());
    for (size_t j = 0; j < list.size(); ++j) want[j] = std::fabs(h[size_t(list[j])]) * norm[size_t(list[j])];
    table().channel_scores(h.data(), norm.data(), {list.data(), int(list.size())}, out.data());
    EXPECT_TRUE(same_bits(out, want));
  }
  std::vector<float> all(200), want(200);
  for (size_t j = 0; j < 200; ++j) want[j] = std::fabs(h[j]) * norm[j];
  table().channel_scores(h.data(), norm.data(), {nullptr, 200}, all.data());
  EXPECT_TRUE(same_bits(all, want));
}

// Equal scores and NaN are listed.
TEST_P(Layer, SelectScores) {
  for (const int n : {1, 7, 16, 33, 200, 576}) {
    std::vector<float> x = random_vector(n, uint32_t(n)), norm = random_vector(n, 17);
    for (float& v : norm) v = std::fabs(v);
    if (n > 30) x[20] = NAN, x[5] = -2.f, norm[5] = 0.25f;
    for (const float tau : {0.f, 0.5f, 3.f}) {
      std::vector<int32_t> want, got(size_t(n) + 16);
      for (int i = 0; i < n; ++i) {
        const float score = std::fabs(x[size_t(i)]) * norm[size_t(i)];
        if (std::isnan(score) || score >= tau) want.push_back(i);
      }
      got.resize(size_t(table().select_scores(x.data(), norm.data(), n, tau, got.data())));
      EXPECT_EQ(got, want) << n << " " << tau;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, Layer, ::testing::ValuesIn(built_isas().begin(), built_isas().end()), isa_name);

TEST(SelectKernels, ByName) {
  EXPECT_EQ(std::string(select_kernels("scalar").name), "scalar");
  EXPECT_TRUE(isa_available("scalar"));
  EXPECT_FALSE(isa_available("sse9"));
  EXPECT_THROW(select_kernels("sse9"), std::runtime_error);
  const char* best = "scalar";
  for (const char* name : built_isas())
    if (isa_available(name)) best = name;
  EXPECT_EQ(std::string(select_kernels("auto").name), best);
  EXPECT_EQ(&select_kernels(""), &select_kernels(best));
  for (const char* name : built_isas()) {
    if (isa_available(name)) {
      EXPECT_EQ(std::string(select_kernels(name).name), name);
    } else {
      EXPECT_THROW(select_kernels(name), std::runtime_error);
    }
  }
}

}  // namespace
}  // namespace pop::kernel_test
