#include <coxswain/tests/servers/contract/random_program.hpp>

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

}  // namespace

template <class Backend>
RandomProgram<Backend>::RandomProgram(const Client& client, const Options& options)
    : options_(options),
      random_(options.seed),
      streams_(options.streams, client),
      due_(options.streams),
      next_region_((options.seed << 32U) + 1) {
  for (Client& stream : streams_) stream.set_stream(StreamId::allocate());
  for (const ProgramJob& job : program_jobs) kernels_.push_back(program_kernel<Backend>(job));
}

template <class Backend>
std::string RandomProgram<Backend>::here() const {
  return "seed " + std::to_string(options_.seed) + ", step " + std::to_string(step_);
}

template <class Backend>
std::string RandomProgram<Backend>::run() {
  try {
    for (std::size_t i = 0; i < count_regions; ++i) allocate_counts(i);
    while (failure_.empty() && step_ < options_.operations) {
      ++step_;
      step();
    }
    if (failure_.empty()) {
      std::ranges::copy(counts_, std::back_inserter(windows_));
      settle();
      for (const ProgramWindow& window : windows_) {
        if (!window.region->defined) continue;
        const Client& client = any_stream();
        std::vector<Expected> expected;
        expected.push_back(expected_of(window, {window.bytes().begin(), window.bytes().end()}, client));
        expect(client.read_async(std::vector<Handle>{window.handle}), std::move(expected), client);
      }
      while (!downloads_.empty()) check(downloads_.size() - 1);
      if (failure_.empty()) check_handles();
    }
    windows_.clear();
    counts_.clear();
    settle();
  } catch (const std::exception& error) {
    if (failure_.empty()) failure_ = here() + ": " + error.what();
  }
  return failure_;
}

template <class Backend>
void RandomProgram<Backend>::step() {
  if (exchange_ && step_ % steps_between_swaps == 0) return swap_windows();
  if (one_in(8) && !downloads_.empty()) check(below(downloads_.size()));
  if (windows_.size() < 16) return allocate();
  // Else most memory would soon be poisoned.
  if (const ProgramWindow window = windows_[any_window()]; window.region->poison()) return heal(window);
  if (options_.failures && one_in(80)) return fail();
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
template <class Backend>
std::size_t RandomProgram<Backend>::any_window() {
  return below(one_in(2) ? std::min(hot_windows, windows_.size()) : windows_.size());
}

template <class Backend>
ProgramWindow RandomProgram<Backend>::any_part(const ProgramWindow& whole, std::size_t multiple) {
  const std::size_t units = whole.size() / multiple;
  if (one_in(2) || units < 2) return whole;
  const std::size_t begin = below(units - 1);
  return whole.part(begin * multiple, between(1, units - begin) * multiple);
}

template <class Backend>
std::size_t RandomProgram<Backend>::any_size() {
  if (one_in(24)) return 4 * between(options_.largest / 16, options_.largest / 4);
  const std::size_t scale = std::size_t{1} << below(11);
  return 4 * (scale + below(scale));
}

template <class Backend>
std::vector<std::uint32_t> RandomProgram<Backend>::any_words(std::size_t count) {
  std::vector<std::uint32_t> words(count);
  auto value = static_cast<std::uint32_t>(random_());
  for (std::uint32_t& word : words) word = value = value * 1664525U + 1013904223U;
  return words;
}
// The answers
// -------------------------------------------------------------------------------------------------------------------

template <class Backend>
typename RandomProgram<Backend>::Expected RandomProgram<Backend>::expected_of(const ProgramWindow& window,
                                                                              std::vector<std::byte> bytes,
                                                                              const Client& client) {
  Expected expected{window.region->id, window.offset, std::move(bytes), window.region->poison(),
                    window.region->touches};
  window.region->touch(step_, client.stream_id().value, "read");
  return expected;
}

template <class Backend>
void RandomProgram<Backend>::expect(Future<std::vector<Bytes>> future, std::vector<Expected> expected,
                                    const Client& client) {
  std::vector<ProgramFailure> failures = std::exchange(due_of(client).failures, {});
  // What a dropped future had to report is the stream's again.
  const bool fails =
      !failures.empty() || std::ranges::any_of(expected, [](const Expected& each) { return each.poison != nullptr; });
  if (!fails && one_in(32)) return;  // dropped unseen
  downloads_.push_back({std::move(future), std::move(expected), std::move(failures), step_, client.stream_id().value});
  if (downloads_.size() > downloads_in_flight) check(below(downloads_.size()));
}

template <class Backend>
void RandomProgram<Backend>::check(std::size_t index) {
  Download download = std::move(downloads_[index]);
  std::swap(downloads_[index], downloads_.back());
  downloads_.pop_back();
  check(std::move(download));
}

template <class Backend>
void RandomProgram<Backend>::compare(const std::vector<Bytes>& found, const std::vector<Expected>& expected,
                                     const std::string& read) {
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

// Memory
// -------------------------------------------------------------------------------------------------------------------

template <class Backend>
void RandomProgram<Backend>::make_room(std::size_t bytes) {
  const auto full = [&](std::size_t share) {
    return (account_.bytes + bytes) * share > options_.bytes || account_.allocations * share >= options_.allocations;
  };
  while (full(2) && windows_.size() > 1) drop_window(below(windows_.size()));
  if (account_.bytes + account_.dropped_bytes + bytes > options_.bytes ||
      account_.allocations + account_.dropped_allocations >= options_.allocations)
    settle();
}

// When every stream has met, all that was dropped before has been given back (L11).
template <class Backend>
void RandomProgram<Backend>::settle() {
  std::vector<Download> met;
  for (const Client& stream : streams_) {
    Due due = std::exchange(due_of(stream), {});
    met.push_back({stream.sync(), {}, std::move(due.failures), step_, stream.stream_id().value});
  }
  for (Download& each : met) check(std::move(each));
  account_.dropped_bytes = 0;
  account_.dropped_allocations = 0;
}

template <class Backend>
void RandomProgram<Backend>::copy_handle() {
  const ProgramWindow& whole = windows_[any_window()];
  if (!whole.region->defined || windows_.size() > 4 * options_.allocations) return;
  ProgramWindow copy = any_part(whole, 4);
  windows_.push_back(std::move(copy));
}

template <class Backend>
void RandomProgram<Backend>::drop() {
  drop_window(below(windows_.size()));
}

template <class Backend>
void RandomProgram<Backend>::drop_window(std::size_t index) {
  std::swap(windows_[index], windows_.back());
  windows_.pop_back();
}

template <class Backend>
void RandomProgram<Backend>::meet() {
  const Client& client = any_stream();
  const std::size_t choice = below(8);
  // Those throw the failures that are known, which may be of work queued before reads that are to report them.
  if ((choice == 1 || choice == 2) && due_of(client).unsettled != 0) settle(client);
  switch (choice) {
    case 0: client.memory_cleanup(); break;
    case 1: (void)client.memory_usage(); break;
    case 2: client.flush(); break;
    case 3: settle(client); break;
    default: expect_sync(client); break;
  }
}

// Whole buffers that nothing else of this program refers to.
template <class Backend>
void RandomProgram<Backend>::swap_windows() {
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

template <class Backend>
ProgramWindow RandomProgram<Backend>::constant(const Client& client, std::size_t words) {
  auto region = std::make_shared<ProgramRegion>();
  region->words.resize(words);
  for (std::size_t i = 0; i < words; ++i) region->words[i] = static_cast<std::uint32_t>(i * i + words);
  region->shape = {words};
  region->strides = {1};
  region->constant = true;
  return {client.create_from_slice(std::span<const std::uint32_t>(region->words)), region, 0};
}

COX_INSTANTIATE_RANDOM_PROGRAM

}  // namespace cox::test
