// The cache of keys and values and attention over it, of every table: against float64 written here over the values that the
// bytes of the cache stand for, with tolerances from the number of float32 operations; and that no cut of the work changes a
// bit.
#include <algorithm>

#include "base/float16.h"
#include "kernels/kv.h"
#include "kernels/test_matrix.h"

namespace pop::kernel_test {
namespace {

constexpr double kEps = 0x1p-24;
constexpr double kExp = 3e-7;   // relative error of a table's exponential, with room
constexpr double kTanh = 7e-7;  // and of its hyperbolic tangent
constexpr KvType kTypes[] = {KvType::F32, KvType::F16, KvType::BF16, KvType::Q8_0};

class Attention : public IsaTest {};

uint16_t half_at(const uint8_t* p) {
  uint16_t h;
  std::memcpy(&h, p, 2);
  return h;
}

// A head's cache, written position by position by a table.
struct Cache {
  KvType type;
  int dim;
  size_t stride;  // of ranges, with a gap
  std::vector<uint8_t> keys, values;

  Cache(const KernelTable& table, KvType t, int head_dim, int positions, const float* k, const float* v)
      : type(t),
        dim(head_dim),
        stride(kKvRange * kv_position_bytes(t, head_dim) + 192),
        keys(stride * size_t(positions / kKvRange) + size_t(kKvRange) * kv_position_bytes(t, head_dim)),
        values(keys) {
    for (int p = 0; p < positions; ++p) store(table, p, k + p * dim, v + p * dim);
  }
  void store(const KernelTable& table, int p, const float* k, const float* v) {
    const size_t range = size_t(p / kKvRange) * stride;
    table.store_key(k, dim, type, p % kKvRange, keys.data() + range);
    table.store_value(v, dim, type, p % kKvRange, values.data() + range);
  }
  static double plain(KvType type, const uint8_t* p, size_t i) {
    if (type == KvType::F32) {
      float x;
      std::memcpy(&x, p + i * 4, 4);
      return double(x);
    }
    return type == KvType::F16 ? double(f16_to_f32(half_at(p + i * 2))) : double(bf16_to_f32(half_at(p + i * 2)));
  }
  // kv.h in the words of this test.
  double key(int position, int i) const {
    const size_t lane = size_t(position % 64), per_position = kv_position_bytes(type, dim);
    const uint8_t* block =
        keys.data() + size_t(position / 256) * stride + size_t(position % 256 / 64) * 64 * per_position;
    if (type != KvType::Q8_0) return plain(type, block, size_t(i) * 64 + lane);
    block += size_t(i / 32) * (64 * 2 + 32 * 64);
    return double(f16_to_f32(half_at(block + 2 * lane))) * int8_t(block[128 + size_t(i % 32) * 64 + lane]);
  }
  double value(int position, int i) const {
    const uint8_t* row =
        values.data() + size_t(position / 256) * stride + size_t(position % 256) * kv_position_bytes(type, dim);
    if (type != KvType::Q8_0) return plain(type, row, size_t(i));
    return double(f16_to_f32(half_at(row + i / 32 * 2))) * int8_t(row[dim / 32 * 2 + i]);
  }
};

double rounded(KvType type, float x) {
  return type == KvType::F32   ? double(x)
         : type == KvType::F16 ? double(f16_to_f32(f32_to_f16(x)))
                               : double(bf16_to_f32(f32_to_bf16(x)));
}

TEST_P(Attention, StoresWhatTheTypeHolds) {
  constexpr int kPositions = 67;
  for (const KvType type : kTypes)
    for (const int dim : {10, 32, 64, 80, 96}) {
      if (type == KvType::Q8_0 && dim % 32 != 0) continue;
      std::vector<float> k = random_vector(kPositions * dim, 6, 100.f), v = random_vector(kPositions * dim, 7);
      k[0] = 65519.f, k[1] = 65503.f, k[2] = 1e-7f, k[3] = -0.f, k[5] = 1.00048828125f;
      std::fill(v.begin(), v.begin() + std::min(dim, 32), 0.f);
      const Cache cache(table(), type, dim, kPositions, k.data(), v.data()),
          specified(scalar(), type, dim, kPositions, k.data(), v.data());
      ASSERT_EQ(cache.keys, specified.keys);
      ASSERT_EQ(cache.values, specified.values);
      for (int p = 0; p < kPositions; ++p)
        for (int i = 0; i < dim; ++i) {
          const auto at = size_t(p * dim + i);
          if (type != KvType::Q8_0) {
            ASSERT_EQ(cache.key(p, i), rounded(type, k[at])) << p << " " << i;
            ASSERT_EQ(cache.value(p, i), rounded(type, v[at])) << p << " " << i;
            continue;
          }
          // Half a code, and the rounding of the scale to a half float, which 127 codes multiply.
          const auto largest = [&](const std::vector<float>& x) {
            double most = 0;
            for (int e = i / 32 * 32; e < i / 32 * 32 + 32; ++e)
              most = std::max(most, std::fabs(double(x[size_t(p * dim + e)])));
            return most;
          };
          ASSERT_NEAR(cache.key(p, i), k[at], largest(k) / 127 * (0.5 + 127 * 0x1p-11) * 1.0001) << p << " " << i;
          ASSERT_NEAR(cache.value(p, i), v[at], largest(v) / 127 * (0.5 + 127 * 0x1p-11) * 1.0001) << p << " " << i;
        }
    }
}

// By hand: the largest of 32 is 127, so d = 1 and the codes are the nearest whole numbers, 2.5 to the even 2.
TEST_P(Attention, CodesOfQ80) {
  std::vector<float> x(32, 0.f);
  x[0] = -127.f, x[1] = 2.5f, x[2] = 3.5f, x[3] = -0.4f, x[4] = 99.6f;
  const Cache cache(table(), KvType::Q8_0, 32, 1, x.data(), x.data());
  const double want[] = {-127, 2, 4, 0, 100, 0};
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(cache.key(0, i), want[i]);
    EXPECT_EQ(cache.value(0, i), want[i]);
  }
  EXPECT_EQ(half_at(cache.values.data()), 0x3c00);
  EXPECT_EQ(cache.values[2], uint8_t(-127));
  for (const float bad : {INFINITY, -INFINITY, NAN}) {  // not lost: the logits are checked
    x[7] = bad;
    const Cache spoilt(table(), KvType::Q8_0, 32, 1, x.data(), x.data());
    EXPECT_TRUE(std::isnan(spoilt.key(0, 0)) && std::isnan(spoilt.value(0, 31)));
  }
}

struct Case {
  int tokens, group, dim, position, first, last, window = 0;
  float cap = 0;
  int positions() const { return std::min(last, position + tokens); }
  // The positions that row r sees.
  int end(int r) const { return std::min(last, position + r / group + 1); }
  int begin(int r) const { return window == 0 ? first : std::max(first, position + r / group + 1 - window); }
};

struct Parts {
  std::vector<float> out, tops, totals;
};

Parts attend(const KernelTable& table, const Case& c, const Cache& cache, const float* q) {
  const auto rows = size_t(c.tokens * c.group), dim = size_t(c.dim);
  Parts parts{std::vector<float>(rows * dim), std::vector<float>(rows), std::vector<float>(rows)};
  AlignedBuffer scratch(attention_scratch(c.tokens, c.group, c.dim) * sizeof(float));
  table.attention({.q = q,
                   .q_stride = size_t(c.group * c.dim),
                   .tokens = c.tokens,
                   .group = c.group,
                   .head_dim = c.dim,
                   .keys = cache.keys.data(),
                   .values = cache.values.data(),
                   .range_stride = cache.stride,
                   .type = cache.type,
                   .position = c.position,
                   .window = c.window,
                   .first = c.first,
                   .last = c.last,
                   .scale = 0.3f,
                   .cap = c.cap,
                   .out = parts.out.data(),
                   .tops = parts.tops.data(),
                   .totals = parts.totals.data(),
                   .scratch = scratch.as<float>().data()});
  return parts;
}

// Row r of parts of one range against float64; and its answer by attention_merge.
void compare(const KernelTable& table, const Case& c, const Cache& cache, const float* q, const Parts& parts, int r) {
  const int begin = c.begin(r), end = c.end(r);
  const auto dim = size_t(c.dim);
  std::vector<double> score;
  double top = -INFINITY, total = 0, error = 0;
  for (int t = begin; t < end; ++t) {
    double dot = 0, size = 0;
    for (int i = 0; i < c.dim; ++i) {
      const double term = double(q[r * c.dim + i]) * double(0.3f) * cache.key(t, i);
      dot += term, size += std::fabs(term);
    }
    if (c.cap != 0) dot = double(c.cap) * std::tanh(dot / double(c.cap));
    score.push_back(dot);
    top = std::max(top, dot);
    // Absolute error of a score = relative one of its weight; tanh shrinks what went in.
    error = std::max(error, (c.dim + 4) * kEps * size + (c.cap != 0 ? kTanh * std::fabs(dot) : 0));
  }
  if (begin >= end) {  // its window lies past the range
    EXPECT_EQ(parts.tops[size_t(r)], -INFINITY);
    EXPECT_EQ(parts.totals[size_t(r)], 0.f);
    for (size_t i = 0; i < dim; ++i) EXPECT_EQ(parts.out[size_t(r) * dim + i], 0.f);
    return;
  }
  for (double& s : score) total += s = std::exp(s - top);
  // The largest score may grow with every block, each time with an exponential and a product.
  const double relative = 2 * error + (2 + (end - begin) / kKeyBlock) * (kExp + kEps) + 2 * score.size() * kEps;
  ASSERT_NEAR(parts.tops[size_t(r)], top, error + kEps);
  ASSERT_NEAR(parts.totals[size_t(r)], total, relative * total);
  std::vector<float> y(dim);
  table.attention_merge(parts.out.data() + size_t(r) * dim, 0, &parts.tops[size_t(r)], &parts.totals[size_t(r)], 0, 1,
                        c.dim, y.data());
  for (int i = 0; i < c.dim; ++i) {
    double want = 0, size = 0;
    for (int t = begin; t < end; ++t) {
      want += score[size_t(t - begin)] * cache.value(t, i);
      size += score[size_t(t - begin)] * std::fabs(cache.value(t, i));
    }
    ASSERT_NEAR(parts.out[size_t(r) * dim + size_t(i)], want, relative * size) << r << " " << i;
    ASSERT_NEAR(y[size_t(i)], want / total, 2 * relative * size / total) << r << " " << i;
  }
}

const Case kCases[] = {
    {1, 3, 64, 0, 0, 1000},       {1, 3, 64, 36, 0, 1000},          {1, 1, 64, 129, 64, 1000},
    {1, 8, 128, 18, 0, 1000},     {1, 7, 80, 150, 128, 1000},       {1, 2, 10, 5, 0, 1000},
    {1, 4, 32, 199, 0, 128},      {5, 1, 64, 62, 0, 1000},          {3, 4, 96, 126, 64, 1000},
    {33, 3, 64, 40, 0, 1000},     {32, 1, 32, 0, 0, 1000},          {7, 5, 128, 61, 0, 1000},
    {40, 2, 10, 64, 64, 100},     {1, 3, 64, 199, 0, 1000, 50},     {1, 2, 32, 199, 64, 128, 130},
    {5, 4, 80, 126, 64, 1000, 1}, {33, 3, 64, 100, 0, 1000, 70},    {40, 1, 32, 64, 0, 1000, 7},
    {4, 2, 64, 140, 64, 128, 15}, {1, 2, 64, 199, 0, 1000, 0, 5.f}, {33, 2, 80, 40, 0, 1000, 20, 2.f}};

TEST_P(Attention, EqualsFloat64) {
  for (const Case& c : kCases)
    for (const KvType type : kTypes) {
      if (type == KvType::Q8_0 && c.dim % 32 != 0) continue;
      SCOPED_TRACE(testing::Message() << c.tokens << " tokens, group " << c.group << ", dim " << c.dim << ", type "
                                      << int(type));
      const int held = c.positions() * c.dim;
      const std::vector<float> q = random_vector(c.tokens * c.group * c.dim, 7, 2.f), k = random_vector(held, 8),
                               v = random_vector(held, 9);
      Cache cache(scalar(), type, c.dim, c.positions(), k.data(), v.data());
      const Parts parts = attend(table(), c, cache, q.data());
      for (int r = 0; r < c.tokens * c.group; ++r) compare(table(), c, cache, q.data(), parts, r);
      // What lies beyond the last token is not used, whatever it is.
      for (const int p : {c.positions()})
        if (p % kKeyBlock != 0 && type != KvType::Q8_0) {
          const std::vector<float> bad(size_t(c.dim), INFINITY);
          cache.store(table(), p, bad.data(), bad.data());
          EXPECT_TRUE(same_bits(attend(table(), c, cache, q.data()).out, parts.out));
        }
    }
}

// Any token and any head alone has the part it has among others.
TEST_P(Attention, CutsChangeNoBit) {
  for (const Case& c : kCases)
    for (const KvType type : kTypes) {
      if (type == KvType::Q8_0 && c.dim % 32 != 0) continue;
      const int held = c.positions() * c.dim;
      const std::vector<float> q = random_vector(c.tokens * c.group * c.dim, 7, 2.f), k = random_vector(held, 8),
                               v = random_vector(held, 9);
      const Cache cache(scalar(), type, c.dim, c.positions(), k.data(), v.data());
      const Parts parts = attend(table(), c, cache, q.data());
      for (int t = 0; t < c.tokens; ++t)
        for (int g = 0; g < c.group; ++g) {
          const int row = t * c.group + g;
          const Case one{1, 1, c.dim, c.position + t, c.first, c.last, c.window, c.cap};
          const Parts alone = attend(table(), one, cache, q.data() + row * c.dim);
          ASSERT_EQ(std::memcmp(alone.out.data(), parts.out.data() + row * c.dim, size_t(c.dim) * 4), 0)
              << t << " " << g;
          ASSERT_EQ(alone.tops[0], parts.tops[size_t(row)]);
          ASSERT_EQ(alone.totals[0], parts.totals[size_t(row)]);
        }
    }
}

// Parts of three ranges come to the answer over all of them.
TEST_P(Attention, Merge) {
  const Case whole{1, 3, 64, 299, 0, 1000};
  const std::vector<float> q = random_vector(3 * 64, 7, 2.f), k = random_vector(300 * 64, 8),
                           v = random_vector(300 * 64, 9);
  const Cache cache(scalar(), KvType::F16, 64, 300, k.data(), v.data());
  Parts all;
  for (const int first : {0, 128, 256}) {
    const Case c{1, 3, 64, 299, first, first + 128};
    const Parts part = attend(table(), c, cache, q.data());
    all.out.insert(all.out.end(), part.out.begin(), part.out.end());
    all.tops.insert(all.tops.end(), part.tops.begin(), part.tops.end());
    all.totals.insert(all.totals.end(), part.totals.begin(), part.totals.end());
  }
  const Parts want = attend(scalar(), whole, cache, q.data());
  for (size_t g = 0; g < 3; ++g) {
    std::vector<float> y(64);
    table().attention_merge(all.out.data() + g * 64, 3 * 64, &all.tops[g], &all.totals[g], 3, 3, 64, y.data());
    for (size_t i = 0; i < 64; ++i) ASSERT_NEAR(y[i], want.out[g * 64 + i] / want.totals[g], 2e-5) << g << " " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, Attention, ::testing::ValuesIn(built_isas().begin(), built_isas().end()), isa_name);

}  // namespace
}  // namespace pop::kernel_test
