#pragma once

#include <coxswain/tests/servers/contract/compute_backend.hpp>
#include <coxswain/tests/servers/contract/program_kernels.hpp>
#include <coxswain/tests/servers/contract/program_oracle.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace cox::test {

struct RandomProgramOptions {
  std::uint64_t seed = 1;
  std::size_t operations = 0;
  std::size_t streams = 8;
  // What the program may have taken from the device and not surely have back. Memory between the buffers that alive
  // ones keep from being used is at most two granules each: capacity must have room for that, for `bytes`, and for
  // one buffer more.
  std::size_t bytes = std::size_t{64} << 20U;
  std::size_t allocations = 400;
  std::size_t largest = std::size_t{256} << 10U;  ///< bytes of a buffer
  bool failures = true;                           ///< some of the operations fail
};

/// A random program on several streams of one device: allocations, uploads, launches on windows that share
/// allocations, downloads looked at some time later, handles dropped while work with them is queued, operations that
/// fail. The oracle carries out each step on plain memory as it is submitted: one thread submits for all streams, so
/// that the order of the steps is defined, and with it what every download must bring, which allocations are poisoned
/// (L14) and which failures each stream has to report. No failing operation writes anything, so that the bytes of
/// poisoned memory, too, are known when it is accepted.
template <class Backend>
class RandomProgram {
 public:
  using Options = RandomProgramOptions;
  using Client = typename Backend::Client;
  using Kernel = typename Backend::Kernel;
  /// Between programs of several threads: gives windows away and gets as many others, in the order of the calls.
  using Exchange = std::function<std::vector<ProgramWindow>(std::vector<ProgramWindow>)>;

  RandomProgram(const Client& client, const Options& options);

  /// A window that this program may read, but not write.
  void share(ProgramWindow window) { windows_.push_back(std::move(window)); }
  void exchange_with_others(Exchange exchange) { exchange_ = std::move(exchange); }
  /// All steps, then reads every buffer alive. Returns what went wrong first, with seed and step; empty if nothing did.
  [[nodiscard]] std::string run();

  /// A region of this size that is read by all programs and written by none.
  [[nodiscard]] static ProgramWindow constant(const Client& client, std::size_t words);

 private:
  struct Expected {
    std::uint64_t region;
    std::size_t offset;
    std::vector<std::byte> bytes;
    std::shared_ptr<ProgramCause> poison;
    ProgramTouches touches;
  };
  struct Download {
    std::variant<Future<std::vector<Bytes>>, Future<void>> future;  ///< of a read, of a sync
    std::vector<Expected> expected;
    std::vector<ProgramFailure> failures;  ///< that it has to report, instead of anything else
    std::size_t step;
    std::uint64_t stream;
  };
  struct Argument {
    ProgramWindow window;
    bool written;
  };
  struct Cubes {
    CubeCount count;
    std::uint64_t number = cubes_for_all;
    std::shared_ptr<ProgramCause> poison;  ///< of the memory that has them
  };
  /// Failures that the next read or sync of a stream has to report.
  struct Due {
    std::vector<ProgramFailure> failures;
    std::size_t unsettled = 0;  ///< failures since the stream was last waited for, which it may not have reported
  };
  enum class Fault : std::uint8_t { None, ArgumentCount, CubeCount };

  // The choice
  std::size_t below(std::size_t bound) { return bound < 2 ? 0 : random_() % bound; }
  bool one_in(std::size_t n) { return below(n) == 0; }
  std::size_t between(std::size_t least, std::size_t most) { return least + below(most - least + 1); }
  const Client& any_stream() { return streams_[below(streams_.size())]; }
  std::size_t any_window();
  ProgramWindow any_part(const ProgramWindow& whole, std::size_t multiple);
  std::size_t any_size();

  // The steps
  void step();
  void allocate();
  void allocate_counts(std::size_t place);
  void write();
  void write_rows();
  void launch();
  void launch_count();
  void read();
  void read_rows();
  void read_now();
  void copy_handle();
  void drop();
  void meet();
  void swap_windows();
  void fail();
  void heal(const ProgramWindow& window);

  // Their parts
  std::vector<std::uint32_t> any_words(std::size_t count);
  std::shared_ptr<ProgramRegion> region_of(const std::shared_ptr<ProgramStorage>& storage,
                                           const MemoryLayoutDescriptor& tensor, Strides strides, std::size_t size);
  std::shared_ptr<ProgramStorage> storage_of(std::size_t bytes);
  MemoryLayoutDescriptor any_tensor(std::size_t bytes);
  void define(const ProgramWindow& window);
  ProgramRows any_rows(std::size_t size, std::size_t& elem_size);
  bool add_argument(std::vector<Argument>& arguments, bool written);
  bool split_argument(std::vector<Argument>& arguments, const ProgramJob& job);
  void submit_launch(const ProgramJob& job, std::vector<Argument> arguments, const ProgramScalars& scalars,
                     bool all_cubes);
  Cubes any_cubes(const Client& client);
  Cubes too_many_cubes(const Client& client);
  Fault any_fault();
  void drop_window(std::size_t index);
  void make_room(std::size_t bytes);
  void settle();
  void settle(const Client& client);
  Due& due_of(const Client& client) { return due_[static_cast<std::size_t>(&client - streams_.data())]; }
  void note_failure(const Client& client, ProgramFailure::Kind kind, const std::shared_ptr<ProgramCause>& cause);
  void expect_sync(const Client& client);
  void expect(Future<std::vector<Bytes>> future, std::vector<Expected> expected, const Client& client);
  Expected expected_of(const ProgramWindow& window, std::vector<std::byte> bytes, const Client& client);
  void check(std::size_t index);
  void check(Download download);
  void compare(const std::vector<Bytes>& found, const std::vector<Expected>& expected, const std::string& read);
  void require_poisoned(const std::exception_ptr& error, const std::vector<Expected>& expected,
                        const std::string& read);
  void require_failures(const std::exception_ptr& error, const std::vector<ProgramFailure>& failures,
                        const std::string& what);
  void check_handles();
  [[nodiscard]] std::string here() const;

  Options options_;
  std::mt19937_64 random_;
  std::vector<Client> streams_;
  std::vector<Due> due_;  // of each
  std::vector<Kernel> kernels_;
  Kernel count_kernel_ = program_kernel<Backend>(count_job);
  ProgramAccount account_;
  std::vector<ProgramWindow> windows_;
  std::vector<ProgramWindow> counts_;  // three words each that are a cube count, wherever one looks
  std::vector<Download> downloads_;
  Exchange exchange_;
  std::size_t step_ = 0;
  std::uint64_t next_region_;  // unique among programs of different seeds
  std::string failure_;
};

/// At the end of each file that defines members.
#if COX_CUDA_TESTS
#define COX_INSTANTIATE_RANDOM_PROGRAM       \
  template class RandomProgram<HostBackend>; \
  template class RandomProgram<CudaBackend>;
#else
#define COX_INSTANTIATE_RANDOM_PROGRAM template class RandomProgram<HostBackend>;
#endif

}  // namespace cox::test
