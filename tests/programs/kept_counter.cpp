// A program for `cox run` that writes an endless counter to kept memory until it is killed:
//   PROGRAM KILLS
// KILLS runs end by SIGKILL while a kernel and a forked child, which lives on, count in the memory. Each run first
// reads the memory for a while, from the moment at which it is mapped: if a word changes, the program ends with code 3.
// It ends with 4 if nothing was counted in the run before. Without arguments the program makes one run that ends by
// itself.
#include <coxswain/runtime/kept/kept_set.hpp>
#include <coxswain/servers/host/server/host_server.hpp>

#include <unistd.h>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>

namespace {

constexpr int it_changes = 3;
constexpr int nothing_was_counted = 4;
constexpr auto watch_time = std::chrono::milliseconds(25);
enum Word : std::size_t { of_kernel, of_child, words = 512 };
using Counter = std::atomic_ref<std::uint64_t>;

[[noreturn]] void count_for_ever(std::uint64_t& word) {
  for (;;) Counter(word).fetch_add(1);
}

// Whether the words stay as they are.
bool is_still(std::span<std::uint64_t> page) {
  const std::uint64_t kernel = Counter(page[of_kernel]).load();
  const std::uint64_t child = Counter(page[of_child]).load();
  const auto until = std::chrono::steady_clock::now() + watch_time;
  do {
    if (Counter(page[of_kernel]).load() != kernel || Counter(page[of_child]).load() != child) return false;
  } while (std::chrono::steady_clock::now() < until);
  return true;
}

int run(bool dies, bool follows) {
  cox::HostClient client = cox::HostClient::load({cox::host_device_type, 0});
  cox::KeptSet set("counter", {client.device_id()});
  const cox::Handle memory = client.kept(set, "page", words * sizeof(std::uint64_t)).handle;
  client.accept(memory);  // torn
  std::atomic<std::uint64_t*> page{nullptr};
  client.call(cox::KernelArguments{}.with_buffer(memory, cox::Access::Read),
              [&](std::span<void* const> pointers) { page = static_cast<std::uint64_t*>(pointers[0]); });
  client.sync().get();
  const std::span<std::uint64_t> all(page.load(), words);
  if (!is_still(all)) return it_changes;
  if (follows && (all[of_kernel] == 0 || all[of_child] == 0)) return nothing_was_counted;
  if (!dies) return 0;
  all[of_kernel] = all[of_child] = 0;
  client.begin_update(set);
  client.call(cox::KernelArguments{}.with_buffer(memory, cox::Access::Write),
              [all](std::span<void* const>) { count_for_ever(all[of_kernel]); });
  if (fork() == 0) count_for_ever(all[of_child]);
  while (Counter(all[of_kernel]).load() == 0 || Counter(all[of_child]).load() == 0) {
  }
  return std::raise(SIGKILL);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const char* const restart = std::getenv("COX_RESTART");
    const long runs = restart != nullptr ? std::atol(restart) : 0;
    return run(argc > 1 && runs < std::atol(argv[1]), argc > 1 && runs > 0);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
  }
}
