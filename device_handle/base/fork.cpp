#include <coxswain/device_handle/base/fork.hpp>

#include <coxswain/device_handle/base/call_error.hpp>

#include <source_location>

namespace cox {
namespace {

constinit bool forked = false;  // written only in the child, while it has one thread

}  // namespace

void throw_if_forked(DeviceId device) {
  if (!forked) return;
  throw CallError(CallError::Kind::Forked,
                  "call refused: forked: this process is a forked child, the threads of " + device.to_string() +
                      " stayed with its parent",
                  std::source_location());
}

bool detail::is_forked() noexcept { return forked; }
void detail::set_forked() noexcept { forked = true; }

}  // namespace cox
