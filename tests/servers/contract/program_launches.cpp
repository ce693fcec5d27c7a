#include <coxswain/tests/servers/contract/random_program.hpp>

#include <algorithm>
#include <array>
#include <span>

namespace cox::test {
namespace {

/// Whether it writes all of its outputs and reads none of them, if there are enough cubes.
bool overwrites_all(ProgramKernel kernel) {
  return kernel == ProgramKernel::Fill || kernel == ProgramKernel::Copy || kernel == ProgramKernel::Permute ||
         kernel == ProgramKernel::Count;
}

}  // namespace

template <class Backend>
bool RandomProgram<Backend>::add_argument(std::vector<Argument>& arguments, bool written) {
  for (int tries = 0; tries < 4; ++tries) {
    const ProgramWindow& whole = windows_[any_window()];
    if (!whole.region->defined || whole.size() < 4 || (written && whole.region->constant)) continue;
    ProgramWindow window = any_part(whole, 4);
    const bool conflicts = std::ranges::any_of(
        arguments, [&](const Argument& other) { return (written || other.written) && other.window.overlaps(window); });
    if (conflicts) continue;
    arguments.push_back({std::move(window), written});
    return true;
  }
  return false;
}

// All arguments side by side in one buffer.
template <class Backend>
bool RandomProgram<Backend>::split_argument(std::vector<Argument>& arguments, const ProgramJob& job) {
  const std::size_t count = job.ins + job.outs;
  const ProgramWindow& whole = windows_[any_window()];
  const std::size_t each = whole.size() / 4 / count;
  if (!whole.region->defined || whole.region->constant || each == 0) return false;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t length = between(1, each);
    arguments.push_back({whole.part(4 * i * each, 4 * length), i >= job.ins});
  }
  return true;
}

template <class Backend>
void RandomProgram<Backend>::launch() {
  const std::size_t which = below(program_jobs.size());
  const ProgramJob& job = program_jobs[which];
  std::vector<Argument> arguments;
  if (!one_in(5) || !split_argument(arguments, job)) {
    arguments.clear();
    for (std::size_t i = 0; i < job.ins + job.outs; ++i)
      if (!add_argument(arguments, i >= job.ins)) return;
  }
  const ProgramScalars scalars{static_cast<std::uint32_t>(random_() | 1U), static_cast<std::uint32_t>(random_()),
                               static_cast<std::uint32_t>(one_in(4) ? between(2, 12) : 1)};
  const Handle used = arguments[below(arguments.size())].window.handle;
  submit_launch(job, std::move(arguments), scalars, false);
  if (!one_in(8) || windows_.size() < 16) return;
  // Right after the launch that uses it.
  for (std::size_t i = windows_.size(); i-- > 0;)
    if (windows_[i].handle.memory().memory() == used.memory().memory() && !windows_[i].region->constant) drop_window(i);
}

template <class Backend>
typename RandomProgram<Backend>::Cubes RandomProgram<Backend>::any_cubes(const Client& client) {
  if (!one_in(4)) {
    const auto cubes = static_cast<std::uint32_t>(one_in(2) ? cubes_for_all : between(1, 6));
    return {one_in(2) ? CubeCount::of_1d(cubes) : CubeCount(1, cubes, 1), cubes, nullptr};
  }
  const ProgramWindow& counts = counts_[below(counts_.size())];
  const ProgramWindow window = counts.part(4 * below(counts.size() / 4 - 2), 12);
  std::uint64_t cubes = 1;
  for (const std::uint32_t extent : window.words()) cubes *= extent;
  counts.region->touch(step_, client.stream_id().value, "cube count");
  return {CubeCount::dynamic(window.handle), cubes, counts.region->poison()};
}

template <class Backend>
typename RandomProgram<Backend>::Cubes RandomProgram<Backend>::too_many_cubes(const Client& client) {
  constexpr std::array<std::uint32_t, 3> count{1, 1, 70'000};
  make_room(64);
  const Handle handle = client.create_from_slice(std::span<const std::uint32_t>(count));
  static_cast<void>(storage_of(handle.size()));  // dropped at once
  return {CubeCount::dynamic(handle), 0, nullptr};
}

template <class Backend>
typename RandomProgram<Backend>::Fault RandomProgram<Backend>::any_fault() {
  if (!options_.failures || !one_in(100)) return Fault::None;
  return one_in(2) ? Fault::ArgumentCount : Fault::CubeCount;
}

template <class Backend>
void RandomProgram<Backend>::submit_launch(const ProgramJob& job, std::vector<Argument> arguments,
                                           const ProgramScalars& scalars, bool all_cubes) {
  const Client& client = any_stream();
  const Fault fault = all_cubes ? Fault::None : any_fault();
  Cubes cubes{CubeCount::of_1d(cubes_for_all), cubes_for_all, nullptr};
  if (!all_cubes) cubes = fault == Fault::CubeCount ? too_many_cubes(client) : any_cubes(client);
  const bool overwrites = cubes.number >= cubes_for_all && overwrites_all(job.kernel) && one_in(2);
  KernelArguments given;
  ProgramCause::Causes read{cubes.poison};
  std::vector<const Argument*> written;
  ProgramOperands operands;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const Argument& argument = arguments[i];
    const auto overlaps = [&](const Argument& other) {
      return &other != &argument && other.window.overlaps(argument.window);
    };
    // What is only read may be given as written too, if nothing else of the launch looks at it.
    const bool as_written = argument.written || (!argument.window.region->constant && one_in(8) &&
                                                 std::ranges::none_of(arguments, overlaps));
    const Access access = argument.written && overwrites ? Access::Overwrite
                          : as_written                   ? Access::Write
                                                         : Access::Read;
    given = std::move(given).with_buffer(argument.window.handle, access);
    if (access != Access::Overwrite) read.push_back(argument.window.region->poison());
    if (access != Access::Read) written.push_back(&argument);
    if (i < job.ins) {
      operands.in[i] = argument.window.words();
    } else {
      operands.out[i - job.ins] = argument.window.words();
    }
    argument.window.region->touch(step_, client.stream_id().value, job.name);
  }
  given = std::move(given).with_scalar(scalars.factor).with_scalar(scalars.summand).with_scalar(scalars.passes);
  for (const Argument& argument : arguments)
    given = std::move(given).with_scalar(static_cast<std::uint32_t>(argument.window.size() / 4));
  if (fault == Fault::ArgumentCount) given = std::move(given).with_buffer(arguments[0].window.handle, Access::Read);
  const bool counts = job.kernel == ProgramKernel::Count;
  const Kernel& kernel = counts ? count_kernel_ : kernels_[static_cast<std::size_t>(&job - program_jobs.data())];
  client.launch(kernel, std::move(cubes.count), std::move(given));

  std::shared_ptr<ProgramCause> cause = fault == Fault::ArgumentCount ? nullptr : join(read);
  if (cause != nullptr || fault != Fault::None) {
    auto kind = ProgramFailure::Kind::Poisoned;
    if (cause == nullptr) {
      cause = std::make_shared<ProgramCause>(step_);
      kind = fault == Fault::CubeCount ? ProgramFailure::Kind::CubeCount : ProgramFailure::Kind::ArgumentCount;
    }
    for (const Argument* argument : written) argument->window.region->storage->poison_with(cause);
    return note_failure(client, kind, cause);
  }
  for (std::uint64_t cube = 0; cube < cubes.number; ++cube) run_cube(job, scalars, cube, operands);
  if (!overwrites) return;
  for (const Argument& argument : arguments)
    if (argument.written && argument.window.is_whole_allocation()) argument.window.region->storage->heal();
}

// Changes a cube count, from the host or from the device.
template <class Backend>
void RandomProgram<Backend>::launch_count() {
  const std::size_t place = below(counts_.size());
  if (one_in(4)) return allocate_counts(place);
  std::vector<Argument> arguments;
  if (!add_argument(arguments, false)) return;
  arguments.push_back({any_part(counts_[place], 4), true});
  submit_launch(count_job, std::move(arguments), {}, false);
}

COX_INSTANTIATE_RANDOM_PROGRAM

}  // namespace cox::test
