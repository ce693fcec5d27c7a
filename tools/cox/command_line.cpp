#include <coxswain/tools/cox/command_line.hpp>

#include <coxswain/runtime/apply_settings.hpp>
#include <coxswain/runtime/config_error.hpp>
#include <coxswain/tools/cox/argument_error.hpp>
#include <coxswain/tools/cox/bench_command.hpp>
#include <coxswain/tools/cox/config_command.hpp>
#include <coxswain/tools/cox/device_unavailable.hpp>
#include <coxswain/tools/cox/devices_command.hpp>
#include <coxswain/tools/cox/doctor_command.hpp>
#include <coxswain/tools/cox/run_command.hpp>
#include <coxswain/tools/cox/stress_command.hpp>
#include <coxswain/tools/cox/version.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <iterator>

namespace cox::tools {
namespace {

// "cox" or "cox stress", as far as it was said.
std::string spoken_name(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? "cox" : "cox " + chosen.front()->get_name();
}

// The words before a "--", as CLI11 wants them.
std::vector<std::string> reversed(std::vector<std::string>::const_iterator begin,
                                  std::vector<std::string>::const_iterator end) {
  return {std::make_reverse_iterator(end), std::make_reverse_iterator(begin)};
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

ExitCode run(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err) {
  CLI::App app("Coxswain: one thread for each device", "cox");
  app.set_version_flag("--version", "cox " + std::string(version));
  app.require_subcommand(0, 1);
  BenchCommand bench(app);
  ConfigCommand config(app);
  DevicesCommand devices(app);
  DoctorCommand doctor(app);
  StressCommand stress(app);
  RunCommand run(app);
  const auto complain = [&](const std::string& what, ExitCode code) {
    err << spoken_name(app) << ": " << first_line(what) << "\n";
    return code;
  };
  try {
    const auto mark = std::ranges::find(arguments, "--");
    app.parse(reversed(arguments.begin(), mark));
    if (app.get_subcommands().empty())
      throw ArgumentError("a subcommand is needed: bench, config, devices, doctor, run or stress; see cox --help");
    // The program's settings are its own: they are not applied to this process.
    if (run.chosen()) return run.run({mark == arguments.end() ? mark : mark + 1, arguments.end()}, err);
    if (mark != arguments.end()) throw ArgumentError("'--' goes before a program, which only cox run takes");
    apply_settings();  // first, so that every command says the same of bad settings
    if (bench.chosen()) return bench.run(out, err);
    if (config.chosen()) return config.run(out, err);
    if (devices.chosen()) return devices.run(out);
    if (doctor.chosen()) return doctor.run(out, err);
    return stress.run(out, err);
  } catch (const CLI::Success& request) {  // --help, --version
    static_cast<void>(app.exit(request, out, err));
    return ExitCode::Ok;
  } catch (const CLI::ParseError& error) {
    return complain(error.what(), ExitCode::BadArguments);
  } catch (const ArgumentError& error) {
    return complain(error.what(), ExitCode::BadArguments);
  } catch (const ConfigError& error) {
    return complain(error.what(), ExitCode::BadArguments);
  } catch (const DeviceUnavailable& error) {
    return complain(error.what(), ExitCode::NoDevice);
  }
}

}  // namespace cox::tools
