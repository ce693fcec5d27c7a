// Kernels and graphs of the library that stands in for the CUDA driver.
#include <coxswain/tests/fake_cuda/fake_driver.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <utility>

using namespace cox::test;

namespace {

CUgraphNode_st node_of(CUfunction function, std::array<unsigned, 3> cubes, void* const* arguments) {
  CUgraphNode_st node{.function = function, .cubes = cubes, .arguments = {}, .captured = {}};
  for (std::size_t i = 0; i < function->type->parameters.size(); ++i) {
    const auto* const begin = static_cast<const std::byte*>(arguments[i]);
    node.arguments.emplace_back(begin, begin + function->type->parameters[i]);
  }
  return node;
}
CUgraphNode_st node_of(const CUDA_KERNEL_NODE_PARAMS& parameters) {
  return node_of(parameters.func, {parameters.gridDimX, parameters.gridDimY, parameters.gridDimZ},
                 parameters.kernelParams);
}

bool is_launchable(const CUlaunchConfig& config) {
  return config.gridDimX != 0 && config.gridDimY != 0 && config.gridDimZ != 0 &&
         config.blockDimX * config.blockDimY * config.blockDimZ - 1 < 1024;  // 0 is none, either
}

}  // namespace

FakeWork cox::test::work_of(const CUgraphNode_st& node) {
  if (node.function == nullptr) return node.captured;
  return [launch = node, kernel = FakeCuda::Kernel()](bool first_look) mutable {
    if (first_look) kernel = launch.function->type->make();
    std::vector<void*> values;
    for (auto& argument : launch.arguments) values.push_back(argument.data());
    return kernel({values.data(), launch.cubes, first_look});
  };
}

extern "C" {

// A library has every kernel that the test knows.
CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option*, void**, unsigned, CUlibraryOption*,
                           void**, unsigned) {
  constexpr std::array fatbin{std::byte{0x50}, std::byte{0xed}, std::byte{0x55}, std::byte{0xba}};
  if (code != nullptr && std::memcmp(code, fatbin.data(), fatbin.size()) == 0) {
    const auto lock = lock_fake();
    if (fake_state().rejects_fatbins) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  static int any = 0;
  *library = reinterpret_cast<CUlibrary>(&any);
  return CUDA_SUCCESS;
}
CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary, const char* name) {
  const auto lock = lock_fake();
  if (std::string_view(name) == "cox_empty") {  // of the library itself
    static FakeCuda::KernelType type{{}, [] { return [](const FakeCuda::Run&) { return true; }; }};
    static CUfunc_st empty{name, &type};
    *kernel = reinterpret_cast<CUkernel>(&empty);
    return CUDA_SUCCESS;
  }
  const auto found = fake_state().kernels.find(name);
  if (found == fake_state().kernels.end()) return CUDA_ERROR_NOT_FOUND;
  auto& function = fake_world().functions[name];
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
  if (!is_launchable(*config)) return CUDA_ERROR_INVALID_VALUE;
  {
    const auto lock = lock_fake();
    if (fake_state().refusal != 0) return static_cast<CUresult>(fake_state().refusal);
  }
  const CUgraphNode_st node = node_of(function, {config->gridDimX, config->gridDimY, config->gridDimZ}, arguments);
  const CUresult result = enqueue(config->hStream, work_of(node));
  const auto lock = lock_fake();
  if (result != CUDA_SUCCESS) return result;
  ++fake_state().launches;
  for (unsigned i = 0; i < config->numAttrs; ++i) fake_state().attributes.push_back(config->attrs[i].id);
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
  const auto lock = lock_fake();
  if (const CUresult result = fake_failure(); result != CUDA_SUCCESS) return result;
  const bool is_chain = graph->nodes.empty() ? count == 0 : count == 1 && *behind == graph->nodes.back().get();
  if (!is_chain) fake_state().misuse.emplace_back("a graph that is no chain");
  graph->nodes.push_back(std::make_unique<CUgraphNode_st>(node_of(*parameters)));
  *node = graph->nodes.back().get();
  return CUDA_SUCCESS;
}
CUresult cuGraphKernelNodeSetAttribute(CUgraphNode, CUkernelNodeAttrID, const CUkernelNodeAttrValue*) {
  const auto lock = lock_fake();
  return fake_failure();
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long) {
  const CUresult result = make(exec);
  if (result != CUDA_SUCCESS) return result;
  for (const auto& node : graph->nodes) (*exec)->nodes.emplace_back(node.get(), *node);
  return result;
}
CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* parameters) {
  const auto lock = lock_fake();
  if (const CUresult result = fake_failure(); result != CUDA_SUCCESS) return result;
  for (auto& [of, launched] : exec->nodes)
    if (of == node) launched = node_of(*parameters);
  return CUDA_SUCCESS;
}
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  std::deque<FakeWork> nodes;
  for (const auto& [node, launched] : exec->nodes) nodes.push_back(work_of(launched));
  const CUresult result = enqueue(stream, [nodes = std::move(nodes), begun = false](bool) mutable {
    while (!nodes.empty()) {
      if (!nodes.front()(!std::exchange(begun, true))) return false;
      nodes.pop_front();
      begun = false;
    }
    return true;
  });
  const auto lock = lock_fake();
  if (result == CUDA_SUCCESS) ++fake_state().graph_launches;
  return result;
}
CUresult cuGraphDestroy(CUgraph graph) { return give_back(graph); }
CUresult cuGraphExecDestroy(CUgraphExec exec) { return give_back(exec); }

}  // extern "C"
