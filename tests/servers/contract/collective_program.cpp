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

using Buffers = std::vector<std::vector<CollectiveProgram::Content>>;

// Elements [first, first + count) of all ranks' sources, reduced.
CollectiveProgram::Buffer reduction(const ProgramStep& step, const std::vector<CollectiveProgram::Buffer>& sources,
                                    std::size_t first) {
  CollectiveProgram::Buffer result(step.count);
  for (std::size_t i = 0; i < step.count; ++i) {
    result[i] = sources[0][first + i];
    for (std::size_t rank = 1; rank < step.parts.size(); ++rank)
      result[i] = reduced(step.reduce_operation, result[i], sources[rank][first + i]);
  }
  return result;
}

void put(CollectiveProgram::Buffer& to, std::size_t at, const CollectiveProgram::Buffer& from, std::size_t first,
         std::size_t count) {
  std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(first), count, to.begin() + static_cast<std::ptrdiff_t>(at));
}

void communicate(const ProgramStep& step, Buffers& buffers) {
  std::vector<CollectiveProgram::Buffer> sources;  // as they were before
  for (const ProgramStep::Part& part : step.parts) sources.push_back(buffers[part.device][part.source].numbers);
  const std::size_t ranks = step.parts.size();
  const std::size_t count = step.count;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const ProgramStep::Part& part = step.parts[rank];
    CollectiveProgram::Buffer& to = buffers[part.device][part.destination].numbers;
    switch (step.operation) {
      case AllReduce: put(to, 0, reduction(step, sources, 0), 0, count); break;
      case Reduce:
        if (rank == step.root) put(to, 0, reduction(step, sources, 0), 0, count);
        break;
      case Broadcast: put(to, 0, sources[step.root], 0, count); break;
      case AllGather:
        for (std::size_t from = 0; from < ranks; ++from) put(to, from * count, sources[from], 0, count);
        break;
      case ReduceScatter: put(to, 0, reduction(step, sources, rank * count), 0, count); break;
      case AllToAll:
        for (std::size_t from = 0; from < ranks; ++from) put(to, from * count, sources[from], rank * count, count);
        break;
      case Send:
        if (rank == 1) put(to, 0, sources[0], 0, count);
        break;
      default: break;
    }
  }
}

bool reads_source(const ProgramStep& step, std::size_t rank) {
  if (step.operation == Broadcast) return rank == step.root;
  if (step.operation == Send) return rank == 0;
  return step.operation != Barrier;
}
bool writes_destination(const ProgramStep& step, std::size_t rank) {
  if (step.operation == Reduce) return rank == step.root;
  if (step.operation == Send) return rank == 1;
  return step.operation != Barrier;
}

/// A program, carried out operation by operation.
class Execution {
 public:
  using Outcome = CollectiveProgram::Outcome;
  using Content = CollectiveProgram::Content;

  Execution(const ProgramShape& shape, const CollectiveProgram::Promises& promises) : promises_(promises) {
    outcome_.buffers.resize(shape.devices);
    outcome_.failures.assign(shape.devices, std::vector<std::vector<ProgramFailure>>(shape.streams));
    for (std::size_t device = 0; device < shape.devices; ++device)
      for (std::size_t buffer = 0; buffer < shape.buffers; ++buffer)
        outcome_.buffers[device].push_back({CollectiveProgram::initial(device, buffer)});
  }

  void run(const ProgramStep& step, std::size_t number) {
    number_ = number;
    if (step.fault != ProgramFault::None) return;
    if (step.kind == StepKind::Collective || step.kind == StepKind::Group) return run_together(step);
    const ProgramStep::Part& part = step.parts[0];
    Content& content = outcome_.buffers[part.device][part.destination];
    const bool is_whole = step.count == buffer_elements;
    switch (step.kind) {
      case StepKind::Kernel:
        if (!is_refused(part, {content.poison}))
          for (std::uint32_t& element : content.numbers) element = element * 3 + step.number;
        break;
      case StepKind::Copy: {
        const Content& source = outcome_.buffers[part.device][part.source];
        if (!is_refused(part, {source.poison, step.overwrites ? nullptr : content.poison}))
          content = {source.numbers, nullptr, source.is_known};
        break;
      }
      case StepKind::Overwrite:
      case StepKind::Write:
        std::fill_n(content.numbers.begin() + static_cast<std::ptrdiff_t>(step.first), step.count, step.number);
        if (is_whole) content = {std::move(content.numbers)};
        break;
      case StepKind::Renew: content = {CollectiveProgram::Buffer(buffer_elements, step.number)}; break;
      case StepKind::Read: outcome_.reads[number] = content; break;
      case StepKind::Accept: content.poison = nullptr; break;
      case StepKind::Fail: fail(step, content); break;
      default: break;
    }
  }
  [[nodiscard]] Outcome outcome() && { return std::move(outcome_); }

 private:
  void run_together(const ProgramStep& step) {
    ProgramCause::Causes causes;
    bool is_known = true;
    for (std::size_t rank = 0; rank < step.parts.size(); ++rank) {
      if (!reads_source(step, rank)) continue;
      const Content& source = outcome_.buffers[step.parts[rank].device][step.parts[rank].source];
      causes.push_back(source.poison);
      is_known = is_known && source.is_known;
    }
    const auto cause = join(causes);
    if (cause == nullptr) communicate(step, outcome_.buffers);
    const CollectiveOperationFacts& facts = facts_of(step.operation);
    const std::size_t written = step.count * (facts.output_of_all_size ? step.parts.size() : 1);
    for (std::size_t rank = 0; rank < step.parts.size(); ++rank) {
      const ProgramStep::Part& part = step.parts[rank];
      Content& to = outcome_.buffers[part.device][part.destination];
      if (cause != nullptr) note_failure(part, ProgramFailure::Kind::RankFailed, cause);
      if (!writes_destination(step, rank)) continue;
      if (cause != nullptr) {
        poison(to, cause);
      } else if (step.kind == StepKind::Collective && written == buffer_elements) {
        to = {std::move(to.numbers), nullptr, is_known};
      } else {  // also of a group, which writes it in two parts
        to.is_known = to.is_known && is_known;
      }
    }
  }

  // An operation of one device that may read memory with these causes.
  bool is_refused(const ProgramStep::Part& part, const ProgramCause::Causes& causes) {
    const auto cause = join(causes);
    if (cause == nullptr) return false;
    poison(outcome_.buffers[part.device][part.destination], cause);
    note_failure(part, ProgramFailure::Kind::Poisoned, cause);
    return true;
  }
  // Of an operation that is refused.
  void poison(Content& content, const std::shared_ptr<ProgramCause>& cause) const {
    add(content.poison, cause);
    content.is_known = content.is_known && promises_.keeps_contents;
  }
  void add(std::shared_ptr<ProgramCause>& poison, const std::shared_ptr<ProgramCause>& cause) const {
    if (poison == nullptr || !promises_.keeps_first_cause) poison = join({poison, cause});
  }
  void fail(const ProgramStep& step, Content& content) {
    const auto cause = std::make_shared<ProgramCause>(number_);
    const bool was_poisoned = content.poison != nullptr;
    add(content.poison, cause);
    if (step.failure != ProgramFailure::Kind::Late || !was_poisoned)
      return note_failure(step.parts[0], step.failure, cause);
    // A kernel may read the memory: it is not run.
    note_failure(step.parts[0],
                 promises_.keeps_first_cause ? ProgramFailure::Kind::Poisoned : ProgramFailure::Kind::LateOrPoisoned,
                 content.poison);
  }
  void note_failure(const ProgramStep::Part& part, ProgramFailure::Kind kind,
                    const std::shared_ptr<ProgramCause>& cause) {
    outcome_.failures[part.device][part.stream].push_back({kind, cause, number_});
  }

  const CollectiveProgram::Promises promises_;
  Outcome outcome_;
  std::size_t number_ = 0;  // of the step
};

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
  step.number = static_cast<std::uint32_t>(random());
  const std::size_t buffer = below(random, shape_.buffers);
  step.parts.push_back({below(random, shape_.devices), below(random, shape_.streams), buffer, buffer});
  choose_local(step, random);
  return step;
}

void CollectiveProgram::choose_local(ProgramStep& step, Random& random) const {
  using enum StepKind;
  constexpr StepKind kinds[] = {Kernel,    Kernel, Kernel, Kernel, Copy, Copy, Overwrite,
                                Overwrite, Write,  Write,  Renew,  Wait, Read, Read};
  constexpr ProgramFailure::Kind failures[] = {ProgramFailure::Kind::ArgumentCount, ProgramFailure::Kind::Late,
                                               ProgramFailure::Kind::WriteSize, ProgramFailure::Kind::MissingFile};
  ProgramStep::Part& part = step.parts[0];
  step.kind = kinds[below(random, std::size(kinds))];
  if (chance(random, shape_.failures)) step.kind = chance(random, 0.3) ? Accept : Fail;
  step.count = buffer_elements;
  if (chance(random, 0.4)) {
    step.first = below(random, buffer_elements);
    step.count = 1 + below(random, buffer_elements - step.first);
  }
  step.failure = failures[below(random, std::size(failures))];
  step.overwrites = chance(random, 0.5);
  step.is_held_up = chance(random, 0.3);
  if (step.kind == Copy) part.destination = (part.source + 1) % shape_.buffers;
  // Nothing fails on the stream of the reads: each reports its own failure.
  if (step.kind == Read) part.stream = shape_.streams + 1;
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
  const std::size_t most = buffer_elements / (all_size ? devices.size() : 1);
  step.count = chance(random, 0.3) ? most : below(random, most) + 1;
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

CollectiveProgram::Outcome CollectiveProgram::outcome(const Promises& promises) const {
  Execution execution(shape_, promises);
  for (std::size_t step = 0; step < steps_.size(); ++step) execution.run(steps_[step], step);
  return std::move(execution).outcome();
}

}  // namespace cox::test
