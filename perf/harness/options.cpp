#include <coxswain/perf/harness/options.hpp>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <random>

namespace cox::perf {

Options parse_options(int argc, char** argv, const std::string& about, const MoreOptions& more) {
  Options options;
  CLI::App app{about};
  app.add_flag("--quick", options.quick, "do a tenth of the work, in three rounds");
  app.add_flag("--list", options.list, "print cases and contenders, measure nothing");
  app.add_option("--filter", options.filter, "regular expression over \"FIGURE CASE\"");
  app.add_option("--contenders", options.contenders, "regular expression over contender names (ours always runs)");
  app.add_option("--ours", options.ours, "the contender that the ratios are relative to");
  app.add_option("--json", options.json, "write the rows to this file");
  app.add_option("--rounds", options.rounds, "rounds, interleaved over all contenders (7; 3 with --quick)");
  app.add_option("--seed", options.seed, "seed of the order within each round");
  if (more) more(app);
  app.add_option("--sample", options.sample, "CASE CONTENDER: one sample in this process")->expected(2)->group("");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    std::exit(code == 0 ? 0 : 2);
  }
  if (options.rounds == 0) options.rounds = options.quick ? 3 : 7;
  if (options.seed == 0) options.seed = std::random_device{}();
  return options;
}

}  // namespace cox::perf
