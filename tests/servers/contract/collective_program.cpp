#include <coxswain/tests/servers/contract/collective_program.hpp>

#include <algorithm>
#include <numeric>
#include <utility>

namespace cox::test {

using enum CollectiveOperation;

namespace {

template <class Random>
std::size_t below(Random& random, std::size_t bound) {
  return std::uniform_int_distribution<std::size_t>(0, bound - 1)(random);
}
template <class Random>
bool chance(Random& random, double share) {
  return std::bernoulli_distribution(share)(random);
}

std::uint32_t reduced(ReduceOperation operation, std::uint32_t a, std::uint32_t b) {
  switch (operation) {
    case ReduceOperation::Min: return std::min(a, b);
    case ReduceOperation::Max: return std::max(a, b);
    case ReduceOperation::Product: return a * b;
    default: return a + b;
  }
}

using Buffers = std::vector<std::vector<CollectiveProgram::Buffer>>;

// Elements [first, first + count) of all ranks' sources, reduced.
CollectiveProgram::Buffer reduction(const ProgramStep& step, const Buffers& sources, std::size_t first) {
  CollectiveProgram::Buffer result(step.count);
  for (std::size_t i = 0; i < step.count; ++i) {
    result[i] = sources[0][0][first + i];
    for (std::size_t rank = 1; rank < step.parts.size(); ++rank)
      result[i] = reduced(step.reduce_operation, result[i], sources[rank][0][first + i]);
  }
  return result;
}

void put(CollectiveProgram::Buffer& to, std::size_t at, const CollectiveProgram::Buffer& from, std::size_t first,
         std::size_t count) {
  std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(first), count, to.begin() + static_cast<std::ptrdiff_t>(at));
}

void communicate(const ProgramStep& step, Buffers& buffers) {
  Buffers sources;  // as they were before
  for (const ProgramStep::Part& part : step.parts) sources.push_back({buffers[part.device][part.source]});
  const std::size_t ranks = step.parts.size();
  const std::size_t count = step.count;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const ProgramStep::Part& part = step.parts[rank];
    CollectiveProgram::Buffer& to = buffers[part.device][part.destination];
    switch (step.operation) {
      case AllReduce: put(to, 0, reduction(step, sources, 0), 0, count); break;
      case Reduce:
        if (rank == step.root) put(to, 0, reduction(step, sources, 0), 0, count);
        break;
      case Broadcast: put(to, 0, sources[step.root][0], 0, count); break;
      case AllGather:
        for (std::size_t from = 0; from < ranks; ++from) put(to, from * count, sources[from][0], 0, count);
        break;
      case ReduceScatter: put(to, 0, reduction(step, sources, rank * count), 0, count); break;
      case AllToAll:
        for (std::size_t from = 0; from < ranks; ++from) put(to, from * count, sources[from][0], rank * count, count);
        break;
      case Send:
        if (rank == 1) put(to, 0, sources[0][0], 0, count);
        break;
      default: break;
    }
  }
}

}  // namespace

CollectiveProgram::CollectiveProgram(std::uint64_t seed, const ProgramShape& shape)
    : shape_(shape), calls_(shape.devices) {
  Random random(seed);
  choose_communicators(random);
  bool misses_rank = false;
  while (steps_.size() < shape_.operations) {
    ProgramStep step = choose_step(random);
    if (step.fault == ProgramFault::MissingRank && std::exchange(misses_rank, true)) continue;  // it takes its deadline
    for (std::size_t part = 0; part < step.parts.size(); ++part)
      calls_[step.parts[part].device].push_back({steps_.size(), part});
    steps_.push_back(std::move(step));
  }
  for (std::vector<Call>& calls : calls_) reorder(calls, random);
}

void CollectiveProgram::choose_communicators(Random& random) {
  std::vector<std::size_t> all(shape_.devices);
  std::iota(all.begin(), all.end(), std::size_t{0});
  while (communicators_.size() < shape_.communicators) {
    std::ranges::shuffle(all, random);
    const std::size_t size = 2 + below(random, shape_.devices - 1);
    std::vector<std::size_t> devices(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(size));
    std::ranges::sort(devices);
    communicators_.push_back(std::move(devices));
  }
}

ProgramStep CollectiveProgram::choose_step(Random& random) const {
  if (chance(random, 0.6)) return choose_communication(random);
  ProgramStep step;
  const std::size_t kind = below(random, 8);
  step.kind = kind < 5 ? StepKind::Kernel : kind < 7 ? StepKind::Renew : StepKind::Wait;
  step.number = static_cast<std::uint32_t>(random());
  const std::size_t buffer = below(random, shape_.buffers);
  step.parts.push_back({below(random, shape_.devices), below(random, shape_.streams), buffer, buffer});
  return step;
}

ProgramStep CollectiveProgram::choose_communication(Random& random) const {
  constexpr CollectiveOperation operations[] = {AllReduce,     Reduce,   Broadcast, AllGather,
                                                ReduceScatter, AllToAll, Barrier,   Send};
  constexpr ReduceOperation reductions[] = {ReduceOperation::Sum, ReduceOperation::Min, ReduceOperation::Max,
                                            ReduceOperation::Product};
  ProgramStep step;
  step.kind = chance(random, 0.1) ? StepKind::Group : StepKind::Collective;
  step.operation = step.kind == StepKind::Group ? AllReduce : operations[below(random, std::size(operations))];
  step.reduce_operation = reductions[below(random, std::size(reductions))];
  choose_fault(step, random);
  std::vector<std::size_t> devices = communicators_[below(random, communicators_.size())];
  if (step.fault == ProgramFault::MissingRank) {
    devices.resize(shape_.devices);
    std::iota(devices.begin(), devices.end(), std::size_t{0});
  }
  if (step.operation == Send) {
    std::ranges::shuffle(devices, random);
    devices.resize(2);
  }
  const CollectiveOperationFacts& facts = facts_of(step.operation);
  const bool all_size = facts.input_of_all_size || facts.output_of_all_size;
  step.count = below(random, buffer_elements / (all_size ? devices.size() : 1)) + 1;
  step.root = below(random, devices.size());
  for (const std::size_t device : devices) {
    const std::size_t source = below(random, shape_.buffers);
    std::size_t destination = below(random, shape_.buffers);
    const bool in_place = step.operation == AllReduce || step.operation == Reduce || step.operation == Broadcast;
    if (source == destination && !in_place) destination = (source + 1) % shape_.buffers;
    // What fails is on a stream of its own, which nothing else is on.
    const std::size_t stream = step.fault == ProgramFault::None ? below(random, shape_.streams) : shape_.streams;
    step.parts.push_back({device, stream, source, destination});
  }
  return step;
}

void CollectiveProgram::choose_fault(ProgramStep& step, Random& random) const {
  if (!chance(random, shape_.faults) || step.operation == Barrier || step.operation == Send) return;
  constexpr ProgramFault faults[] = {ProgramFault::Mismatch, ProgramFault::StaleHandle, ProgramFault::MissingRank};
  step.fault = faults[below(random, std::size(faults))];
  step.kind = StepKind::Collective;
  step.operation = AllReduce;
}

void CollectiveProgram::reorder(std::vector<Call>& calls, Random& random) const {
  for (std::size_t attempts = 3 * calls.size(); attempts != 0 && calls.size() > 1; --attempts) {
    const std::size_t at = below(random, calls.size() - 1);
    if (may_swap(calls[at], calls[at + 1])) std::swap(calls[at], calls[at + 1]);
  }
}

bool CollectiveProgram::may_swap(const Call& first, const Call& second) const {
  const ProgramStep& a = steps_[first.step];
  const ProgramStep& b = steps_[second.step];
  if (a.kind == StepKind::Wait || b.kind == StepKind::Wait) return false;
  const auto devices = [](const ProgramStep& step) {
    std::vector<std::size_t> all;
    for (const ProgramStep::Part& part : step.parts) all.push_back(part.device);
    std::ranges::sort(all);
    return all;
  };
  if (devices(a) == devices(b)) return false;
  const ProgramStep::Part& p = a.parts[first.part];
  const ProgramStep::Part& q = b.parts[second.part];
  return p.stream != q.stream && p.source != q.source && p.source != q.destination && p.destination != q.source &&
         p.destination != q.destination;
}

CollectiveProgram::Buffer CollectiveProgram::initial(std::size_t device, std::size_t buffer) {
  Buffer numbers(buffer_elements);
  std::iota(numbers.begin(), numbers.end(), static_cast<std::uint32_t>(10'000 * device + 1000 * buffer + 1));
  return numbers;
}

std::vector<std::vector<CollectiveProgram::Buffer>> CollectiveProgram::outcome() const {
  Buffers buffers(shape_.devices);
  for (std::size_t device = 0; device < shape_.devices; ++device)
    for (std::size_t buffer = 0; buffer < shape_.buffers; ++buffer) buffers[device].push_back(initial(device, buffer));
  for (const ProgramStep& step : steps_) {
    if (step.fault != ProgramFault::None || step.kind == StepKind::Wait) continue;
    if (step.kind == StepKind::Collective || step.kind == StepKind::Group) {
      communicate(step, buffers);
      continue;
    }
    Buffer& buffer = buffers[step.parts[0].device][step.parts[0].source];
    for (std::uint32_t& element : buffer)
      element = step.kind == StepKind::Renew ? step.number : element * 3 + step.number;
  }
  return buffers;
}

}  // namespace cox::test
