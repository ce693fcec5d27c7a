// Streams, events and captures of the library that stands in for the CUDA driver, and the thread that does their work.
#include <coxswain/tests/fake_cuda/fake_driver.hpp>

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <string>
#include <thread>
#include <utility>

using namespace cox::test;

namespace cox::test {
namespace {

thread_local CUstream captures_here = nullptr;

// Whether the first work of the stream is over.
bool try_first(CUstream stream) {
  if (!stream->work.front().work(!std::exchange(stream->begun, true))) return false;
  stream->work.pop_front();
  stream->begun = false;
  return true;
}

// One step of a stream, or of none. Which, is left to chance, so that what has no order comes in all orders.
bool try_streams(std::minstd_rand& chance) {
  std::vector<CUstream> busy;
  for (const CUstream stream : fake_world().streams)
    if (!stream->work.empty()) busy.push_back(stream);
  if (fake_state().by_chance)
    std::ranges::shuffle(busy, chance);
  else
    std::ranges::sort(busy, {}, [](CUstream stream) { return stream->work.front().number; });
  return std::ranges::any_of(busy, try_first);
}

bool any_work() {
  return std::ranges::any_of(fake_world().streams, [](CUstream stream) { return !stream->work.empty(); });
}

[[noreturn]] void run() {
  constexpr std::chrono::microseconds interval{20};  // what a kernel waits for may come from anywhere
  ::pthread_setname_np(::pthread_self(), "fake-gpus");
  std::minstd_rand chance;
  FakeWorld& world = fake_world();
  auto lock = lock_fake();
  for (;;) {
    world.work_available.wait(lock, [] { return any_work() && !fake_state().faulted; });
    if (!try_streams(chance)) {
      world.work_available.wait_for(lock, interval);
      continue;
    }
    world.done.notify_all();
    lock.unlock();  // others want it, too
    lock.lock();
  }
}

}  // namespace

void start_fake_gpus() {
  static const bool started = (std::thread(run).detach(), true);
  static_cast<void>(started);
}

CUresult refuse_in_capture(const char* function) {
  if (captures_here == nullptr) return CUDA_SUCCESS;
  captures_here->capture_failed = true;
  fake_state().misuse.emplace_back(std::string(function) + " while the thread captures");
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult enqueue(CUstream stream, FakeWork work, const char* function) {
  auto lock = lock_fake();
  if (const CUresult result = fake_failure(function); result != CUDA_SUCCESS) return result;
  if (!fake_world().streams.contains(stream)) {
    fake_state().misuse.emplace_back(std::string(function) + " on a stream that is not there");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (stream->capture != nullptr) {
    auto node = std::make_unique<CUgraphNode_st>();
    node->captured = std::move(work);
    stream->capture->nodes.push_back(std::move(node));
    return CUDA_SUCCESS;
  }
  stream->work.push_back({fake_world().submitted_count++, std::move(work)});
  fake_world().work_available.notify_one();
  return CUDA_SUCCESS;
}

CUresult enqueue_once(CUstream stream, std::function<void()> piece, const char* function) {
  const auto once = [piece = std::move(piece)](bool) {
    piece();
    return true;
  };
  return enqueue(stream, once, function);
}

}  // namespace cox::test

extern "C" {

CUresult cuCtxGetStreamPriorityRange(int* lowest, int* highest) {
  *lowest = 0;
  *highest = -5;
  return CUDA_SUCCESS;
}
CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned, int) {
  const CUresult result = make(stream);
  if (result != CUDA_SUCCESS) return result;
  (*stream)->device = current_device();
  const auto lock = lock_fake();
  fake_world().streams.insert(*stream);
  return result;
}
CUresult cuStreamDestroy(CUstream stream) {
  {
    const auto lock = lock_fake();
    if (!stream->work.empty() && !fake_state().faulted)
      fake_state().misuse.emplace_back("a stream is destroyed before its work is done");
    fake_world().streams.erase(stream);
  }
  return give_back(stream);
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  const auto records = event->records;
  std::uint64_t record = 0;
  {
    const auto lock = lock_fake();
    record = records->recorded;
  }
  return enqueue(stream, [=](bool) { return records->reached >= record; });
}
CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  if (flags != CU_STREAM_WAIT_VALUE_GEQ) return CUDA_ERROR_NOT_SUPPORTED;
  return enqueue(stream, [=](bool) {
    const auto* const word = static_cast<const std::atomic<std::uint32_t>*>(host(address));
    return static_cast<std::int32_t>(word->load() - value) >= 0;
  });
}
CUresult cuStreamSynchronize(CUstream stream) {
  auto lock = lock_fake();
  if (const CUresult refused = refuse_in_capture(); refused != CUDA_SUCCESS) return refused;
  // Nothing is ever enqueued on the default stream.
  fake_world().done.wait(lock, [&] { return fake_state().faulted || stream == nullptr || stream->work.empty(); });
  return fake_state().faulted ? fake_fault : CUDA_SUCCESS;
}
CUresult cuStreamQuery(CUstream stream) {
  const auto lock = lock_fake();
  if (const CUresult refused = refuse_in_capture(); refused != CUDA_SUCCESS) return refused;
  if (fake_state().faulted) return fake_fault;
  return stream->work.empty() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  const auto lock = lock_fake();
  *status = stream != CU_STREAM_LEGACY && stream->capture != nullptr ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                                                     : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  thread_local CUstreamCaptureMode of_thread = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::swap(*mode, of_thread);
  return CUDA_SUCCESS;
}
CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  const int current = current_device();
  const auto lock = lock_fake();
  const int device = stream == CU_STREAM_LEGACY ? current : stream->device;
  *context = &fake_world().contexts.at(static_cast<std::size_t>(device));
  return CUDA_SUCCESS;
}
CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
  CUgraph graph = nullptr;
  if (const CUresult result = make(&graph); result != CUDA_SUCCESS) return result;
  const auto lock = lock_fake();
  if (mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL || stream->capture != nullptr || !stream->work.empty())
    fake_state().misuse.emplace_back("a capture that this does not know");
  stream->capture = graph;
  stream->capture_failed = false;
  captures_here = stream;
  return CUDA_SUCCESS;
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  const CUgraph captured = [&] {
    const auto lock = lock_fake();
    if (captures_here != stream) fake_state().misuse.emplace_back("a capture ends that the thread has not begun");
    captures_here = nullptr;
    return std::exchange(stream->capture, nullptr);
  }();
  const CUresult failed = [&] {
    const auto lock = lock_fake();
    const CUresult result = fake_failure("cuStreamEndCapture");
    return result == CUDA_SUCCESS && stream->capture_failed ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : result;
  }();
  *graph = failed == CUDA_SUCCESS ? captured : nullptr;
  if (failed != CUDA_SUCCESS) give_back(captured);
  return failed;
}

CUresult cuEventCreate(CUevent* event, unsigned) { return make(event); }
CUresult cuEventDestroy(CUevent event) { return give_back(event); }
CUresult cuEventRecord(CUevent event, CUstream stream) {
  const auto records = event->records;
  std::uint64_t record = 0;
  {
    const auto lock = lock_fake();
    record = ++records->recorded;
  }
  const CUresult result = enqueue_once(stream, [=] {
    records->reached = std::max(records->reached, record);
    records->time = std::chrono::steady_clock::now();
  });
  if (result != CUDA_SUCCESS) {
    const auto lock = lock_fake();
    --records->recorded;
  }
  return result;
}
CUresult cuEventQuery(CUevent event) {
  const auto lock = lock_fake();
  if (const CUresult refused = refuse_in_capture(); refused != CUDA_SUCCESS) return refused;
  if (fake_state().faulted) return fake_fault;
  return event->records->reached >= event->records->recorded ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult cuEventElapsedTime(float* milliseconds, CUevent begin, CUevent end) {
  const auto lock = lock_fake();
  if (fake_state().faulted) return fake_fault;
  for (const CUevent event : {begin, end})
    if (event->records->reached < event->records->recorded) return CUDA_ERROR_NOT_READY;
  *milliseconds = std::chrono::duration<float, std::milli>(end->records->time - begin->records->time).count();
  return CUDA_SUCCESS;
}

}  // extern "C"
