#include <coxswain/tools/cox/stress/kept_stress.hpp>

#include <coxswain/tools/cox/supervisor/private_folder.hpp>
#include <coxswain/tools/cox/supervisor/supervisor.hpp>

#include <chrono>
#include <utility>

namespace cox::stress {

KeptStressResult run_kept_stress(const KeptStress& options, std::vector<std::string> program, bool standby,
                                 std::ostream& err) {
  const tools::PrivateFolder folder;
  const std::string path = folder.path() / "book";
  const MappedKeptBook book(path, MappedKeptBook::Open::New);
  program.push_back(path);
  tools::SupervisorOptions supervised;
  supervised.limits = {.restarts = options.rounds + 1,
                       .within = std::chrono::hours(1000),
                       .backoff = std::chrono::nanoseconds(0),
                       .backoff_max = std::chrono::nanoseconds(0)};
  supervised.causes = {.codes = {next_round_code}, .signals = true};
  supervised.standby = standby;
  const int code = tools::Supervisor(std::move(program), supervised, err).run();
  return {.rounds = book->rounds,
          .kills = book->kills,
          .crashes = book->crashes,
          .faults = book->faults,
          .updates = book->updates,
          .empty = book->empty,
          .whole = book->whole,
          .not_checked = book->not_checked,
          .torn = book->torn,
          .corrupt = book->corrupt,
          .wrong = book->wrong,
          .first_wrong = book->first_wrong.data(),
          .complete = code == 0};
}

std::string KeptStressResult::to_string() const {
  std::string text = "kept sets: " + std::to_string(rounds) + " processes, " + std::to_string(kills) +
                     " of them killed" + (crashes == 0 ? "" : ", " + std::to_string(crashes) + " crashed") +
                     (faults == 0 ? "" : ", " + std::to_string(faults) + " by a GPU fault") + "; " +
                     std::to_string(updates) + " updates\n" + "states: " + std::to_string(whole) + " whole (" +
                     std::to_string(not_checked) + " not checked), " + std::to_string(torn) + " torn, " +
                     std::to_string(empty) + " empty, " + std::to_string(corrupt) + " corrupt; " +
                     std::to_string(wrong) + " wrong\n";
  if (wrong != 0) text += "the first wrong one: " + first_wrong + "\n";
  if (!complete && wrong == 0) text += "the rounds were not completed\n";
  return text + (ok() ? "ok\n" : "failed\n");
}

}  // namespace cox::stress
