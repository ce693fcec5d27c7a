#include <coxswain/tools/cox/supervisor/exclusive_devices.hpp>

#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/variable.hpp>
#include <coxswain/tests/tools/command.hpp>

#include <string>

using Catch::Matchers::ContainsSubstring;
using cox::test::Variable;
using cox::tools::Command;

TEST_CASE("A standby is refused where only one process at a time may use a GPU") {
  cox::set_settings({{"cuda.driver", std::string(COX_FAKE_CUDA)}});
  {
    const Variable exclusive("COX_FAKE_COMPUTE_MODE", "3");
    CHECK(cox::tools::exclusive_devices().starts_with("cuda:0, cuda:1"));
    const Command refused = Command::run({"run", "--standby", "--", "/bin/true"});
    CHECK(refused.code == cox::tools::ExitCode::Violation);
    CHECK_THAT(refused.err,
               ContainsSubstring("--standby needs two processes on each GPU, but only one at a time may use "
                                 "cuda:0, cuda:1"));
    CHECK(Command::run({"run", "--", "/bin/true"}).code == cox::tools::ExitCode::Ok);
  }
  CHECK(cox::tools::exclusive_devices().empty());
  CHECK(Command::run({"run", "--standby", "--", "/bin/true"}).code == cox::tools::ExitCode::Ok);
}
