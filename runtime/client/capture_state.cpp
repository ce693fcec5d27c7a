#include <coxswain/runtime/client/capture_state.hpp>

#include <coxswain/runtime/error/server_error.hpp>

#include <string>

namespace cox {
namespace {

using State = CaptureState::State;
using Call = CaptureState::Call;

// The one call that is valid in each state, and the state that follows it.
struct Step {
  Call expected;
  State next;
  std::string_view doing;
};

constexpr std::array steps{
    Step{Call::Prepare, State::Prepare, "captures no graph"},
    Step{Call::Start, State::Capture, "is prepared for a capture"},
    Step{Call::Stop, State::NoCapture, "is capturing a graph"},
};
static_assert(steps.size() == static_cast<std::size_t>(State::Capture) + 1);

const Step& step_of(State state) noexcept { return steps[static_cast<std::size_t>(state)]; }

std::string name_of(Call call) { return std::string(CaptureState::call_names[static_cast<std::size_t>(call)]); }

}  // namespace

void CaptureState::require(Call call, std::source_location site) const {
  const Step& step = step_of(state_);
  if (call == step.expected) return;
  throw ServerError(ServerError::Kind::Graph,
                    name_of(call) + " is out of order: " + location_.to_string() + " " + std::string(step.doing) +
                        "; expected " + name_of(step.expected),
                    site);
}

void CaptureState::advance(Call call, std::source_location site) {
  require(call, site);
  state_ = step_of(state_).next;
}

}  // namespace cox
