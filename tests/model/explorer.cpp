#include <coxswain/tests/model/explorer.hpp>

#include <coxswain/tests/model/engine.hpp>

#include <stdexcept>
#include <utility>

namespace cox::model {

std::string Result::to_string() const {
  std::string text = std::to_string(executions) + " executions, " + std::to_string(pruned) + " repetitions, " +
                     std::to_string(steps) + " steps, " + (complete ? "complete" : "not complete");
  if (failure) text += "\n" + failure->message + "\n" + failure->trace;
  return text;
}

void Execution::thread(std::string name, std::function<void()> body) {
  engine_.add_thread(std::move(name), std::move(body));
}
void Execution::finally(std::function<void()> check) { engine_.set_finally(std::move(check)); }
void Execution::name(const void* address, std::string_view text, std::size_t bytes) {
  engine_.add_name(address, text, bytes);
}

Result Explorer::run(const std::function<void(Execution&)>& set_up) const {
  if (options_.reduction == Reduction::SleepSets &&
      (options_.preemption_bound != ExplorerOptions::unlimited || options_.tied_stamps)) {
    throw std::invalid_argument("sleep sets need an unlimited preemption bound and no tied stamps");
  }
  Engine engine{options_, set_up};
  return engine.search();
}

void model_assert(bool holds, const char* message) {
  if (holds) return;
  if (active_engine == nullptr) throw std::logic_error(message);
  active_engine->fail(message);
}

unsigned model_choose(unsigned count) {
  if (active_engine == nullptr) throw std::logic_error("model_choose outside of an execution");
  return active_engine->choose(count);
}

int model_thread() noexcept { return active_engine == nullptr ? -1 : active_engine->running_thread(); }

}  // namespace cox::model
