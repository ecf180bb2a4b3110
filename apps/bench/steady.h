// The rule by which a measurement on a shared machine is believed: the memory's own speed is read before and after it.
#pragma once
#include <algorithm>

namespace pop::app {

constexpr double kRoofMoves = 0.10;  // more than that between before and after: something else was running
constexpr int kMostRepeats = 3;

inline bool roof_moved(double before, double after) {
  return std::max(before, after) > (1 + kRoofMoves) * std::min(before, after);
}

struct Steadiness {
  double before = 0, after = 0;  // roof around the measurement that was kept, bytes per second
  int repeats = 0;
  bool moved = false;  // it moved in the last repeat too: kept, and marked
  double roof() const { return (before + after) / 2; }
};

// Measures, again if the roof moved, at most kMostRepeats times more; what measure() did last is what counts. `before`: a
// reading of just now.
template <class ReadRoof, class Measure>
Steadiness hold_steady(double before, ReadRoof read_roof, Measure measure) {
  Steadiness s;
  s.before = before;
  for (;; ++s.repeats, s.before = s.after) {
    measure();
    s.after = read_roof();
    s.moved = roof_moved(s.before, s.after);
    if (!s.moved || s.repeats == kMostRepeats) return s;
  }
}

}  // namespace pop::app
