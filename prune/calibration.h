// What a text does to the dense model, per layer and FFN: what offline methods decide from. `pop calibrate` makes it once and keeps
// it in a file; a method loads it with --calibration.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "prune/histogram.h"
#include "prune/policy.h"

namespace pop {

struct FfnShape {
  int layer = 0, f = 0;
  bool routed = false;  // an expert: it sees the tokens that a router sends through it
  bool operator==(const FfnShape&) const = default;
};

// The model that a calibration is of.
struct CalibrationModel {
  std::string sha256;  // 64 hex digits
  int layers = 0, d = 0, q_dim = 0;
  std::vector<FfnShape> ffns;  // by number (PolicyContext::ffns)
  bool has_experts() const {
    return std::any_of(ffns.begin(), ffns.end(), [](const FfnShape& ffn) { return ffn.routed; });
  }
  bool operator==(const CalibrationModel&) const = default;
};

// Sums over sequences of n = 1 .. N, of an expert those that it saw a token of; h is the input of W_down, t the tokens of a
// sequence that went through the FFN.
struct CalibrationFfn {
  uint64_t sequences = 0, tokens = 0;  // N, and over all of them
  std::vector<double> squares;         // [f] sum_n sum_t h^2
  std::vector<double> mean;            // [f] m_N: m_n = m_{n-1} (n-1)/n + (mean_t h) / n
  std::vector<double> fluctuation;     // [f] F_N: F_1 = 0, F_n = F_{n-1} (n-2)/(n-1) + (sum_t (h - m_n)^2) / n
  std::vector<double> history;         // [positions][f] sum_n h^2 at a position
};

struct CalibrationLayer {
  // Of a model without experts; no method that runs on others reads them.
  ScoreHistogram inputs[kSites];    // of |x| over tokens and channels
  ScoreHistogram gates;             // of |act(gate)|
  std::vector<uint8_t> allocation;  // path of allocation.h; empty: not searched for
};

// An FFN without some of its channels, and what became of the others' columns (method tyr).
struct RepairedFfn {
  std::vector<int32_t> kept;        // ascending
  std::vector<uint16_t> down = {};  // bfloat16 [d][kept]; empty where all are kept: W_down as it is
};
struct RepairedModel {
  double ffn_sparsity = 0;        // share of all channels that went
  std::string search;             // how it was found, for results
  std::vector<RepairedFfn> ffns;  // by number
};

// The type of repaired weights where W_down's own is `own`: that one, or with "bf16" and for types without a quantiser bfloat16.
DType repaired_type(const std::string& repaired, DType own);

struct Calibration {
  CalibrationModel model;
  std::string source;                  // of the text: its name and hash
  uint64_t sequences = 0, tokens = 0;  // N, and over all of them
  int positions = 0;                   // of which a history is kept; 0: none
  std::vector<CalibrationFfn> ffns;    // by number
  std::vector<CalibrationLayer> layers;
  std::optional<RepairedModel> repaired;  // searched for if asked

  std::string description() const;  // source, sequences, tokens: names it in results
};

// Collects while prompts run dense. After each sequence partition() closes it; the next one begins at position 0. Sums run
// token by token and sequence by sequence: threads and chunks change no bit.
class CalibrationCollector final : public PolicyState {
 public:
  CalibrationCollector(CalibrationModel model, int positions, ThreadPool& pool);
  void observe(Site site, int place, const float* x, int n, size_t ldx, int first_pos) override;
  bool gate_first() const override { return !data_.model.has_experts(); }
  void observe_gates(int layer, std::span<const float> gates) override;
  void partition() override;
  Selection select(Site, int, std::span<const float>, int) override { return {}; }
  std::unique_ptr<PolicyState> clone() const override { return std::make_unique<CalibrationCollector>(*this); }
  // What closed sequences came to.
  Calibration result(std::string source) const;

 private:
  struct Sums {
    std::vector<double> h, squares;  // [f] of the sequence under way
    uint64_t tokens = 0;
  };
  void count(ScoreHistogram& histogram, const float* x, int n, size_t ldx, int width);
  void close(CalibrationFfn& ffn, Sums& sums) const;
  Calibration data_;
  ThreadPool* pool_;
  std::vector<Sums> sums_;               // [FFNs]
  int length_ = 0;                       // tokens of the sequence under way
  std::vector<ScoreHistogram> scratch_;  // [threads]
};

// The file: little-endian, a checksum at its end. The same calibration gives the same bytes.
std::vector<uint8_t> calibration_bytes(const Calibration& calibration);

// Throws Error naming `name`: no calibration file, another version, cut off, damaged, made of another model, numbers that no
// text can give.
Calibration parse_calibration(std::span<const uint8_t> bytes, const std::string& name,
                              const CalibrationModel& expected);

}  // namespace pop
