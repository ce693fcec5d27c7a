#include <coxswain/perf/cuda/raw_driver.hpp>
#include <coxswain/perf/memory/cuda/raw_pool.hpp>

#include <limits>

namespace cox::perf {
namespace {

void set(CUmemoryPool pool, CUmemPool_attribute attribute, cuuint64_t value) {
  COX_RAW_TRY(memory_pool_set_attribute(pool, attribute, &value));
}

std::size_t get(CUmemoryPool pool, CUmemPool_attribute attribute) {
  cuuint64_t value = 0;
  COX_RAW_TRY(memory_pool_attribute(pool, attribute, &value));
  return value;
}

}  // namespace

RawPool::RawPool(const RawStream& gpu, std::uint32_t streams) {
  COX_RAW_TRY(memory_pool_default(&pool_, gpu.context().device()));
  set(pool_, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, std::numeric_limits<cuuint64_t>::max());
  set(pool_, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 0);
  set(pool_, CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0);
  for (std::uint32_t i = 0; i < streams; ++i) streams_.push_back(std::make_unique<RawStream>(gpu.context().ordinal()));
}

RawPool::~RawPool() {
  for (const auto& stream : streams_) COX_CUDA_CHECK(stream_synchronize(stream->native()));
  COX_RAW_CHECK(memory_pool_trim(pool_, 0));
}

MemoryUsage RawPool::usage() const {
  MemoryUsage usage;
  usage.peak_bytes_in_use = get(pool_, CU_MEMPOOL_ATTR_USED_MEM_HIGH);
  usage.peak_bytes_reserved = get(pool_, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH);
  return usage;
}

}  // namespace cox::perf
