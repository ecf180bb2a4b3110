// Statistics by hand (python/reference/baselines_reference.py prints the same numbers), and a file that cannot be trusted.
#include "prune/calibration.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/hash.h"
#include "prune/toy_model.h"

namespace pop {
namespace {

using Bytes = std::vector<uint8_t>;

void expect_near(const std::vector<double>& found, const std::vector<double>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-12) << i;
}

// Two sequences of two tokens, three channels.
TEST(Calibration, StatisticsByHand) {
  ThreadPool pool(2);
  CalibrationCollector collector({.sha256 = std::string(64, 'a'), .layers = 1, .d = 3, .q_dim = 3, .ffns = {{.f = 3}}},
                                 2, pool);
  const std::vector<std::vector<float>> sequences = {{1, 0, 2, 3, 0, 0}, {1, 2, 0, 1, 0, 2}};
  for (const std::vector<float>& h : sequences) {
    collector.observe(Site::Down, 0, h.data(), 2, 3, 0);
    collector.partition();
  }
  const Calibration c = collector.result("by hand");
  EXPECT_EQ(c.sequences, 2u);
  EXPECT_EQ(c.tokens, 4u);
  expect_near(c.ffns[0].squares, {12, 4, 8});
  expect_near(c.ffns[0].mean, {1.5, 0.5, 1});
  expect_near(c.ffns[0].fluctuation, {0.25, 1.25, 1});
  expect_near(c.ffns[0].history, {2, 4, 4, 10, 0, 4});
  const ScoreHistogram& down = c.layers[0].inputs[static_cast<int>(Site::Down)];
  EXPECT_EQ(down.total(), 12u);
  EXPECT_EQ(down.count(ScoreHistogram::bin(2)), 3u);
}

// An expert's statistics are those of the tokens that went through it, and of the sequences that had some: the same two
// sequences by hand among tokens and sequences that others saw.
TEST(Calibration, OfAnExpertItsOwnTokens) {
  ThreadPool pool(2);
  const CalibrationModel model{.sha256 = std::string(64, 'a'),
                               .layers = 1,
                               .d = 3,
                               .q_dim = 3,
                               .ffns = {{.f = 3, .routed = true}, {.f = 2, .routed = true}, {.f = 3, .routed = true}}};
  CalibrationCollector collector(model, 0, pool);
  const std::vector<float> x(15, 1.f), first = {1, 0, 2, 3, 0, 0}, second = {1, 2, 0, 1, 0, 2}, other(4, 5.f);
  const auto sequence = [&](int tokens, const std::vector<float>* of_first, int position) {
    collector.observe(Site::Qkv, 0, x.data(), tokens, 3, 0);
    if (of_first != nullptr) collector.observe(Site::Down, 0, of_first->data(), 2, 3, position);
    collector.observe(Site::Down, 1, other.data(), 2, 2, 0);
    collector.partition();
  };
  sequence(4, &first, 1);
  sequence(2, nullptr, 0);
  sequence(5, &second, 3);
  const Calibration c = collector.result("");
  EXPECT_EQ(c.sequences, 3u);
  EXPECT_EQ(c.tokens, 11u);
  EXPECT_EQ(c.ffns[0].sequences, 2u);
  EXPECT_EQ(c.ffns[0].tokens, 4u);
  expect_near(c.ffns[0].squares, {12, 4, 8});
  expect_near(c.ffns[0].mean, {1.5, 0.5, 1});
  expect_near(c.ffns[0].fluctuation, {0.25, 1.25, 1});
  EXPECT_EQ(c.ffns[1].tokens, 6u);
  expect_near(c.ffns[1].mean, {5, 5});
  EXPECT_EQ(c.ffns[2].sequences, 0u);
  const Bytes bytes = calibration_bytes(c);
  EXPECT_EQ(calibration_bytes(parse_calibration(bytes, "x.calib", model)), bytes);
  CalibrationModel narrower = model;
  narrower.ffns[1].f = 1;
  EXPECT_THROW(parse_calibration(bytes, "x.calib", narrower), Error);
}

// F_N = sum over n = 2 .. N of (n-1)/n Q_n, over N - 1.
TEST(Calibration, FluctuationIsTheClosedForm) {
  const ToyModel model(1, 5, 9, 4, 2, 3);
  ThreadPool pool(1);
  CalibrationCollector collector(model.calibration_model(), 0, pool);
  std::vector<double> mean(9), expected(9);
  for (int n = 1; n <= 6; ++n) {
    SiteInputs inputs(model, 7, 40 + static_cast<uint32_t>(n));
    inputs.prefill(collector, 0, 7, 3);
    collector.partition();
    for (size_t i = 0; i < 9; ++i) {
      double sum = 0, deviation = 0;
      for (int t = 0; t < 7; ++t) sum += static_cast<double>(inputs.at(Site::Down, 0, t)[i]);
      mean[i] += (sum / 7 - mean[i]) / n;
      for (int t = 0; t < 7; ++t)
        deviation += std::pow(static_cast<double>(inputs.at(Site::Down, 0, t)[i]) - mean[i], 2);
      expected[i] += n == 1 ? 0 : deviation * (n - 1) / n;
    }
  }
  const Calibration c = collector.result("");
  for (size_t i = 0; i < 9; ++i) EXPECT_NEAR(c.ffns[0].fluctuation[i], expected[i] / 5, 1e-9 * expected[i]);
}

class CalibrationFile : public testing::Test {
 protected:
  const ToyModel model_{2, 3, 5, 4, 2, 9};
  const CalibrationModel of_ = model_.calibration_model();
  const Bytes good_ = calibration_bytes(*toy_calibration(model_, 71, 2, 3));

  std::string error_of(const Bytes& bytes, CalibrationModel expected = {}) {
    if (expected.layers == 0) expected = of_;
    try {
      parse_calibration(bytes, "x.calib", expected);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }
  // The bytes with a value put somewhere, and the checksum that belongs to it.
  template <class T>
  Bytes with(size_t at, T value) {
    Bytes bytes = good_;
    std::memcpy(bytes.data() + at, &value, sizeof value);
    const uint64_t sum = checksum(std::span(bytes).first(bytes.size() - 8));
    std::memcpy(bytes.data() + bytes.size() - 8, &sum, 8);
    return bytes;
  }
  static constexpr size_t kModel = 20, kSource = kModel + 64 + 16 + 2 * 12, kCounts = kSource + 4 + 3,
                          kFfn = kCounts + 20 + 16;
};

TEST_F(CalibrationFile, RoundTrip) {
  const Calibration read = parse_calibration(good_, "x.calib", of_);
  EXPECT_EQ(calibration_bytes(read), good_);
  EXPECT_EQ(read.source, "toy");
  EXPECT_EQ(read.tokens, 24u);
  EXPECT_EQ(read.description(), "toy; 2 sequences, 24 tokens");
}

TEST_F(CalibrationFile, ThreadsAndChunksChangeNothing) {
  ThreadPool pool(3);
  for (const int chunk : {1, 4, 12}) {
    CalibrationCollector collector(of_, 3, pool);
    for (uint32_t n = 0; n < 2; ++n) {
      SiteInputs inputs(model_, 12, 71 + n);
      inputs.prefill(collector, 0, 12, chunk);
      collector.partition();
    }
    EXPECT_EQ(calibration_bytes(collector.result("toy")), good_);
  }
}

TEST_F(CalibrationFile, CutOffOrDamagedIsRefused) {
  for (size_t size = 0; size < good_.size(); size += size < 200 ? 1 : 997) {
    EXPECT_NE(error_of(Bytes(good_.begin(), good_.begin() + static_cast<ptrdiff_t>(size))), "") << size;
  }
  for (size_t at = 0; at < good_.size(); at += at < 200 ? 1 : 499) {
    Bytes bytes = good_;
    bytes[at] ^= 4;
    EXPECT_NE(error_of(bytes), "") << at;
  }
  EXPECT_EQ(error_of({}), "x.calib: expected a calibration file (pop calibrate), found something else");
  EXPECT_NE(error_of(with(8, uint32_t{1})).find("version 3, found 1"), std::string::npos);
}

TEST_F(CalibrationFile, AnotherModelIsRefused) {
  CalibrationModel other = of_;
  other.sha256[5] = 'f';
  EXPECT_NE(error_of(good_, other).find("calibrated on another model"), std::string::npos);
  other = of_;
  other.ffns[1].f = 6;
  EXPECT_NE(error_of(good_, other).find("FFN 1: expected f 6 of layer 1, found f 5 of layer 1"), std::string::npos);
  other = of_;
  other.ffns.pop_back();
  EXPECT_NE(error_of(good_, other).find("1 FFNs, found 2, 3, 4, 2"), std::string::npos);
}

// A right checksum makes no value right.
TEST_F(CalibrationFile, NumbersThatNoTextGivesAreRefused) {
  const auto refused = [&](const Bytes& bytes, const char* part) {
    const std::string message = error_of(bytes);
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_LT(message.size(), 300u);
  };
  refused(with(kSource, uint32_t{0xffffffff}), "source");
  refused(with(kSource, uint32_t{4000}), "x.calib");
  refused(with(kCounts, uint64_t{0}), "at least one sequence");
  refused(with(kCounts + 8, ~uint64_t{0}), "at least one sequence");
  refused(with(kCounts + 8, uint64_t{25}), "FFN 0 of layer 0: expected all 2 sequences of 25 tokens, found 2 of 24");
  refused(with(kCounts + 16, uint32_t{0xffffffff}), "a history of 4294967295 positions");
  refused(with(kCounts + 16, uint32_t{2}), "x.calib");
  refused(with(kFfn, -1.0), "layer 0, squares");
  refused(with(kFfn + 8, std::numeric_limits<double>::quiet_NaN()), "layer 0, squares");
  refused(with(kFfn + 40, std::numeric_limits<double>::infinity()), "layer 0, mean");
  refused(with(good_.size() - 24, uint64_t{1}), "layer 1, histogram of gates");
  refused(with(good_.size() - 16, uint32_t{2000}), "steps of allocation");
  refused(with(good_.size() - 16, uint32_t{5}), "ends too early");
}

// The part of method tyr at the end of a file: layer 0 keeps channels 1 and 4 of 5, layer 1 all.
TEST_F(CalibrationFile, RepairedModel) {
  Calibration c = parse_calibration(good_, "x.calib", of_);
  c.repaired = RepairedModel{.ffn_sparsity = 0.3,
                             .search = "by hand",
                             .ffns = {{.kept = {1, 4}, .down = {1, 2, 3, 4, 5, 6}}, {.kept = {0, 1, 2, 3, 4}}}};
  const Bytes good = calibration_bytes(c);
  const Calibration read = parse_calibration(good, "x.calib", of_);
  EXPECT_EQ(calibration_bytes(read), good);
  EXPECT_EQ(read.repaired->ffns[0].kept, (std::vector<int32_t>{1, 4}));

  const auto refused = [&](auto change, const char* part) {
    Calibration other = c;
    change(*other.repaired);
    const std::string message = error_of(calibration_bytes(other));
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  refused([](RepairedModel& r) { r.ffn_sparsity = 1.5; }, "expected an FFN sparsity from 0 to 1, found 1.5");
  refused([](RepairedModel& r) { r.ffn_sparsity = std::nan(""); }, "found nan");
  refused([](RepairedModel& r) { r.ffn_sparsity = 0; }, "an FFN sparsity of 0.3, that of its lists, found 0");
  refused([](RepairedModel& r) { r.ffns[0].kept = {4, 1}; }, "FFN 0: expected ascending channels below 5, found 1");
  refused([](RepairedModel& r) { r.ffns[0].kept = {1, 1}; }, "found 1");
  refused([](RepairedModel& r) { r.ffns[0].kept = {1, 5}; }, "found 5");
  refused([](RepairedModel& r) { r.ffns[0].kept = {-1, 1}; }, "found 4294967295");
  refused([](RepairedModel& r) { r.ffns[1].kept.push_back(5); }, "FFN 1: expected at most 5 kept channels, found 6");
  refused([](RepairedModel& r) { r.ffns[0].down[3] = 0x7f80; }, "FFN 0: expected finite weights, found inf");
  refused([](RepairedModel& r) { r.ffns[0].down.pop_back(); }, "an FFN sparsity of 0.8");
  refused([](RepairedModel& r) { r.ffns.pop_back(); }, "ends too early");
}

}  // namespace
}  // namespace pop
