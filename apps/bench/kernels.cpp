// pop bench kernels: every weight product alone, as a share of the roof (decode) or of the arithmetic peak (prefill).
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>

#include "apps/bench/commands.h"
#include "apps/bench/kernel_cases.h"
#include "apps/bench/roof.h"
#include "apps/bench/steady.h"
#include "apps/pop/results.h"
#include "apps/pop/terminal.h"
#include "apps/pop/validators.h"
#include "base/cpu.h"
#include "kernels/select.h"
#include "tensor/layout.h"

namespace pop::app {
namespace {

constexpr size_t kStreamBytes = size_t{512} << 20, kHeldBytes = size_t{1} << 20;

struct KernelArgs {
  OutputArgs output;
  std::string isa, filter, csv;
  int threads = 0;
};

class KernelRun {
 public:
  KernelRun(const KernelTable& table, int threads)
      : table_(table), pool_(threads), roof_(kStreamBytes, table), partial_(size_t(64) << 20) {}

  Json row(const KernelCase& c) {
    const KernelWeights weights(c, c.streams() ? kStreamBytes : kHeldBytes);
    const AlignedBuffer acts = inputs(c);
    std::vector<double> seconds;
    Steadiness steadiness;
    const auto measure = [&] { seconds = times(c, weights, acts); };
    if (c.streams())
      steadiness = hold_steady(
          roof_.rate(pool_.threads()), [&] { return roof_.rate(pool_.threads()); }, measure);
    else
      measure();
    const double second = median(seconds), bytes = double(bytes_of(weights.copies()[0]));
    const double products = double(c.rows) * c.cols * c.n;
    Json json;
    json["name"] = c.name();
    json["threads"] = pool_.threads();
    json["us"] = second * 1e6;
    json["gbps"] = bytes / second / 1e9;
    json["gops"] = products / second / 1e9;
    json["share"] = c.streams() ? bytes / second / steadiness.roof() : products / second / peak(c.act);
    json["of"] = c.streams() ? "roof" : "peak";
    json["spread"] = spread(seconds);
    json["mark"] = steadiness.moved ? "roof moved" : "";
    return json;
  }

 private:
  static uint64_t bytes_of(const Matrix& w) {
    return bytes_read(w, {nullptr, w.layout == Layout::Rows ? w.rows / w.unit : w.cols});
  }

  AlignedBuffer inputs(const KernelCase& c) const {
    const size_t stride = table_.acts_bytes(c.act, c.layout(), c.cols);
    AlignedBuffer acts(stride * size_t(c.n) + 64);
    std::vector<float> x(size_t(c.cols));
    for (int r = 0; r < c.n; ++r) {
      for (size_t i = 0; i < x.size(); ++i) x[i] = float((i * 37 + size_t(r) * 11) % 200) / 100 - 1;
      table_.pack_acts(c.act, c.layout(), x.data(), c.cols, acts.data() + size_t(r) * stride);
    }
    return acts;
  }

  // The whole matrix once, cut over the threads as decode and prefill cut it.
  void product(const KernelCase& c, const Matrix& w, const Acts& x) {
    float* y = partial_.as<float>().data();
    const auto ldy = size_t(c.rows);
    if (c.layout() == Layout::Columns && c.streams()) {
      const int pieces = pool_.threads() * 4, columns = ((c.cols + pieces - 1) / pieces + 31) / 32 * 32;
      pool_.run(pieces, [&](int piece, int) {
        const int begin = std::min(c.cols, piece * columns), end = std::min(c.cols, begin + columns);
        table_.axpy_columns(w, x, 0, {nullptr, c.cols}, begin, end, 0, c.rows, y + size_t(piece) * ldy);
      });
      return;
    }
    const int all = c.layout() == Layout::Rows ? c.rows / c.unit : c.rows, pieces = pool_.threads() * 4;
    const int part = ((all + pieces - 1) / pieces + 63) / 64 * 64;
    pool_.run(pieces, [&](int piece, int) {
      const int begin = std::min(all, piece * part), end = std::min(all, begin + part);
      if (begin == end) return;
      if (c.layout() == Layout::Columns)
        table_.gemm_columns(w, x, begin, end, y, ldy);
      else
        (c.streams() ? table_.dot_units : table_.gemm_units)(w, x, {nullptr, all}, begin, end, y, ldy);
    });
  }

  std::vector<double> times(const KernelCase& c, const KernelWeights& weights, const AlignedBuffer& acts) {
    Acts x{.type = c.act, .layout = c.layout(), .n = c.n, .cols = c.cols};
    x.stride = table_.acts_bytes(c.act, c.layout(), c.cols);
    x.data = acts.data();
    std::vector<double> seconds;
    const double start = now();
    // At least once through all copies, so that none is in a cache when its turn comes again.
    for (size_t i = 0; i <= weights.copies().size() || now() - start < 0.08; ++i) {
      const double begin = now();
      product(c, weights.copies()[i % weights.copies().size()], x);
      if (i > 0) seconds.push_back(now() - begin);  // the first warms up
    }
    return seconds;
  }

  // Multiplications per second of this arithmetic on all threads.
  double peak(ActType type) {
    double& known = peaks_[type];
    if (known > 0) return known;
    constexpr int kRounds = 2'000'000;
    std::vector<double> rates;
    for (int i = 0; i < 5; ++i) {
      const double begin = now();
      double done = 0;
      pool_.run(pool_.threads(), [&](int piece, int) {
        const double mine = table_.multiply_adds(type, kRounds);
        if (piece == 0) done = mine * pool_.threads();
      });
      rates.push_back(done / (now() - begin));
    }
    return known = *std::max_element(rates.begin(), rates.end());
  }

  const KernelTable& table_;
  ThreadPool pool_;
  Roof roof_;
  AlignedBuffer partial_;
  std::map<ActType, double> peaks_;
};

int bench_kernels(const KernelArgs& args) {
  const KernelTable& table = select_kernels(args.isa.empty() ? "auto" : args.isa);
  const int threads = args.threads > 0 ? args.threads : usable_cpus();
  std::vector<KernelCase> cases;
  for (const KernelCase& c : kernel_cases(table))
    if (c.name().find(args.filter) != std::string::npos) cases.push_back(c);
  if (cases.empty()) throw UsageError(fmt::format("--filter: no kernel's name contains '{}'", args.filter));
  KernelRun run(table, threads);
  Json json;
  json["machine"] = {{"cpu", cpu_model_name()}, {"threads", threads}, {"isa", table.name}};
  json["rows"] = Json::array();
  std::vector<std::vector<std::string>> rows = {{"kernel", "us", "GB/s", "Gop/s", "share", "of", "+-", ""}};
  {
    Progress progress("kernels", args.output);
    InterruptScope interrupts;
    for (const KernelCase& c : cases) {
      if (InterruptScope::raised()) return kInterrupted;
      const Json row = run.row(c);
      json["rows"].push_back(row);
      const auto number = [&](const char* key) { return row[key].get<double>(); };
      rows.push_back({c.name(), fmt::format("{:.1f}", number("us")), fmt::format("{:.1f}", number("gbps")),
                      fmt::format("{:.0f}", number("gops")), fmt::format("{:.0f}%", 100 * number("share")),
                      row["of"].get<std::string>(), fmt::format("{:.0f}%", 100 * number("spread")),
                      row["mark"].get<std::string>()});
      progress.update(int64_t(json["rows"].size()), int64_t(cases.size()));
    }
  }
  if (!args.csv.empty()) write_csv(args.csv, rows);
  if (args.output.json)
    print_json(json);
  else
    fmt::print("{}, {}, {} threads\n{}", cpu_model_name(), table.name, threads, pop::app::table(rows));
  return kDone;
}

}  // namespace

void add_bench_kernels(CLI::App& bench, Commands& commands) {
  auto args = std::make_shared<KernelArgs>();
  CLI::App* app = bench.add_subcommand("kernels");
  app->description(
      "Every weight product alone: those of decode from memory, as a share of the roof, those of prefill as a share of "
      "the peak of their arithmetic.");
  app->add_option("--filter", args->filter, "Only kernels whose name contains this, e.g. dot/q4_0")
      ->option_text("TEXT");
  app->add_option("-t,--threads", args->threads, "Threads [the CPUs this process may use]")
      ->option_text("N")
      ->check(whole_in(1, 1024));
  app->add_option("--isa", args->isa, "Instruction set: scalar, avx2, avx512 [the best available]")
      ->option_text("NAME");
  app->add_option("--csv", args->csv, "Write the rows as CSV")->option_text("FILE");
  add_output_options(*app, args->output);
  app->footer(
      "Examples:\n"
      "  pop bench kernels --filter dot/q4_0\n"
      "  pop bench kernels -t 1 --filter 4096 --json\n");
  commands.push_back({app, [args] { return bench_kernels(*args); }});
}

}  // namespace pop::app
