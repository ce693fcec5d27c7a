#include <coxswain/servers/cuda/driver/last_fault.hpp>

#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_file.hpp>
#include <coxswain/tests/support/variable.hpp>

using cox::test::TemporaryFile;
using cox::test::Variable;

TEST_CASE("The last fault is what the file that COX_LAST_FAULT names holds, if there is one") {
  CHECK_FALSE(cox::last_gpu_fault());
  const TemporaryFile file("{\"code\": 700}\n");
  {
    const Variable variable("COX_LAST_FAULT", file.path());
    CHECK(cox::last_gpu_fault() == "{\"code\": 700}\n");
    file.write({});
    CHECK(cox::last_gpu_fault() == "");
  }
  const Variable variable("COX_LAST_FAULT", "/no/such/file");
  CHECK_FALSE(cox::last_gpu_fault());
}
