#pragma once

#include <coxswain/tools/cox/exit_code.hpp>
#include <coxswain/tools/cox/stress/kept_round.hpp>
#include <coxswain/tools/cox/stress/options.hpp>
#include <coxswain/tools/cox/world_stress/world_round.hpp>

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace cox::stress {
struct Report;
class StressWorld;
}  // namespace cox::stress

namespace cox::tools {

/// `cox stress`: runs the devices hard and checks that every law holds.
class StressCommand {
 public:
  /// Registers the subcommand with `app`. `app` must outlive this object.
  explicit StressCommand(CLI::App& app);
  StressCommand(const StressCommand&) = delete;
  StressCommand& operator=(const StressCommand&) = delete;

  [[nodiscard]] bool chosen() const;
  /// Blocks for the whole run. Writes the flight recorders on SIGUSR1 and on a violation. SIGINT, SIGTERM and SIGHUP
  /// end the run early, with the report so far. Ends the process if client threads are stuck. Throws ArgumentError,
  /// ConfigError, DeviceUnavailable.
  [[nodiscard]] ExitCode run(std::ostream& out, std::ostream& err) const;

 private:
  [[nodiscard]] stress::Options options() const;
  void require_shareable(const stress::Options& options, bool in_world) const;
  void share(stress::Options& options, stress::StressWorld* world) const;
  // In a world each process but the first adds its number to the names of its files.
  [[nodiscard]] std::string file_of(const std::string& path) const;
  // The stress of kept sets: its command, and one of its rounds.
  [[nodiscard]] ExitCode run_kept(std::ostream& out, std::ostream& err) const;
  [[nodiscard]] stress::KeptStress kept_options() const;
  // The stress of worlds: its command, and one of its processes.
  [[nodiscard]] ExitCode run_worlds(std::ostream& out, std::ostream& err) const;
  [[nodiscard]] stress::WorldStressOptions world_options() const;
  [[nodiscard]] std::uint64_t seed() const;
  void refuse_options(std::string_view with, const std::vector<const char*>& options) const;
  void require_output_files() const;
  [[nodiscard]] bool write_json(const stress::Report& report, std::ostream& err) const;
  [[nodiscard]] bool write_trace(std::ostream& err) const;
  void write_flight_recorders(const std::string& path, std::ostream& err) const;
  [[nodiscard]] bool write_metrics(const std::string& text, std::ostream& err) const;

  CLI::App& command_;
  std::string devices_ = "host";
  std::string seconds_;
  std::string operations_;
  std::string rounds_;
  std::string clients_ = "8";
  std::string seed_;
  std::string mix_;
  std::string payload_;
  std::string fault_;
  std::string json_;
  std::string trace_;
  std::string metrics_;
  std::string flight_recorder_;
  std::string kept_;
  std::string kept_book_;
  bool kept_flaw_ = false;
  bool standby_ = false;
  std::string worlds_;
  std::string processes_ = "4";
  std::string world_member_;
  std::string world_flaw_ = "none";
  bool quiet_ = false;
  mutable std::uint16_t process_ = 0;  // in its world
};

}  // namespace cox::tools
