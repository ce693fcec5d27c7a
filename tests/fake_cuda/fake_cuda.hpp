#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace cox::test {

/// What a test and the library that stands in for the CUDA driver both know: the test finds it with dlsym, by the name
/// of the function cox_fake_cuda. One thread does the work of all streams: in the order of each, between them in that
/// of events and else by chance; memory of devices is memory of the host; kernels are functions here.
struct FakeCuda {
  struct Run {
    void* const* arguments;  ///< as the launch has them
    std::array<unsigned, 3> cubes;
    bool first_look;
  };
  /// A kernel as it runs: looked at again and again until it returns true.
  using Kernel = std::function<bool(const Run&)>;
  struct KernelType {
    std::vector<std::size_t> parameters;  ///< bytes of each
    /// Makes what runs, once for each launch.
    std::function<Kernel()> make;
  };

  static constexpr int most_devices = 9;

  std::mutex mutex;                           // of all below, and held while anything runs
  std::map<std::string, KernelType> kernels;  ///< by name: kernels of other names are not found
  bool by_chance = true;                      ///< false: what was given first is done first, if it can be
  int devices = 4;                            ///< GPUs of the machine, at most most_devices
  bool has_peer_access = true;                ///< each GPU can access the memory of the others
  bool has_nvlink = false;                    ///< by NVLink
  int calls_until_failure = -1;               ///< of those that can fail: so many succeed, then one fails; -1: none
  int calls_until_fault = -1;                 ///< of those: then the GPUs fault, and all calls fail
  bool faulted = false;                       ///< they have
  int calls = 0;                              ///< of those that can fail
  const char* failed = nullptr;               ///< the function that has, since that was set
  int refusal = 0;                            ///< CUresult of launches by themselves; 0: they succeed
  int import_error = 0;                       ///< CUresult of all imports of memory; 0: as it should be
  int export_error = 0;                       ///< of all exports
  bool rejects_fatbins = false;               ///< they have no code for the devices
  int launches = 0;                           ///< of kernels, each by itself
  std::vector<int> attributes;                ///< that those had: CUlaunchAttributeID
  int graph_launches = 0;
  std::size_t largest_piece = ~std::size_t{0};  ///< bytes; for larger ones cuMemCreate has no memory
  int live = 0;                     ///< streams, events, graphs, memory that have been made and not given back
  std::vector<std::string> misuse;  ///< of the driver's rules
};

}  // namespace cox::test
