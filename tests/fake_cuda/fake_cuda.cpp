// A library that stands in for the CUDA driver where there is no GPU, and where the driver must fail.
#include <coxswain/tests/fake_cuda/fake_cuda.hpp>

#include <cuda.h>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

using cox::test::FakeCuda;

// What the driver's handles point to.
struct CUctx_st {
  int device;
};
struct CUevent_st {
  std::uint64_t recorded = 0;  // so often
  std::uint64_t reached = 0;   // up to that record
};
struct CUstream_st {
  std::deque<std::function<bool(bool first_look)>> work;  // each is over when it returns true
  bool begun = false;                                     // the first has been looked at
};
struct CUfunc_st {
  std::string name;
  const FakeCuda::KernelType* type;
};
struct CUgraphNode_st {
  CUfunction function;
  std::vector<std::vector<std::byte>> arguments;
};
struct CUgraph_st {
  std::vector<std::unique_ptr<CUgraphNode_st>> nodes;
};
struct CUgraphExec_st {
  std::vector<std::pair<CUgraphNode, CUgraphNode_st>> nodes;  // in their order
};

namespace {

constexpr int devices = 2;
constexpr std::size_t memory_of_device = std::size_t{256} << 20U;
constexpr int driver_version = 13'000;

FakeCuda& state() {
  static auto& state = *new FakeCuda;
  return state;
}

// Under the lock.
struct World {
  std::array<CUctx_st, devices> contexts{{{0}, {1}}};
  std::set<CUstream> streams;
  std::map<std::string, std::unique_ptr<CUfunc_st>> functions;
};
World& world() {
  static auto& world = *new World;
  return world;
}

thread_local CUcontext current = nullptr;
thread_local std::vector<CUcontext> below;

constexpr CUresult fault = CUDA_ERROR_ILLEGAL_ADDRESS;

// Under the lock. What a call that can fail returns, if it does.
CUresult failure(const char* function = __builtin_FUNCTION()) {
  FakeCuda& fake = state();
  ++fake.calls;
  if (fake.calls_until_fault >= 0 && fake.calls_until_fault-- == 0) {
    fake.faulted = true;
    fake.failed = function;
  }
  if (fake.faulted) return fault;
  if (fake.calls_until_failure < 0 || fake.calls_until_failure-- != 0) return CUDA_SUCCESS;
  fake.failed = function;
  return CUDA_ERROR_OUT_OF_MEMORY;
}

// Under the lock. Has all streams do what they can.
void work() {
  if (state().faulted) return;
  for (bool any = true; any;) {
    any = false;
    for (const CUstream stream : world().streams) {
      while (!stream->work.empty()) {
        if (!stream->work.front()(!std::exchange(stream->begun, true))) break;
        stream->work.pop_front();
        stream->begun = false;
        any = true;
      }
    }
  }
}

template <class F>
CUresult enqueue(CUstream stream, F&& piece, const char* function = __builtin_FUNCTION()) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult result = failure(function); result != CUDA_SUCCESS) return result;
  if (stream == nullptr) {  // nothing else uses it here
    while (!piece(true)) work();
    return CUDA_SUCCESS;
  }
  if (!world().streams.contains(stream)) {
    state().misuse.emplace_back("work on a stream that is not there");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  stream->work.emplace_back(std::forward<F>(piece));
  work();
  return CUDA_SUCCESS;
}

template <class F>
CUresult enqueue_once(CUstream stream, F piece, const char* function = __builtin_FUNCTION()) {
  const auto once = [piece](bool) {
    piece();
    return true;
  };
  return enqueue(stream, once, function);
}

std::vector<std::vector<std::byte>> copy_of(CUfunction function, void** arguments) {
  std::vector<std::vector<std::byte>> copies;
  for (std::size_t i = 0; i < function->type->parameters.size(); ++i) {
    const auto* const begin = static_cast<const std::byte*>(arguments[i]);
    copies.emplace_back(begin, begin + function->type->parameters[i]);
  }
  return copies;
}

std::function<bool(bool)> running(const CUgraphNode_st& node) {
  return [arguments = node.arguments, kernel = node.function->type->make()](bool first_look) mutable {
    std::vector<void*> values;
    for (auto& argument : arguments) values.push_back(argument.data());
    return kernel(values.data(), first_look);
  };
}

template <class T>
CUresult make(T** made, const char* function = __builtin_FUNCTION()) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult result = failure(function); result != CUDA_SUCCESS) return result;
  ++state().live;
  *made = new T();
  return CUDA_SUCCESS;
}

template <class T>
CUresult give_back(T* made) {
  const std::lock_guard lock(state().mutex);
  --state().live;
  delete made;
  return CUDA_SUCCESS;
}

void* host(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

// The fd of a piece of memory, as a handle that is not 0.
CUmemGenericAllocationHandle handle_of(int fd) { return static_cast<CUmemGenericAllocationHandle>(fd) + 1; }
int fd_of(CUmemGenericAllocationHandle handle) { return static_cast<int>(handle - 1); }

CUresult copy(void* to, const void* from, std::size_t bytes, CUstream stream,
              const char* function = __builtin_FUNCTION()) {
  const auto piece = [=] { std::memcpy(to, from, bytes); };
  return enqueue_once(stream, piece, function);
}

}  // namespace

extern "C" {

FakeCuda* cox_fake_cuda() { return &state(); }

CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int* version) {
  *version = driver_version;
  return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult result, const char** name) {
  *name = result == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_ILLEGAL_ADDRESS";
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult, const char** text) {
  *text = "the failure that the test asked for";
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  *count = devices;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return ordinal < devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
CUresult cuDeviceGetName(char* name, int size, CUdevice) {
  std::strncpy(name, "no GPU at all", static_cast<std::size_t>(size));
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 9; break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *value = 32; break;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: *value = 1; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
    case CU_DEVICE_ATTRIBUTE_ECC_ENABLED: *value = 0; break;
    default: *value = 1024;  // limits
  }
  return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem(std::size_t* bytes, CUdevice) {
  *bytes = memory_of_device;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetPCIBusId(char* text, int size, CUdevice device) {
  std::strncpy(text, device == 0 ? "0000:01:00.0" : "0000:02:00.0", static_cast<std::size_t>(size));
  return CUDA_SUCCESS;
}
CUresult cuDeviceCanAccessPeer(int* can, CUdevice, CUdevice) {
  *can = 1;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute, CUdevice, CUdevice) {
  *value = 0;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  *context = &world().contexts.at(static_cast<std::size_t>(device));
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice) { return CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext context) {
  current = context;
  return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent(CUcontext context) {
  below.push_back(std::exchange(current, context));
  return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent(CUcontext* context) {
  *context = std::exchange(current, below.back());
  below.pop_back();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int* lowest, int* highest) {
  *lowest = 0;
  *highest = -5;
  return CUDA_SUCCESS;
}
CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned, int) {
  const CUresult result = make(stream);
  if (result != CUDA_SUCCESS) return result;
  const std::lock_guard lock(state().mutex);
  world().streams.insert(*stream);
  return result;
}
CUresult cuStreamDestroy(CUstream stream) {
  {
    const std::lock_guard lock(state().mutex);
    if (!stream->work.empty() && !state().faulted)
      state().misuse.emplace_back("a stream is destroyed before its work is done");
    world().streams.erase(stream);
  }
  return give_back(stream);
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  std::uint64_t record = 0;
  {
    const std::lock_guard lock(state().mutex);
    record = event->recorded;
  }
  return enqueue(stream, [=](bool) { return event->reached >= record; });
}
CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  if (flags != CU_STREAM_WAIT_VALUE_GEQ) return CUDA_ERROR_NOT_SUPPORTED;
  return enqueue(stream, [=](bool) {
    const auto* const word = static_cast<const std::atomic<std::uint32_t>*>(host(address));
    return static_cast<std::int32_t>(word->load() - value) >= 0;
  });
}
CUresult cuStreamSynchronize(CUstream stream) {
  for (;;) {
    {
      const std::lock_guard lock(state().mutex);
      work();
      if (state().faulted) return fault;
      if (stream == nullptr || stream->work.empty()) return CUDA_SUCCESS;
    }
    std::this_thread::yield();  // another one may bring about what it waits for
  }
}
CUresult cuStreamBeginCapture(CUstream, CUstreamCaptureMode) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult cuStreamEndCapture(CUstream, CUgraph*) { return CUDA_ERROR_NOT_SUPPORTED; }

CUresult cuEventCreate(CUevent* event, unsigned) { return make(event); }
CUresult cuEventDestroy(CUevent event) { return give_back(event); }
CUresult cuEventRecord(CUevent event, CUstream stream) {
  std::uint64_t record = 0;
  {
    const std::lock_guard lock(state().mutex);
    record = ++event->recorded;
  }
  const CUresult result = enqueue_once(stream, [=] { event->reached = std::max(event->reached, record); });
  if (result != CUDA_SUCCESS) {
    const std::lock_guard lock(state().mutex);
    --event->recorded;
  }
  return result;
}
CUresult cuEventQuery(CUevent event) {
  const std::lock_guard lock(state().mutex);
  work();
  if (state().faulted) return fault;
  return event->reached >= event->recorded ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult cuEventElapsedTime(float* milliseconds, CUevent, CUevent) {
  *milliseconds = 0;
  return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void** memory, std::size_t bytes, unsigned) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult result = failure(); result != CUDA_SUCCESS) return result;
  ++state().live;
  *memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  return *memory != nullptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult cuMemFreeHost(void* memory) {
  const std::lock_guard lock(state().mutex);
  --state().live;
  std::free(memory);
  return CUDA_SUCCESS;
}
CUresult cuMemAlloc(CUdeviceptr* address, std::size_t bytes) {
  void* memory = nullptr;
  const CUresult result = cuMemHostAlloc(&memory, bytes, 0);
  *address = reinterpret_cast<CUdeviceptr>(memory);
  return result;
}
CUresult cuMemFree(CUdeviceptr address) { return cuMemFreeHost(host(address)); }
CUresult cuMemsetD32(CUdeviceptr address, unsigned value, std::size_t count) {
  if (value == 0 && ::madvise(host(address), count * sizeof(value), MADV_REMOVE) == 0) return CUDA_SUCCESS;
  std::fill_n(static_cast<unsigned*>(host(address)), count, value);
  return CUDA_SUCCESS;
}
CUresult cuMemAddressReserve(CUdeviceptr* address, std::size_t bytes, std::size_t alignment, CUdeviceptr,
                             unsigned long long) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult result = failure(); result != CUDA_SUCCESS) return result;
  void* const found = ::mmap(nullptr, bytes + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  ++state().live;
  *address = (reinterpret_cast<CUdeviceptr>(found) + alignment - 1) / alignment * alignment;
  return CUDA_SUCCESS;
}
CUresult cuMemAddressFree(CUdeviceptr address, std::size_t bytes) {
  const std::lock_guard lock(state().mutex);
  --state().live;
  ::munmap(host(address), bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t bytes, const CUmemAllocationProp*,
                     unsigned long long) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult result = failure(); result != CUDA_SUCCESS) return result;
  const int fd = ::memfd_create("fake device memory", MFD_CLOEXEC);
  if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(bytes)) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  ++state().live;
  *handle = handle_of(fd);
  return CUDA_SUCCESS;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  const std::lock_guard lock(state().mutex);
  --state().live;
  ::close(fd_of(handle));
  return CUDA_SUCCESS;
}
CUresult cuMemMap(CUdeviceptr address, std::size_t bytes, std::size_t, CUmemGenericAllocationHandle handle,
                  unsigned long long) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult result = failure(); result != CUDA_SUCCESS) return result;
  void* const found = ::mmap(host(address), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd_of(handle), 0);
  return found == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}
CUresult cuMemUnmap(CUdeviceptr address, std::size_t bytes) {
  ::mmap(host(address), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  return CUDA_SUCCESS;
}
CUresult cuMemSetAccess(CUdeviceptr, std::size_t, const CUmemAccessDesc*, std::size_t) {
  const std::lock_guard lock(state().mutex);
  return failure();
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
  return copy(host(to), from, bytes, stream);
}
CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return copy(to, host(from), bytes, stream);
}
CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D*, CUstream) { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, std::size_t bytes, CUstream stream) {
  return copy(host(to), host(from), bytes, stream);
}
CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER*, CUstream) { return CUDA_ERROR_NOT_SUPPORTED; }

// A library has every kernel that the test knows.
CUresult cuLibraryLoadData(CUlibrary* library, const void*, CUjit_option*, void**, unsigned, CUlibraryOption*, void**,
                           unsigned) {
  static int any = 0;
  *library = reinterpret_cast<CUlibrary>(&any);
  return CUDA_SUCCESS;
}
CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary, const char* name) {
  const std::lock_guard lock(state().mutex);
  const auto found = state().kernels.find(name);
  if (found == state().kernels.end()) return CUDA_ERROR_NOT_FOUND;
  auto& function = world().functions[name];
  if (function == nullptr) function = std::make_unique<CUfunc_st>(CUfunc_st{name, &found->second});
  *kernel = reinterpret_cast<CUkernel>(function.get());
  return CUDA_SUCCESS;
}
CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  *function = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
}
CUresult cuFuncLoad(CUfunction) { return CUDA_SUCCESS; }
CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction) {
  *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
  return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; }
CUresult cuFuncGetParamInfo(CUfunction function, std::size_t index, std::size_t* offset, std::size_t* size) {
  if (index >= function->type->parameters.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = 0;
  *size = function->type->parameters[index];
  return CUDA_SUCCESS;
}
CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** arguments, void**) {
  const CUresult result = enqueue(config->hStream, running({function, copy_of(function, arguments)}));
  const std::lock_guard lock(state().mutex);
  if (result != CUDA_SUCCESS) return result;
  ++state().launches;
  for (unsigned i = 0; i < config->numAttrs; ++i) state().attributes.push_back(config->attrs[i].id);
  return result;
}
CUresult cuTensorMapEncodeTiled(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                                CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuTensorMapEncodeIm2col(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                 const cuuint64_t*, const int*, const int*, cuuint32_t, cuuint32_t, const cuuint32_t*,
                                 CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                                 CUtensorMapFloatOOBfill) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphCreate(CUgraph* graph, unsigned) { return make(graph); }
CUresult cuGraphAddKernelNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* behind, std::size_t count,
                              const CUDA_KERNEL_NODE_PARAMS* parameters) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult result = failure(); result != CUDA_SUCCESS) return result;
  const bool is_chain = graph->nodes.empty() ? count == 0 : count == 1 && *behind == graph->nodes.back().get();
  if (!is_chain) state().misuse.emplace_back("a graph that is no chain");
  graph->nodes.push_back(std::make_unique<CUgraphNode_st>(
      CUgraphNode_st{parameters->func, copy_of(parameters->func, parameters->kernelParams)}));
  *node = graph->nodes.back().get();
  return CUDA_SUCCESS;
}
CUresult cuGraphKernelNodeSetAttribute(CUgraphNode, CUkernelNodeAttrID, const CUkernelNodeAttrValue*) {
  const std::lock_guard lock(state().mutex);
  return failure();
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long) {
  const CUresult result = make(exec);
  if (result != CUDA_SUCCESS) return result;
  for (const auto& node : graph->nodes) (*exec)->nodes.emplace_back(node.get(), *node);
  return result;
}
CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* parameters) {
  const std::lock_guard lock(state().mutex);
  if (const CUresult result = failure(); result != CUDA_SUCCESS) return result;
  for (auto& [of, launched] : exec->nodes)
    if (of == node) launched = {parameters->func, copy_of(parameters->func, parameters->kernelParams)};
  return CUDA_SUCCESS;
}
CUresult cuGraphUpload(CUgraphExec, CUstream) { return CUDA_SUCCESS; }
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  std::deque<std::function<bool(bool)>> kernels;
  for (const auto& [node, launched] : exec->nodes) kernels.push_back(running(launched));
  const CUresult result = enqueue(stream, [kernels = std::move(kernels), begun = false](bool) mutable {
    while (!kernels.empty()) {
      if (!kernels.front()(!std::exchange(begun, true))) return false;
      kernels.pop_front();
      begun = false;
    }
    return true;
  });
  const std::lock_guard lock(state().mutex);
  if (result == CUDA_SUCCESS) ++state().graph_launches;
  return result;
}
CUresult cuGraphDestroy(CUgraph graph) { return give_back(graph); }
CUresult cuGraphExecDestroy(CUgraphExec exec) { return give_back(exec); }

CUresult cuGetProcAddress_v2(const char* name, void** function, int, cuuint64_t, CUdriverProcAddressQueryResult*) {
  static const std::map<std::string_view, void*> functions{
#define COX_CUDA_ENTRY(member, function, version) {#function, reinterpret_cast<void*>(&function)},
#include <coxswain/servers/cuda/detail/driver_entries.inc>
#undef COX_CUDA_ENTRY
  };
  const auto found = functions.find(name);
  *function = found != functions.end() ? found->second : nullptr;
  return found != functions.end() ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

}  // extern "C"
