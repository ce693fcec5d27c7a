#include <coxswain/tools/cox/doctor_command.hpp>

#include <coxswain/tools/cox/doctor/check.hpp>
#include <coxswain/tools/cox/doctor/gather.hpp>
#include <coxswain/tools/cox/doctor/report.hpp>
#include <coxswain/tools/cox/output_file.hpp>

#include <CLI/CLI.hpp>

#include <string_view>

namespace cox::tools {
namespace {

constexpr std::string_view standard_output = "-";

}  // namespace

DoctorCommand::DoctorCommand(CLI::App& app)
    : command_(*app.add_subcommand("doctor", "Look for what is wrong with the machine, and say how to mend it")) {
  command_.add_option("--json", json_, "Write the findings to this file; -: here, instead of the table");
}

bool DoctorCommand::chosen() const { return command_.parsed(); }

ExitCode DoctorCommand::run(std::ostream& out, std::ostream& err) const {
  const bool to_file = !json_.empty() && json_ != standard_output;
  if (to_file) require_writable("--json", json_);
  const Facts facts = gather_facts();
  const Findings findings = check(facts);
  const ExitCode code = all_well(findings) ? ExitCode::Ok : ExitCode::Violation;
  if (json_ == standard_output) {
    out << doctor_json(facts, findings);
    return code;
  }
  write_doctor_table(facts, findings, out);
  if (!to_file || write_file(json_, doctor_json(facts, findings))) return code;
  err << "cox doctor: --json: '" << json_ << "' could not be written\n";
  return ExitCode::Violation;
}

}  // namespace cox::tools
