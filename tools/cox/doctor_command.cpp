#include <coxswain/tools/cox/doctor_command.hpp>

#include <coxswain/tools/cox/doctor/check.hpp>
#include <coxswain/tools/cox/doctor/gather.hpp>
#include <coxswain/tools/cox/doctor/report.hpp>
#include <coxswain/tools/cox/output_file.hpp>

#include <CLI/CLI.hpp>

namespace cox::tools {

DoctorCommand::DoctorCommand(CLI::App& app)
    : command_(*app.add_subcommand("doctor", "Check the machine for problems, and show how to fix them")) {
  command_.add_option("--json", json_, "Write the findings to this file; -: to standard output, instead of the table");
}

bool DoctorCommand::chosen() const { return command_.parsed(); }

ExitCode DoctorCommand::run(std::ostream& out, std::ostream& err) const {
  const bool to_file = !json_.empty() && json_ != standard_output;
  if (to_file) require_writable("--json", json_);
  const Facts facts = gather_facts();
  const Findings findings = check(facts);
  const ExitCode code = all_passed(findings) ? ExitCode::Ok : ExitCode::Violation;
  if (json_ == standard_output) {
    out << doctor_json(facts, findings);
    return code;
  }
  const bool delivered =
      !to_file || is_written(write_file(json_, doctor_json(facts, findings)), "cox doctor", "--json", json_, err);
  write_doctor_table(facts, findings, out);
  return delivered ? code : ExitCode::Violation;
}

}  // namespace cox::tools
