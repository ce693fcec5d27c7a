#include <coxswain/tools/cox/stress/agenda.hpp>

#include <algorithm>

namespace cox::stress {
namespace {

constexpr std::uint64_t agenda_seed = 0xA6E4;

}  // namespace

Agenda::Agenda(const Options& options)
    : options_(options),
      seed_(Random::derived(options.seed, agenda_seed)),
      mix_(options.mix.only_collectives()),
      end_(options.shared->rounds.value_or(std::numeric_limits<std::uint64_t>::max())),
      granted_(std::min(batch, end_)) {}

Plan Agenda::plan(std::uint64_t number) const noexcept {
  Random random(Random::derived(seed_, number));
  Plan plan{.number = number};
  plan.operation = is_vote(number) ? Operation::AllReduce : mix_.pick(random);
  if (!is_vote(number)) plan.fault = options_.faults.pick(plan.operation, random);
  plan.bytes = options_.payload.pick(random);
  plan.choice = random.next();
  return plan;
}

void Agenda::decide(std::uint64_t number, bool stop) {
  const std::lock_guard lock(mutex_);
  if (stop) end_ = std::min(end_, number + batch);
  granted_ = std::min(end_, std::max(granted_, number + 2 * batch));
}

bool Agenda::is_over() const {
  const std::lock_guard lock(mutex_);
  return next_ >= end_;
}

bool Agenda::is_complete() const {
  const std::lock_guard lock(mutex_);
  return options_.shared->rounds == end_ && next_ >= end_;
}

}  // namespace cox::stress
