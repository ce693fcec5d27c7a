// A program for `cox run` that writes endless counters to kept memory of a GPU until it ends:
//   PROGRAM RUNS kill|trap [child]
// In each of RUNS runs three writers count in memory of the first GPU: a kernel there, a kernel of the second GPU by
// its mapping of that memory, and copies that are queued in a loop. Once all three have counted, the run ends by
// SIGKILL or by a kernel that traps; with `child` a forked process, which sleeps, lives on. Each run first reads the
// memory for two seconds, from the moment at which it is mapped: if a word changes, the program ends with code 3. It
// ends with 4 if nothing was counted in the run before. Without arguments the program makes one run that ends by
// itself.

#if COX_GPU_TESTS

#include <coxswain/runtime/kept/kept_set.hpp>
#include <coxswain/servers/cuda/driver/gpu_fault.hpp>
#include <coxswain/servers/cuda/server/cuda_server.hpp>

#include <unistd.h>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <span>
#include <string>
#include <vector>

namespace {

constexpr int it_changes = 3;
constexpr int nothing_was_counted = 4;
constexpr auto watch_time = std::chrono::seconds(2);
constexpr std::array names{"of a kernel", "of a peer", "of copies"};
using Words = std::array<std::uint64_t, names.size()>;

constexpr const char* source = R"(
using Word = unsigned long long;
extern "C" __global__ void count(Word* word) {
  for (;;) ++*(volatile Word*)word;
}
extern "C" __global__ void count_at(Word address) {
  for (;;) ++*(volatile Word*)address;
}
extern "C" __global__ void read_at(Word* words, Word first, Word second, Word third) {
  words[0] = *(volatile Word*)first;
  words[1] = *(volatile Word*)second;
  words[2] = *(volatile Word*)third;
}
extern "C" __global__ void trap(Word* unused) { asm volatile("trap;"); }
)";

cox::CudaKernel kernel(const char* name) { return cox::CudaKernel::from_source(name, cox::CubeDim::of_1d(1), source); }

cox::CudaClient in_a_stream_of_its_own(cox::CudaClient client) {
  client.set_stream(cox::StreamId::allocate());
  return client;
}

struct Counters {
  cox::CudaKernel count = kernel("count");
  cox::CudaKernel count_at = kernel("count_at");
  cox::CudaKernel read_at = kernel("read_at");
  cox::CudaKernel trap = kernel("trap");
  cox::CudaClient client;
  cox::CudaClient peer;
  std::vector<cox::Handle> memory{};
  Words addresses{};

  // Loading code may wait for running kernels.
  void prepare() const {
    for (const cox::CudaKernel& each : {count, count_at, read_at, trap})
      for (const cox::CudaClient& device : {client, peer}) each.prepare(device.device_id());
  }
  void open(cox::KeptSet& set) {
    for (std::size_t i = 0; i < names.size(); ++i) {
      memory.push_back(client.kept(set, names[i], sizeof(std::uint64_t)).handle);
      client.accept(memory.back());  // torn
      client.call(cox::KernelArguments{}.with_buffer(memory.back(), cox::Access::Read),
                  [this, i](auto, std::span<void* const> pointers) {
                    addresses[i] = reinterpret_cast<std::uintptr_t>(pointers[0]);
                  });
    }
    client.sync().get();
  }
  [[nodiscard]] Words values() const {
    Words words{};
    for (std::size_t i = 0; i < words.size(); ++i)
      std::memcpy(&words[i], client.read_one(memory[i]).span().data(), sizeof(words[i]));
    return words;
  }
  // Whether the words stay as they are.
  [[nodiscard]] bool are_still() const {
    const Words first = values();
    const auto until = std::chrono::steady_clock::now() + watch_time;
    do {
      if (values() != first) return false;
    } while (std::chrono::steady_clock::now() < until);
    return true;
  }
  // Counts until the process ends. `end` is called once, when all three have counted.
  template <class F>
  [[noreturn]] void count_for_ever(cox::KeptSet& set, const F& end) {
    const Words before = values();
    client.begin_update(set);
    in_a_stream_of_its_own(client).launch(count, cox::CubeCount::single(),
                                          cox::KernelArguments().with_buffer(memory[0], cox::Access::Write));
    in_a_stream_of_its_own(peer).launch(count_at, cox::CubeCount::single(),
                                        cox::KernelArguments().with_scalar(addresses[1]));
    const cox::CudaClient copier = in_a_stream_of_its_own(client);
    const cox::CudaClient reader = in_a_stream_of_its_own(client);
    const cox::Handle read = reader.empty(sizeof(Words));
    bool ends = false;
    for (std::uint64_t next = before[2] + 1;; ++next) {
      copier.write(memory[2], cox::Bytes::copy_of(std::vector{next}));
      if (ends) {
        copier.sync().get();  // throws after the trap
        continue;
      }
      reader.launch(read_at, cox::CubeCount::single(),
                    cox::KernelArguments()
                        .with_buffer(read, cox::Access::Overwrite)
                        .with_scalar(addresses[0])
                        .with_scalar(addresses[1])
                        .with_scalar(addresses[2]));
      Words now{};
      std::memcpy(now.data(), reader.read_one(read).span().data(), sizeof(now));
      ends = now[0] != before[0] && now[1] != before[1] && now[2] != before[2];
      if (ends) end(reader, read);
    }
  }
};

int run(Counters& counters, bool follows, bool dies, bool traps, bool forks) {
  cox::KeptSet set("counter", {counters.client.device_id()});
  counters.open(set);
  if (!counters.are_still()) return it_changes;
  if (follows)
    for (const std::uint64_t each : counters.values())
      if (each == 0) return nothing_was_counted;
  if (!dies) return 0;
  counters.count_for_ever(set, [&](const cox::CudaClient& client, const cox::Handle& unused) {
    if (forks && fork() == 0)
      for (;;) pause();
    if (!traps) std::raise(SIGKILL);
    client.launch(counters.trap, cox::CubeCount::single(), cox::KernelArguments().with_buffer(unused));
  });
}

}  // namespace

int main(int argc, char** argv) {
  const auto found = cox::enumerate_cuda_devices();
  if (found.empty()) {
    std::fprintf(stderr, "skipped: needs 1 GPU. %s\n", cox::why_no_cuda().c_str());
    return 0;
  }
  const char* const restart = std::getenv("COX_RESTART");
  const long runs = restart != nullptr ? std::atol(restart) : 0;
  const bool dies = argc > 2 && runs < std::atol(argv[1]);
  int code = 1;
  try {
    Counters counters{.client = cox::CudaClient::load(found.front()), .peer = cox::CudaClient::load(found.back())};
    counters.prepare();
    code = run(counters, argc > 2 && runs > 0, dies, argc > 2 && std::string(argv[2]) == "trap", argc > 3);
  } catch (const std::exception& error) {
    if (cox::gpu_fault() == nullptr || !dies) std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
  }
  std::fflush(nullptr);
  std::_Exit(cox::exit_code(code));  // kernels that never end would be waited for
}

#else
int main() {}
#endif
