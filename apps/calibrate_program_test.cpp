// pop calibrate, and what a user sees when a method gets no file, another model's, or one that is no such file.
#include <algorithm>

#include "apps/program_test.h"

namespace pop::app {
namespace {

class Calibrate : public testing::Test {
 protected:
  Calibrate() {
    std::string text;
    for (int i = 0; i < 500; ++i) text += char('a' + i * i % 23);
    text_ = folder_.write("text.txt", text);
  }
  Outcome with_file(const std::string& file, const std::string& method = "flap") {
    return pop(tiny("run", {"-p", "abc", "-n", "2", "--prune", method, "--calibration", file}));
  }
  Folder folder_;
  std::string text_, file_ = folder_.path("text.calib");
};

TEST_F(Calibrate, WritesWhatTheMethodsRead) {
  const Json made = run_json(tiny("calibrate", {"-f", text_, "-o", file_, "--length", "60", "--sequences", "7"}));
  EXPECT_EQ(made["sequences"], 7);
  EXPECT_EQ(made["tokens"], 420);
  EXPECT_EQ(made["file_bytes"], read_bytes(file_).size());
  for (const char* method : {"wanda_sp", "flap", "task-fixed"}) {
    const Json run =
        run_json(tiny("run", {"-p", "abc", "-n", "4", "--temp", "0", "--prune", method, "--calibration", file_}));
    EXPECT_LT(run["selected_share"], 0.9) << method;
    EXPECT_NE(run["calibration"].get<std::string>().find("; 7 sequences, 420 tokens"), std::string::npos);
  }
  // The same text gives the same bytes, cut and shared out in any way.
  const std::string again = folder_.path("again.calib");
  run_json(tiny("calibrate",
                {"-f", text_, "-o", again, "--length", "60", "--sequences", "7", "-t", "3", "--prefill-chunk", "7"}));
  EXPECT_EQ(read_bytes(again), read_bytes(file_));
  // A text shorter than a window is one sequence.
  const Json whole = run_json(tiny("calibrate", {"-f", text_, "-o", again, "--length", "512", "--history", "900"}));
  EXPECT_EQ(whole["sequences"], 1);
  EXPECT_EQ(whole["length"], 500);
  EXPECT_EQ(whole["history"], 500);
}

TEST_F(Calibrate, ErrorsAreOneLine) {
  const auto refused = [](const Outcome& done, int code, const std::string& part) {
    EXPECT_EQ(done.code, code);
    EXPECT_NE(done.err.find(part), std::string::npos) << done.err;
    EXPECT_EQ(std::count(done.err.begin(), done.err.end(), '\n'), 1) << done.err;
  };
  refused(pop(tiny("run", {"-p", "abc", "--prune", "wanda_sp"})), 1, "make them with pop calibrate");
  refused(with_file(folder_.path("none")), 1, "none");
  refused(with_file(text_), 1, "expected a calibration file");
  refused(with_file(text_, "pop"), 1, "text.txt");
  refused(pop(tiny("calibrate", {"-o", file_})), 2, "-f FILE");
  refused(pop(tiny("calibrate", {"-f", text_})), 2, "-o FILE");
  refused(pop(tiny("calibrate", {"-f", folder_.write("empty", ""), "-o", file_})), 1, "found nothing in it");
  refused(pop(tiny("calibrate", {"-f", text_, "-o", file_, "--length", "600"})), 2, "exceeds the context of 512");
  refused(pop(tiny("calibrate", {"-f", text_, "-o", folder_.path("no/such/folder")})), 1, "no/such/folder");

  run_json(tiny("calibrate", {"-f", text_, "-o", file_}));
  refused(with_file(file_, "pop"), 1, "--calibration: does not apply to method pop");
  refused(pop({"run", "-m", "tests/goldens/tiny-tied.gguf", "--ids", "1,2", "--prune", "flap", "--calibration", file_}),
          1, "calibrated on another model");
  const std::string bytes = read_bytes(file_);
  refused(with_file(folder_.write("cut", bytes.substr(0, bytes.size() / 2))), 1,
          "expected " + std::to_string(bytes.size()));
}

}  // namespace
}  // namespace pop::app
