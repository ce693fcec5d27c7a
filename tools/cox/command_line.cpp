#include <coxswain/tools/cox/command_line.hpp>

#include <coxswain/runtime/client/apply_settings.hpp>
#include <coxswain/runtime/config/config_error.hpp>
#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/runtime/config/setting.hpp>
#include <coxswain/tools/cox/argument_error.hpp>
#include <coxswain/tools/cox/bench_command.hpp>
#include <coxswain/tools/cox/config_command.hpp>
#include <coxswain/tools/cox/device_unavailable.hpp>
#include <coxswain/tools/cox/devices_command.hpp>
#include <coxswain/tools/cox/doctor_command.hpp>
#include <coxswain/tools/cox/run_command.hpp>
#include <coxswain/tools/cox/stress_command.hpp>
#include <coxswain/tools/cox/trace_command.hpp>
#include <coxswain/tools/cox/version.hpp>
#include <coxswain/tools/cox/world_command.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <iterator>
#include <new>
#include <optional>
#include <string_view>

namespace cox::tools {
namespace {

// If `wanted`, clears the settings log.file and trace.file while this object exists, so that neither file is written.
class WithoutFiles {
 public:
  explicit WithoutFiles(bool wanted) {
    for (const char* key : {"log.file", "trace.file"}) {
      if (!wanted || settings().get<std::string>(key).empty()) continue;
      keys_.emplace_back(key);
      set_settings({{key, std::string()}});
    }
  }
  WithoutFiles(const WithoutFiles&) = delete;
  WithoutFiles& operator=(const WithoutFiles&) = delete;
  ~WithoutFiles() {
    for (const std::string& key : keys_) reset_settings({key});
  }

 private:
  std::vector<std::string> keys_;
};

// "cox", or "cox stress" if the arguments name a subcommand.
std::string spoken_name(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? "cox" : "cox " + chosen.front()->get_name();
}

// The arguments in reverse order, as CLI11 expects them.
std::vector<std::string> reversed(std::vector<std::string>::const_iterator begin,
                                  std::vector<std::string>::const_iterator end) {
  return {std::make_reverse_iterator(end), std::make_reverse_iterator(begin)};
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// Replaces control characters, which a terminal would interpret, with \\xNN.
std::string printable(const std::string& text) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string shown;
  for (const char letter : text) {
    const auto code = static_cast<unsigned char>(letter);
    if (code >= 0x20 && code != 0x7f) {
      shown += letter;
    } else {
      shown += {'\\', 'x', digits[code >> 4U], digits[code & 0xfU]};
    }
  }
  return shown;
}

// The name in `names` that is nearest to an unknown word; nullopt if none is near.
std::optional<std::string> nearest(const std::string& word, const std::vector<std::string>& names) {
  constexpr std::size_t typing_error = 2;  // letters
  std::optional<std::string> found;
  std::size_t least = typing_error + 1;
  for (const std::string& name : names) {
    const bool begins = word.size() > typing_error && name.starts_with(word);
    const std::size_t distance = begins ? 0 : detail::edit_distance(word, name);
    if (distance >= least || distance >= word.size()) continue;
    least = distance;
    found = name;
  }
  return found;
}

// The error of CLI11, or a message that suggests the command or option that was probably meant.
std::string with_suggestion(const CLI::App& app, const std::vector<std::string>& arguments, const std::string& what) {
  const auto chosen = app.get_subcommands();
  std::vector<std::string> names;
  if (chosen.empty()) {
    for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  } else {
    for (const CLI::Option* option : chosen.front()->get_options())
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  if (const CLI::App* const run = app.get_subcommand("run");
      run->parsed() && std::ranges::find(arguments, "--") == arguments.end()) {
    const std::vector<std::string> rest = run->remaining();
    if (!rest.empty() && !rest.front().starts_with('-'))
      return "'--' is expected before the program: cox run [options] -- " + rest.front();
  }
  for (const std::string& argument : arguments) {
    const std::string word = argument.substr(0, argument.find('='));
    const bool is_option = word.starts_with("--");
    if (is_option == chosen.empty() || std::ranges::find(names, word) != names.end()) continue;
    if (!chosen.empty() && word == chosen.front()->get_name()) continue;
    if (const auto meant = nearest(word, names)) return "there is no '" + word + "'; the nearest is " + *meant;
    if (chosen.empty()) break;  // words after an unknown command are not commands either
  }
  return first_line(what);
}

// `code`, or Violation instead of Ok if the output could not be written to standard output.
ExitCode delivered(ExitCode code, const std::string& name, std::ostream& out, std::ostream& err) {
  if (out.flush()) return code;
  err << name << ": standard output could not be written\n" << std::flush;
  return code == ExitCode::Ok ? ExitCode::Violation : code;
}

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
  TraceCommand trace(app);
  WorldCommand world(app);
  RunCommand run(app);
  const auto done = [&](ExitCode code) { return delivered(code, spoken_name(app), out, err); };
  const auto complain = [&](const std::string& what, ExitCode code) {
    err << spoken_name(app) << ": " << printable(first_line(what)) << "\n";
    return code;
  };
  try {
    const auto mark = std::ranges::find(arguments, "--");
    app.parse(reversed(arguments.begin(), mark));
    if (app.get_subcommands().empty())
      throw ArgumentError(
          "a subcommand is needed: bench, config, devices, doctor, run, stress, trace or world; see cox --help");
    // The settings are for the program that `cox run` starts. They are not applied to this process.
    if (run.chosen()) return run.run({mark == arguments.end() ? mark : mark + 1, arguments.end()}, out, err);
    if (mark != arguments.end()) throw ArgumentError("only cox run takes '--' and a program");
    // Read the settings first, so that every command reports invalid settings in the same way. Commands that only show
    // information write no log and no trace.
    const bool only_shows = config.chosen() || devices.chosen() || doctor.chosen() || trace.chosen() || world.chosen();
    static_cast<void>(settings());
    const WithoutFiles without_files(only_shows && !config.chosen());
    if (!only_shows) apply_settings();
    if (bench.chosen()) return done(bench.run(out, err));
    if (config.chosen()) return done(config.run(out, err));
    if (devices.chosen()) return done(devices.run(out, err));
    if (doctor.chosen()) return done(doctor.run(out, err));
    if (world.chosen()) return done(world.run(out, err));
    if (trace.chosen()) return done(trace.run(out, err));
    return done(stress.run(out, err));
  } catch (const CLI::Success& request) {  // --help, --version
    static_cast<void>(app.exit(request, out, err));
    return done(ExitCode::Ok);
  } catch (const CLI::ParseError& error) {
    return complain(with_suggestion(app, arguments, error.what()), ExitCode::BadArguments);
  } catch (const ArgumentError& error) {
    return complain(error.what(), ExitCode::BadArguments);
  } catch (const ConfigError& error) {
    return complain(error.what(), ExitCode::BadArguments);
  } catch (const DeviceUnavailable& error) {
    return complain(error.what(), ExitCode::NoDevice);
  } catch (const std::bad_alloc&) {
    return complain("there is not enough memory", ExitCode::NoDevice);
  } catch (const std::exception& error) {
    return complain(error.what(), ExitCode::NoDevice);
  }
}

}  // namespace cox::tools
