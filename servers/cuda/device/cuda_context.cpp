#include <coxswain/servers/cuda/device/cuda_context.hpp>

#include <coxswain/servers/cuda/driver/cuda_try.hpp>

#include <map>
#include <mutex>

namespace cox::detail {
namespace {

struct OpenContexts {
  std::mutex mutex;
  std::map<int, std::weak_ptr<CudaContext>> by_ordinal;  // guarded by mutex
};

OpenContexts& open_contexts() {
  static OpenContexts& contexts = *new OpenContexts;  // never destroyed: usable while static objects are destroyed
  return contexts;
}

}  // namespace

std::shared_ptr<CudaContext> CudaContext::open(int ordinal) {
  if (auto found = find(ordinal)) return found;
  auto made = std::make_shared<CudaContext>(ordinal);  // slow, so without the lock: other devices do not wait for it
  OpenContexts& contexts = open_contexts();
  const std::lock_guard lock(contexts.mutex);
  std::weak_ptr<CudaContext>& entry = contexts.by_ordinal[ordinal];
  if (auto other = entry.lock()) return other;
  entry = made;
  return made;
}

std::shared_ptr<CudaContext> CudaContext::find(int ordinal) {
  OpenContexts& contexts = open_contexts();
  const std::lock_guard lock(contexts.mutex);
  const auto found = contexts.by_ordinal.find(ordinal);
  return found == contexts.by_ordinal.end() ? nullptr : found->second.lock();
}

CudaContext::CudaContext(int ordinal) : ordinal_(ordinal) {
  COX_CUDA_TRY(device_get(&device_, ordinal));
  COX_CUDA_TRY(context_retain(&context_, device_));
}

CudaContext::~CudaContext() { COX_CUDA_CHECK(context_release(device_)); }

int CudaContext::attribute(CUdevice_attribute which) const {
  int value = 0;
  COX_CUDA_TRY(device_attribute(&value, which, device_));
  return value;
}

void CudaContext::make_current() const {
  COX_CUDA_TRY(context_set_current(context_));
  RelaxedCapture::of_thread();
}

CurrentContext::CurrentContext(const CudaContext& context) noexcept
    : pushed_(!process_is_ending() && COX_CUDA_CHECK(context_push(context.native()))) {}

CurrentContext::~CurrentContext() {
  CUcontext popped = nullptr;
  if (pushed_) COX_CUDA_CHECK(context_pop(&popped));
}

namespace {

thread_local bool thread_is_relaxed = false;

// Exchanges the mode of the thread. Returns the mode before.
CUstreamCaptureMode exchange_capture_mode(CUstreamCaptureMode mode) noexcept {
  if (!process_is_ending()) COX_CUDA_CHECK(thread_exchange_capture_mode(&mode));
  return mode;
}

}  // namespace

RelaxedCapture::RelaxedCapture() noexcept {
  if (thread_is_relaxed) return;
  before_ = exchange_capture_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
  changed_ = true;
}

RelaxedCapture::~RelaxedCapture() {
  if (changed_) exchange_capture_mode(before_);
}

void RelaxedCapture::of_thread() noexcept {
  if (!thread_is_relaxed) exchange_capture_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
  thread_is_relaxed = true;
}

}  // namespace cox::detail
