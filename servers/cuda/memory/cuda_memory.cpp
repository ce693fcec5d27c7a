#include <coxswain/servers/cuda/memory/cuda_memory.hpp>

#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/runtime/memory/granularity.hpp>
#include <coxswain/servers/cuda/memory/cuda_storage.hpp>
#include <coxswain/servers/cuda/memory/plain_storage.hpp>

namespace cox::detail {
namespace {

template <MemoryStorage Storage>
class MemoryOver final : public CudaMemory {
 public:
  template <class... A>
  MemoryOver(const CudaStreams& streams, const MemoryPoolOptions& options, const A&... storage)
      : memory_(streams, options, storage...) {}

  Buffer allocate(const MemoryRequest& request) override { return memory_.allocate(request); }
  Buffer borrow(MemoryAddress address, std::size_t bytes, std::shared_ptr<BorrowedMemory> memory) override {
    return memory_.borrow(address, bytes, std::move(memory));
  }
  std::shared_ptr<void> count_separate(std::size_t bytes, std::size_t reserved) override {
    return memory_.count_separate(bytes, reserved);
  }
  bool has_borrowed() const noexcept override { return memory_.has_borrowed(); }
  void end_borrowed(const EndBorrowed& end) override { memory_.end_borrowed(end); }
  void collect_returned() override { memory_.collect_returned(); }
  bool is_live(const DeviceBuffer& buffer) const noexcept override { return memory_.is_live(buffer); }
  void cleanup() override { memory_.cleanup(); }
  MemoryUsage usage() override { return memory_.usage(); }
  MemoryReport report() override { return memory_.report(); }
  const std::shared_ptr<const UsageGauge>& gauge() const noexcept override { return memory_.gauge(); }
  bool install(const MemoryPoolLayout& layout) override { return memory_.install(layout); }

 private:
  DeviceMemory<Storage, CudaStreams> memory_;
};

bool maps_memory(const CudaContext& context) {
  return context.attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) != 0 &&
         settings().get<bool>("cuda.mapped_memory");
}

}  // namespace

std::unique_ptr<CudaMemory> open_cuda_memory(const CudaStreams& streams, const MemoryProperties& properties,
                                             const std::shared_ptr<CudaContext>& context) {
  MemoryPoolOptions options{.alignment = properties.alignment, .capacity = properties.capacity};
  if (!maps_memory(*context)) return std::make_unique<MemoryOver<PlainStorage>>(streams, options, context);
  options.address_space = Granularity{CudaStorage::granule}.round_up(8 * properties.capacity);
  return std::make_unique<MemoryOver<CudaStorage>>(streams, options, context);
}

}  // namespace cox::detail
