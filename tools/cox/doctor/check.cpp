#include <coxswain/tools/cox/doctor/check.hpp>

namespace cox::tools {

Findings check(const Facts& facts) {
  Findings findings;
  check_libraries(facts, findings);
  check_gpus(facts, findings);
  check_limits(facts, findings);
  check_environment(facts, findings);
  return findings;
}

}  // namespace cox::tools
