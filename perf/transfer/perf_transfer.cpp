#include <coxswain/perf/cuda/gpu_program.hpp>
#include <coxswain/perf/cuda/raw_driver.hpp>
#include <coxswain/perf/harness/suite.hpp>
#include <coxswain/perf/transfer/answers.hpp>
#include <coxswain/perf/transfer/copy_rate.hpp>
#include <coxswain/perf/transfer/peer_pair.hpp>
#include <coxswain/perf/transfer/transfer_buffers.hpp>
#include <coxswain/runtime/config/process_settings.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

namespace {

using namespace cox;
using namespace cox::perf;

constexpr std::size_t mebibyte = std::size_t{1} << 20U;

struct Free {
  void operator()(void* memory) const noexcept { std::free(memory); }
};

/// Memory that no program has touched yet: too large for what malloc keeps.
std::unique_ptr<void, Free> new_memory(std::size_t bytes) {
  std::unique_ptr<void, Free> memory(std::malloc(bytes));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

class TransferCases {
 public:
  TransferCases(Suite& suite, std::shared_ptr<TransferBuffers> buffers, bool quick)
      : suite_(suite), buffers_(std::move(buffers)), quick_(quick) {}

  void add_upload(std::size_t bytes) {
    const auto b = buffers_;
    Case added = case_of("upload of " + size_name(bytes) + " from pageable memory");
    add(added, bytes, "coxswain", "write into existing memory, sync", [=] { write(*b, b->pageable(bytes)); });
    add(added, bytes, "create", "into new memory of the device, sync", [=] {
      Handle made = b->gpu().client().create(b->pageable(bytes));
      b->gpu().finish();
      return made;
    });
    add(added, bytes, "raw_pageable", "cuMemcpyHtoD; F11: ours 3 times as fast", [=] {
      const Bytes source = b->pageable(bytes);
      COX_RAW_TRY(copy_to_device_sync(b->address(), source.data(), bytes));
    });
    add(added, bytes, "raw_pinned", "from page-locked memory", [=] { upload_raw(*b, bytes); });
    suite_.add(std::move(added));
  }

  void add_download(std::size_t bytes) {
    const auto b = buffers_;
    Case added = case_of("download of " + size_name(bytes) + " to pageable memory");
    add(added, bytes, "coxswain", "read_one: to new memory each time",
        [=] { return b->gpu().client().read_one(b->device(bytes)); });
    add(added, bytes, "raw_pageable_new", "cuMemcpyDtoH to new memory each time; F11: ours 3 times as fast", [=] {
      auto to = new_memory(bytes);
      COX_RAW_TRY(copy_to_host_sync(to.get(), b->address(), bytes));
      return to;
    });
    add(added, bytes, "raw_pageable", "cuMemcpyDtoH to the same memory each time",
        [=] { COX_RAW_TRY(copy_to_host_sync(b->landing(), b->address(), bytes)); });
    add(added, bytes, "raw_pinned", "to page-locked memory, the same each time", [=] { download_raw(*b, bytes); });
    suite_.add(std::move(added));
  }

  void add_pinned_upload(std::size_t bytes) {
    const auto b = buffers_;
    Case added = case_of("upload of " + size_name(bytes) + " from page-locked memory");
    add(added, bytes, "coxswain", "write of staging memory, sync", [=] { write(*b, b->staged(bytes)); });
    add(added, bytes, "raw", "cuMemcpyHtoDAsync, sync; F11: ours at least 0.98 times the rate",
        [=] { upload_raw(*b, bytes); });
    suite_.add(std::move(added));
  }

  void add_pinned_download(std::size_t bytes) {
    const auto b = buffers_;
    Case added = case_of("download of " + size_name(bytes) + " to page-locked memory");
    add(added, bytes, "coxswain", "read_one, which is page-locked up to 4 MiB", [=] {
      Bytes read = b->gpu().client().read_one(b->device(bytes));
      if (read.property() != AllocationProperty::Pinned) throw std::runtime_error("read_one gave pageable memory");
      return read;
    });
    add(added, bytes, "raw", "cuMemcpyDtoHAsync, sync; F11: ours at least 0.98 times the rate",
        [=] { download_raw(*b, bytes); });
    suite_.add(std::move(added));
  }

  void add_answers(std::size_t bytes) {
    const auto b = buffers_;
    add_answers("uploads of " + size_name(bytes) + " from pageable memory", [=] { write(*b, b->pageable(bytes)); });
    add_answers("downloads of " + size_name(bytes) + " to pageable memory",
                [=] { static_cast<void>(b->gpu().client().read_one(b->device(bytes))); });
    add_answers("uploads of " + size_name(bytes) + " from page-locked memory", [=] { write(*b, b->staged(bytes)); });
  }

  void add_peer_copy(const std::shared_ptr<LazyPeerPair>& pair, std::size_t bytes) {
    Case added = case_of("copy of " + size_name(bytes) + " to another GPU");
    added.figure = "F12";
    added.minus = "raw_peer";
    add(added, bytes, "coxswain", "to_client, sync", [=] { return pair->get().to_client(bytes); });
    add(added, bytes, "raw_peer", "cuMemcpyPeerAsync, sync; F12: ours at least 0.98 times the rate",
        [=] { pair->get().copy_peer(bytes); });
    add(added, bytes, "raw_pulled", "the same, on a stream of the receiver", [=] { pair->get().pull_peer(bytes); });
    if (gpus_reach_each_other(0, 1)) {
      add(added, bytes, "raw", "cuMemcpyDtoDAsync, sync", [=] { pair->get().copy(bytes); });
      add(added, bytes, "raw_on_our_memory", "cuMemcpyDtoDAsync between memory of the clients, sync",
          [=] { pair->get().copy_of_clients(bytes); });
      add(added, bytes, "raw_peer_on_our_memory", "cuMemcpyPeerAsync between memory of the clients, sync",
          [=] { pair->get().copy_peer_of_clients(bytes); });
    }
    suite_.add(std::move(added));
  }

  void add_peer_copies(const std::shared_ptr<LazyPeerPair>& pair, std::size_t bytes) {
    constexpr std::size_t times = 4;
    Case added = case_of(std::to_string(times) + " copies of " + size_name(bytes) + " to another GPU, in a stream");
    added.figure = "F12";
    const std::size_t all = times * bytes;
    add(added, all, "coxswain", "to_client of each, sync",
        [=] { return pair->get().to_client_in_stream(bytes, times); });
    add(added, all, "raw_peer", "cuMemcpyPeerAsync of each, sync; F12: ours at least 0.98 times the rate",
        [=] { pair->get().copy_peer_in_stream(bytes, times); });
    suite_.add(std::move(added));
  }

 private:
  static Case case_of(std::string name) {
    return {.figure = "F11", .name = std::move(name), .metrics = copy_metrics(), .contenders = {}};
  }
  template <class Copy>
  void add(Case& to, std::size_t bytes, std::string name, std::string note, Copy copy) {
    const std::size_t count = repetitions(bytes, quick_);
    to.contenders.push_back({std::move(name), [=] { return copy_rate(bytes, count, copy); }, std::move(note)});
  }

  static void write(TransferBuffers& buffers, Bytes source) {
    const Handle to = buffers.device(source.size());
    buffers.gpu().client().write(to, std::move(source));
    buffers.gpu().finish();
  }
  static void upload_raw(TransferBuffers& buffers, std::size_t bytes) {
    const RawStream& raw = buffers.gpu().raw();
    COX_CUDA_TRY(copy_to_device(buffers.address(), buffers.pinned(), bytes, raw.native()));
    raw.synchronize();
  }
  static void download_raw(TransferBuffers& buffers, std::size_t bytes) {
    const RawStream& raw = buffers.gpu().raw();
    COX_CUDA_TRY(copy_to_host(buffers.pinned(), buffers.address(), bytes, raw.native()));
    raw.synchronize();
  }

  void add_answers(std::string during, std::function<void()> transfer) {
    const std::chrono::milliseconds duration(quick_ ? 300 : 1500);
    const auto b = buffers_;
    suite_.add({.figure = "F11",
                .name = "a call to the device thread, during " + std::move(during),
                .metrics = {{"p50", "us"}, {"p99", "us"}, {"longest", "us"}},
                .contenders = {{"coxswain", [=] { return answers_during(b->gpu().client(), duration, transfer); }},
                               {"no_transfer",
                                [=] {
                                  return answers_during(b->gpu().client(), duration, [] {
                                    std::this_thread::sleep_for(std::chrono::milliseconds(10));
                                  });
                                },
                                "the same thread at rest"}},
                .max_rounds = 5,
                .minus = "no_transfer"});
  }

  Suite& suite_;
  std::shared_ptr<TransferBuffers> buffers_;
  bool quick_;
};

void add_peer_copies(TransferCases& cases, const OpenGpu& gpu, std::size_t largest) {
  if (enumerate_cuda_devices().size() < 2) {
    std::fprintf(stderr, "F12 is left out: there is one GPU\n");
    return;
  }
  const auto pair = std::make_shared<LazyPeerPair>(gpu, std::uint16_t{1}, largest);
  for (const std::size_t bytes : {std::size_t{4} << 10U, mebibyte, 64 * mebibyte, 1024 * mebibyte})
    if (bytes <= largest) cases.add_peer_copy(pair, bytes);
  for (const std::size_t bytes : {mebibyte, 64 * mebibyte}) cases.add_peer_copies(pair, bytes);
}

int measure(const Options& options) {
  set_settings({{"cuda.pinned_memory", "4GiB"}});  // for staging memory of 1 GiB beside what downloads take
  const OpenGpu gpu;
  gpu.raw().activate();
  const std::size_t largest = (options.quick ? 256 : 1024) * mebibyte;
  Suite suite(options, "coxswain");
  TransferCases cases(suite, std::make_shared<TransferBuffers>(gpu, largest), options.quick);
  for (const std::size_t bytes : {64 * mebibyte, 256 * mebibyte, 1024 * mebibyte}) {
    if (bytes > largest) continue;
    cases.add_upload(bytes);
    cases.add_download(bytes);
    cases.add_pinned_upload(bytes);
  }
  for (const std::size_t bytes : {mebibyte, 4 * mebibyte}) cases.add_pinned_download(bytes);
  cases.add_answers(256 * mebibyte);
  add_peer_copies(cases, gpu, largest);
  return suite.run();
}

}  // namespace

int main(int argc, char** argv) {
  return gpu_program(argc, argv,
                     "Measures the cost of transfers to, from and between GPUs, compared with the driver's own calls.",
                     {}, measure);
}
