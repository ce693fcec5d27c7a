#pragma once

#include <engine/fault.hpp>
#include <engine/job.hpp>
#include <engine/launch.hpp>
#include <kernels/kernel_list.hpp>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <mutex>
#include <optional>
#include <random>
#include <stop_token>
#include <thread>
#include <utility>

namespace train {

/// Faults a random GPU of this process after a random time, from a thread and on a stream of its own, whatever the
/// ranks do at that time: Options::fault and Options::fault_step. The destructor waits for the thread; a fault that has
/// not happened by then does not happen.
template <class Backend>
class RandomGpuFault {
 public:
  /// Has the devices load the kernel, so that the fault does not wait for running kernels, as the loading of code does.
  explicit RandomGpuFault(const Job& job) : RandomGpuFault(job, kernel_sources()[index]) {}

 private:
  using Client = typename Backend::Client;
  static constexpr auto index = static_cast<std::size_t>(KernelId::GpuFault);

  RandomGpuFault(const Job& job, const KernelSource& source)
      : kernel_(Backend::make(source, job.options.precision)),
        grid_(Backend::grid(source.cuda, {}, job.options.precision)) {
    for (std::size_t rank = job.first_rank(); rank < job.first_rank() + job.local_ranks(); ++rank) {
      const Client client = Client::load(job.device(rank));
      launch(client, 0);
      client.sync().get();
    }
    const std::size_t rank = job.first_rank() + std::random_device()() % job.local_ranks();
    thread_ = std::jthread(
        [this, rank, client = Client::load(job.device(rank)), kind = job.options.fault,
         delay = random_time(std::chrono::milliseconds(job.options.fault_step))](const std::stop_token& stop) {
          if (waited(delay, stop)) strike(client, rank, kind);
        });
  }

  // False: stopped before.
  static bool waited(std::chrono::nanoseconds delay, const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any never;
    std::unique_lock lock(mutex);
    static_cast<void>(never.wait_for(lock, stop, delay, [] { return false; }));
    return !stop.stop_requested();
  }

  void strike(const Client& client, std::size_t rank, FaultKind kind) const {
    std::fprintf(stderr, "injected on the GPU of rank %zu: %s\n", rank,
                 kind == FaultKind::Trap      ? "a trap"
                 : kind == FaultKind::Address ? "an invalid address"
                                              : "a failed assertion");
    try {
      launch(client, kind == FaultKind::Trap ? 1 : kind == FaultKind::Address ? 2 : 3);
      client.sync().get();
    } catch (const std::exception&) {  // the ranks report the fault
    }
  }

  void launch(const Client& client, std::size_t kind) const {
    client.launch(*kernel_, grid_, Launch().inout(client.empty(sizeof(float))).size(kind));
  }

  const std::optional<typename Backend::Kernel> kernel_;
  const cox::CubeCount grid_;
  std::jthread thread_;  // last: uses the others
};

}  // namespace train
