#include <coxswain/tests/servers/host/random_program.hpp>

#include <algorithm>
#include <exception>
#include <iterator>
#include <optional>

namespace cox::test {
namespace {

constexpr std::size_t downloads_in_flight = 256;
constexpr std::size_t count_regions = 6;
constexpr std::size_t hot_windows = 12;
constexpr std::size_t steps_between_swaps = 64;

std::size_t on_device(std::size_t bytes) {
  return (bytes / HostServer::memory_alignment + 1) * HostServer::memory_alignment;
}

std::string history_of(const ProgramTouches& touches) {
  std::vector<ProgramTouch> sorted(touches.begin(), touches.end());
  std::ranges::sort(sorted, {}, &ProgramTouch::step);
  std::string text;
  for (const ProgramTouch& touch : sorted)
    if (touch.what != nullptr)
      text +=
          "\n    step " + std::to_string(touch.step) + ": " + touch.what + " on stream " + std::to_string(touch.stream);
  return text;
}

}  // namespace

RandomProgram::RandomProgram(const HostClient& client, const Options& options)
    : options_(options),
      random_(options.seed),
      streams_(options.streams, client),
      next_region_((options.seed << 32U) + 1) {
  for (HostClient& stream : streams_) stream.set_stream(StreamId::allocate());
  for (const ProgramJob& job : program_jobs) kernels_.push_back(program_kernel(job));
}

std::string RandomProgram::here() const {
  return "seed " + std::to_string(options_.seed) + ", step " + std::to_string(step_);
}

std::string RandomProgram::run() {
  try {
    for (std::size_t i = 0; i < count_regions; ++i) allocate_counts(i);
    while (failure_.empty() && step_ < options_.operations) {
      ++step_;
      step();
    }
    if (failure_.empty()) {
      std::ranges::copy(counts_, std::back_inserter(windows_));
      for (const ProgramWindow& window : windows_) {
        if (!window.region->defined) continue;
        const HostClient& client = any_stream();
        std::vector<Expected> expected;
        expected.push_back(expected_of(window, {window.bytes().begin(), window.bytes().end()}, client));
        expect(client.read_async(std::vector<Handle>{window.handle}), std::move(expected), client);
      }
      while (!downloads_.empty()) check(downloads_.size() - 1);
    }
    windows_.clear();
    counts_.clear();
    settle();
  } catch (const std::exception& error) {
    if (failure_.empty()) failure_ = here() + ": " + error.what();
  }
  return failure_;
}

void RandomProgram::step() {
  if (exchange_ && step_ % steps_between_swaps == 0) return swap_windows();
  if (one_in(8) && !downloads_.empty()) check(below(downloads_.size()));
  if (windows_.size() < 16) return allocate();
  const std::size_t choice = below(1000);
  if (choice < 110) return allocate();
  if (choice < 190) return write();
  if (choice < 250) return write_rows();
  if (choice < 620) return launch();
  if (choice < 660) return launch_count();
  if (choice < 780) return read();
  if (choice < 840) return read_rows();
  if (choice < 845) return read_now();
  if (choice < 890) return copy_handle();
  if (choice < 985) return drop();
  meet();
}

// The choice
// -------------------------------------------------------------------------------------------------------------------

// Half of the time one of a few: what several streams use at the same time.
std::size_t RandomProgram::any_window() {
  return below(one_in(2) ? std::min(hot_windows, windows_.size()) : windows_.size());
}

ProgramWindow RandomProgram::any_part(const ProgramWindow& whole, std::size_t multiple) {
  const std::size_t units = whole.size() / multiple;
  if (one_in(2) || units < 2) return whole;
  const std::size_t begin = below(units - 1);
  return whole.part(begin * multiple, between(1, units - begin) * multiple);
}

std::size_t RandomProgram::any_size() {
  if (one_in(24)) return 4 * between(options_.largest / 16, options_.largest / 4);
  const std::size_t scale = std::size_t{1} << below(11);
  return 4 * (scale + below(scale));
}

std::vector<std::uint32_t> RandomProgram::any_words(std::size_t count) {
  std::vector<std::uint32_t> words(count);
  auto value = static_cast<std::uint32_t>(random_());
  for (std::uint32_t& word : words) word = value = value * 1664525U + 1013904223U;
  return words;
}

// Allocation
// -------------------------------------------------------------------------------------------------------------------

std::shared_ptr<ProgramStorage> RandomProgram::storage_of(std::size_t bytes) {
  auto storage = std::make_shared<ProgramStorage>(on_device(bytes));
  storage->move_to(&account_);
  return storage;
}

void RandomProgram::make_room(std::size_t bytes) {
  const auto full = [&](std::size_t share) {
    return (account_.bytes + bytes) * share > options_.bytes || account_.allocations * share >= options_.allocations;
  };
  while (full(2) && windows_.size() > 1) drop_window(below(windows_.size()));
  if (account_.bytes + account_.dropped_bytes + bytes > options_.bytes ||
      account_.allocations + account_.dropped_allocations >= options_.allocations)
    settle();
}

// When every stream has met, all that was dropped before has been given back (L11).
void RandomProgram::settle() {
  std::vector<Future<void>> met;
  for (const HostClient& stream : streams_) met.push_back(stream.sync());
  for (Future<void>& future : met) future.get();
  account_.dropped_bytes = 0;
  account_.dropped_allocations = 0;
}

MemoryLayoutDescriptor RandomProgram::any_tensor(std::size_t bytes) {
  const std::size_t elem_size = 4 * between(1, 3);
  const std::size_t elements = std::max<std::size_t>(bytes / elem_size, 1);
  if (one_in(3)) return MemoryLayoutDescriptor::contiguous({elements}, elem_size);
  const std::size_t columns = between(1, std::min<std::size_t>(elements, 200));
  const std::size_t rows = std::max<std::size_t>(elements / columns, 1);
  if (one_in(3)) return MemoryLayoutDescriptor::optimized({between(1, 2), rows, columns}, elem_size);
  return MemoryLayoutDescriptor::optimized({rows, columns}, elem_size);
}

std::shared_ptr<ProgramRegion> RandomProgram::region_of(const std::shared_ptr<ProgramStorage>& storage,
                                                        const MemoryLayoutDescriptor& tensor, Strides strides,
                                                        std::size_t size) {
  auto region = std::make_shared<ProgramRegion>();
  region->id = next_region_++;
  region->words.resize(size / 4);
  region->shape = tensor.shape;
  region->strides = std::move(strides);
  region->elem_size = tensor.elem_size;
  region->storage = storage;
  return region;
}

namespace {

ProgramRows rows_of(const ProgramRegion& region) {
  const std::size_t rank = region.shape.size();
  const std::size_t row = region.shape[rank - 1] * region.elem_size;
  if (rank == 1) return {1, row, row};
  std::size_t rows = 1;
  for (std::size_t i = 0; i + 1 < rank; ++i) rows *= region.shape[i];
  return {rows, row, region.strides[rank - 2] * region.elem_size};
}

}  // namespace

// Four ways to come by buffers, with content and without. What has none is filled at once, on any stream; of padded
// tensors with content, some keep rows with nothing in between and are used as tensors only.
void RandomProgram::allocate() {
  const HostClient& client = any_stream();
  const std::size_t count = one_in(4) ? between(2, 4) : 1;
  std::vector<MemoryLayoutDescriptor> tensors;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < count; ++i) {
    tensors.push_back(any_tensor(any_size() / count + 4));
    bytes += on_device(HostServer::LayoutPolicy(HostServer::memory_alignment).extent(tensors[i]).size);
  }
  if (bytes > options_.largest * 2) return;
  make_room(bytes);
  const bool filled = one_in(2);
  std::vector<std::vector<std::byte>> contents;
  std::vector<std::pair<MemoryLayoutDescriptor, Bytes>> given;
  for (const MemoryLayoutDescriptor& tensor : tensors) {
    if (!filled) break;
    const auto words = any_words(*element_count(tensor.shape) * tensor.elem_size / 4);
    const auto raw = std::as_bytes(std::span(words));
    contents.emplace_back(raw.begin(), raw.end());
    given.emplace_back(tensor, one_in(2) ? Bytes::copy_of(words) : Bytes::from_vector(words));
  }
  SmallVector<MemoryLayout, 1> layouts;
  if (count > 1) {
    layouts = filled ? client.create_tensors(std::move(given)) : client.empty_tensors(tensors);
  } else if (tensors[0].strategy == MemoryLayoutStrategy::Contiguous) {
    const std::size_t size = *element_count(tensors[0].shape) * tensors[0].elem_size;
    Handle handle = filled ? client.create(std::move(given[0].second)) : client.empty(size);
    layouts.push_back({std::move(handle), contiguous_strides(tensors[0].shape)});
  } else {
    const Shape shape = tensors[0].shape;
    const std::size_t elem_size = tensors[0].elem_size;
    layouts.push_back(filled ? client.create_tensor(std::move(given[0].second), shape, elem_size)
                             : client.empty_tensor(shape, elem_size));
  }
  const auto storage = storage_of(layouts[0].memory.size());
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t size = layouts[i].memory.size_in_used();
    auto region = region_of(storage, tensors[i], layouts[i].strides, size);
    ProgramWindow window{std::move(layouts[i].memory), std::move(region), 0};
    ProgramRegion& made = *window.region;
    made.touch(step_, client.stream_id().value, filled ? "create" : "empty");
    if (filled) {
      const ProgramRows rows = rows_of(made);
      scatter(contents[i], made.bytes(), rows);
      made.defined = rows.rows * rows.row == size;
      if (!made.defined && one_in(2)) define(window);
    } else {
      define(window);
    }
    // Into any place: what is among the hot ones changes.
    windows_.push_back(std::move(window));
    if (one_in(4)) std::swap(windows_[below(windows_.size())], windows_.back());
  }
}

void RandomProgram::define(const ProgramWindow& window) {
  window.region->defined = true;
  const ProgramScalars scalars{static_cast<std::uint32_t>(random_()), static_cast<std::uint32_t>(step_), 1};
  submit_launch(program_jobs[0], {{window, true}}, scalars, true);
}

void RandomProgram::allocate_counts(std::size_t place) {
  make_room(64);
  const HostClient& client = any_stream();
  const std::size_t size = between(3, 16);
  std::vector<std::uint32_t> words(size);
  for (std::uint32_t& word : words) word = one_in(8) ? 0 : static_cast<std::uint32_t>(between(1, 2));
  Handle handle = client.create_from_slice(std::span<const std::uint32_t>(words));
  auto region = region_of(storage_of(4 * size), MemoryLayoutDescriptor::contiguous({size}, 4), {1}, 4 * size);
  region->words = std::move(words);
  region->touch(step_, client.stream_id().value, "create (count)");
  ProgramWindow window{std::move(handle), std::move(region), 0};
  if (place < counts_.size()) {
    counts_[place] = std::move(window);
  } else {
    counts_.push_back(std::move(window));
  }
}

// Writes
// -------------------------------------------------------------------------------------------------------------------

void RandomProgram::write() {
  const ProgramWindow& whole = windows_[any_window()];
  if (!whole.region->defined || whole.region->constant) return write_rows();
  const ProgramWindow window = any_part(whole, 4);
  const HostClient& client = any_stream();
  auto words = any_words(window.size() / 4);
  std::ranges::copy(words, window.words().begin());
  window.region->touch(step_, client.stream_id().value, "write");
  client.write(window.handle, Bytes::from_vector(std::move(words)));
}

// Rows of any width at any place of the window, elements of any size.
ProgramRows RandomProgram::any_rows(std::size_t size, std::size_t& elem_size) {
  elem_size = std::size_t{1} << below(4);
  const std::size_t elements = std::max<std::size_t>(size / elem_size, 1);
  if (size < elem_size) elem_size = 1;
  const std::size_t pitch = between(1, std::min<std::size_t>(elements, 300));
  const std::size_t columns = between(1, pitch);
  const std::size_t rows = between(1, std::min<std::size_t>((elements - columns) / pitch + 1, 400));
  return {rows, columns * elem_size, pitch * elem_size};
}

void RandomProgram::write_rows() {
  const ProgramWindow& window = windows_[any_window()];
  ProgramRegion& region = *window.region;
  if (region.constant) return;
  const HostClient& client = any_stream();
  ProgramRows rows = rows_of(region);
  CopyDescriptor to;
  if (region.defined) {
    std::size_t elem_size = 1;
    rows = any_rows(window.size(), elem_size);
    to = window.handle.copy_descriptor({rows.rows, rows.row / elem_size}, {rows.pitch / elem_size, 1}, elem_size);
  } else if (window.is_whole()) {
    to = window.handle.copy_descriptor(region.shape, region.strides, region.elem_size);
  } else {
    return;
  }
  const auto words = any_words((rows.rows * rows.row + 3) / 4);
  const auto dense = std::as_bytes(std::span(words)).first(rows.rows * rows.row);
  scatter(dense, window.bytes(), rows);
  region.touch(step_, client.stream_id().value, "write rows");
  client.write_tensor(std::move(to), Bytes::copy_of(dense));
}

// Launches
// -------------------------------------------------------------------------------------------------------------------

bool RandomProgram::add_argument(std::vector<Argument>& arguments, bool written) {
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
bool RandomProgram::split_argument(std::vector<Argument>& arguments, const ProgramJob& job) {
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

void RandomProgram::launch() {
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

CubeCount RandomProgram::any_cubes(const HostClient& client, std::uint64_t& cubes) {
  if (!one_in(4)) {
    cubes = one_in(2) ? cubes_for_all : between(1, 6);
    return one_in(2) ? CubeCount::of_1d(static_cast<std::uint32_t>(cubes))
                     : CubeCount(1, static_cast<std::uint32_t>(cubes), 1);
  }
  const ProgramWindow& counts = counts_[below(counts_.size())];
  const ProgramWindow window = counts.part(4 * below(counts.size() / 4 - 2), 12);
  cubes = 1;
  for (const std::uint32_t extent : window.words()) cubes *= extent;
  counts.region->touch(step_, client.stream_id().value, "cube count");
  return CubeCount::dynamic(window.handle);
}

void RandomProgram::submit_launch(const ProgramJob& job, std::vector<Argument> arguments, const ProgramScalars& scalars,
                                  bool all_cubes) {
  const HostClient& client = any_stream();
  std::uint64_t cubes = cubes_for_all;
  CubeCount count = all_cubes ? CubeCount::of_1d(cubes_for_all) : any_cubes(client, cubes);
  KernelArguments given;
  ProgramOperands operands;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const Argument& argument = arguments[i];
    const auto overlaps = [&](const Argument& other) {
      return &other != &argument && other.window.overlaps(argument.window);
    };
    // What is only read may be given as written too, if nothing else of the launch looks at it.
    const bool as_written = argument.written || (!argument.window.region->constant && one_in(8) &&
                                                 std::ranges::none_of(arguments, overlaps));
    given = std::move(given).with_buffer(argument.window.handle, as_written ? Access::Write : Access::Read);
    if (i < job.ins) {
      operands.in[i] = argument.window.words();
    } else {
      operands.out[i - job.ins] = argument.window.words();
    }
    argument.window.region->touch(step_, client.stream_id().value, job.name);
  }
  given = std::move(given).with_scalar(scalars.factor).with_scalar(scalars.summand).with_scalar(scalars.passes);
  const bool counts = job.kernel == ProgramKernel::Count;
  const HostKernel& kernel = counts ? count_kernel_ : kernels_[static_cast<std::size_t>(&job - program_jobs.data())];
  client.launch(kernel, std::move(count), std::move(given));
  for (std::uint64_t cube = 0; cube < cubes; ++cube) run_cube(job, scalars, cube, operands);
}

// Changes a cube count, from the host or from the device.
void RandomProgram::launch_count() {
  const std::size_t place = below(counts_.size());
  if (one_in(4)) return allocate_counts(place);
  std::vector<Argument> arguments;
  if (!add_argument(arguments, false)) return;
  arguments.push_back({any_part(counts_[place], 4), true});
  submit_launch(count_job, std::move(arguments), {}, false);
}

// Reads
// -------------------------------------------------------------------------------------------------------------------

RandomProgram::Expected RandomProgram::expected_of(const ProgramWindow& window, std::vector<std::byte> bytes,
                                                   const HostClient& client) {
  Expected expected{window.region->id, window.offset, std::move(bytes), window.region->touches};
  window.region->touch(step_, client.stream_id().value, "read");
  return expected;
}

void RandomProgram::expect(Future<std::vector<Bytes>> future, std::vector<Expected> expected,
                           const HostClient& client) {
  if (one_in(32)) return;  // dropped unseen
  downloads_.push_back({std::move(future), std::move(expected), step_, client.stream_id().value});
  if (downloads_.size() > downloads_in_flight) check(below(downloads_.size()));
}

void RandomProgram::read() {
  const HostClient& client = any_stream();
  std::vector<Handle> handles;
  std::vector<Expected> expected;
  for (std::size_t count = between(1, 3); count > 0; --count) {
    const ProgramWindow& whole = one_in(8) ? counts_[below(counts_.size())] : windows_[any_window()];
    if (!whole.region->defined) continue;
    const ProgramWindow window = any_part(whole, 1);
    handles.push_back(window.handle);
    const auto bytes = window.bytes();
    expected.push_back(expected_of(window, {bytes.begin(), bytes.end()}, client));
  }
  expect(client.read_async(handles), std::move(expected), client);
}

void RandomProgram::read_rows() {
  const HostClient& client = any_stream();
  std::vector<CopyDescriptor> tensors;
  std::vector<Expected> expected;
  for (std::size_t count = between(1, 3); count > 0; --count) {
    const ProgramWindow& window = windows_[any_window()];
    const ProgramRegion& region = *window.region;
    if (window.is_whole() && (one_in(2) || !region.defined)) {
      tensors.push_back(window.handle.copy_descriptor(region.shape, region.strides, region.elem_size));
      expected.push_back(expected_of(window, gather(window.bytes(), rows_of(region)), client));
    } else if (region.defined) {
      std::size_t elem_size = 1;
      const ProgramRows rows = any_rows(window.size(), elem_size);
      tensors.push_back(
          window.handle.copy_descriptor({rows.rows, rows.row / elem_size}, {rows.pitch / elem_size, 1}, elem_size));
      expected.push_back(expected_of(window, gather(window.bytes(), rows), client));
    }
  }
  expect(client.read_tensor_async(std::move(tensors)), std::move(expected), client);
}

void RandomProgram::read_now() {
  const ProgramWindow& window = windows_[any_window()];
  if (!window.region->defined) return;
  const HostClient& client = any_stream();
  std::vector<Expected> expected;
  expected.push_back(expected_of(window, {window.bytes().begin(), window.bytes().end()}, client));
  compare(client.read({window.handle}), expected, step_, client.stream_id().value);
}

void RandomProgram::check(std::size_t index) {
  Download download = std::move(downloads_[index]);
  std::swap(downloads_[index], downloads_.back());
  downloads_.pop_back();
  compare(download.future.get(), download.expected, download.step, download.stream);
}

void RandomProgram::compare(const std::vector<Bytes>& found, const std::vector<Expected>& expected, std::size_t step,
                            std::uint64_t stream) {
  if (!failure_.empty()) return;
  const std::string read =
      here() + ": the read of step " + std::to_string(step) + " on stream " + std::to_string(stream);
  if (found.size() != expected.size()) {
    failure_ = read + " brought " + std::to_string(found.size()) + " buffers of " + std::to_string(expected.size());
    return;
  }
  for (std::size_t i = 0; i < found.size() && failure_.empty(); ++i) {
    const std::span<const std::byte> bytes = found[i].span();
    const std::vector<std::byte>& right = expected[i].bytes;
    if (std::ranges::equal(bytes, right)) continue;
    const auto different = std::ranges::mismatch(bytes, right).in1 - bytes.begin();
    const auto at = static_cast<std::size_t>(different);
    failure_ = read + " of buffer " + std::to_string(expected[i].region) + " from byte " +
               std::to_string(expected[i].offset) + " on: " + std::to_string(bytes.size()) + " bytes for " +
               std::to_string(right.size());
    if (at < bytes.size() && at < right.size())
      failure_ += ", byte " + std::to_string(at) + " is " + std::to_string(std::to_integer<int>(bytes[at])) +
                  ", expected " + std::to_string(std::to_integer<int>(right[at]));
    failure_ += "; the last steps with the buffer:" + history_of(expected[i].touches);
  }
}

// The rest
// -------------------------------------------------------------------------------------------------------------------

void RandomProgram::copy_handle() {
  const ProgramWindow& whole = windows_[any_window()];
  if (!whole.region->defined || windows_.size() > 4 * options_.allocations) return;
  ProgramWindow copy = any_part(whole, 4);
  windows_.push_back(std::move(copy));
}

void RandomProgram::drop() { drop_window(below(windows_.size())); }

void RandomProgram::drop_window(std::size_t index) {
  std::swap(windows_[index], windows_.back());
  windows_.pop_back();
}

void RandomProgram::meet() {
  const HostClient& client = any_stream();
  switch (below(8)) {
    case 0: client.memory_cleanup(); break;
    case 1: (void)client.memory_usage(); break;
    case 2: client.flush(); break;
    case 3: client.sync().get(); break;
    default: (void)client.sync(); break;
  }
}

// Whole buffers that nothing else of this program refers to.
void RandomProgram::swap_windows() {
  std::vector<ProgramWindow> given;
  for (std::size_t tries = 0; tries < 12 && given.size() < 3 && windows_.size() > 16; ++tries) {
    const std::size_t index = below(windows_.size());
    const ProgramWindow& window = windows_[index];
    if (window.region->constant || window.region.use_count() != 1 || window.region->storage.use_count() != 1) continue;
    window.region->storage->move_to(nullptr);
    given.push_back(window);
    drop_window(index);
  }
  for (ProgramWindow& taken : exchange_(std::move(given))) {
    taken.region->storage->move_to(&account_);
    windows_.push_back(std::move(taken));
  }
}

ProgramWindow RandomProgram::constant(const HostClient& client, std::size_t words) {
  auto region = std::make_shared<ProgramRegion>();
  region->words.resize(words);
  for (std::size_t i = 0; i < words; ++i) region->words[i] = static_cast<std::uint32_t>(i * i + words);
  region->shape = {words};
  region->strides = {1};
  region->constant = true;
  return {client.create_from_slice(std::span<const std::uint32_t>(region->words)), region, 0};
}

}  // namespace cox::test
