#include <coxswain/device_handle/queue/block_pool.hpp>

#include <coxswain/device_handle/queue/concurrentqueue.hpp>

#include <new>

namespace cox {

struct BlockPool::FreeBlocks {
  moodycamel::ConcurrentQueue<void*> queue{retained_limit};
  moodycamel::ProducerToken giver{queue};
};

BlockPool::BlockPool() : free_(std::make_unique<FreeBlocks>()) {
  if (!free_->giver.valid()) throw std::bad_alloc();  // the queue could not allocate its producer
}

BlockPool::~BlockPool() {
  for (void* block = nullptr; free_->queue.try_dequeue(block);) free(block);
}

void* BlockPool::allocate() {
  void* block = nullptr;
  if (free_->queue.try_dequeue(block)) {
    retained_.fetch_sub(1, std::memory_order_relaxed);
    return block;
  }
  block = ::operator new(block_bytes, std::align_val_t{block_alignment});
  allocated_.fetch_add(1, std::memory_order_relaxed);
  return block;
}

void BlockPool::recycle(void* block) noexcept {
  if (!sealed_.load(std::memory_order_acquire) && retained_.load(std::memory_order_relaxed) < retained_limit &&
      free_->queue.enqueue(free_->giver, block)) {
    retained_.fetch_add(1, std::memory_order_relaxed);
  } else {
    free(block);
  }
}

void BlockPool::trim() noexcept {
  while (retained_.load(std::memory_order_relaxed) > resting_limit) {
    void* block = nullptr;
    if (!free_->queue.try_dequeue(block)) return;
    retained_.fetch_sub(1, std::memory_order_relaxed);
    free(block);
  }
}

void BlockPool::free(void* block) noexcept {
  ::operator delete(block, std::align_val_t{block_alignment});
  allocated_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace cox
