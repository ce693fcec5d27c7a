#include <cuda_on_cpu.hpp>

#include <utility>

namespace on_cpu {
namespace {

constexpr std::size_t stack_bytes = std::size_t{64} << 10U;

}  // namespace

Block& current() {
  thread_local Block block;
  return block;
}

void Block::enter() {
  Block& block = current();
  try {
    (*block.kernel_)();
  } catch (...) {
    block.failure_ = std::current_exception();
  }
  block.all_threads_[block.thread.x]->ended = true;
  block.progress_ = true;
  // The context's link continues the scheduler.
}

void Block::run(unsigned number, unsigned blocks, unsigned threads, const std::function<void()>& kernel) {
  kernel_ = &kernel;
  threads_ = threads;
  block = {number};
  grid_dim = {blocks};
  block_dim = {threads};
  all_ = {};
  warps_.assign((threads + 31) / 32, {});
  while (all_threads_.size() < threads) {
    all_threads_.push_back(std::make_unique<Thread>());
    all_threads_.back()->stack = std::make_unique<std::byte[]>(stack_bytes);
  }
  for (unsigned i = 0; i < threads; ++i) {
    Thread& one = *all_threads_[i];
    one.ended = false;
    one.shuffles = 0;
    getcontext(&one.context);
    one.context.uc_stack.ss_sp = one.stack.get();
    one.context.uc_stack.ss_size = stack_bytes;
    one.context.uc_link = &scheduler_;
    makecontext(&one.context, &Block::enter, 0);
  }
  unsigned ended = 0;
  while (ended < threads) {
    progress_ = false;
    ended = 0;
    for (unsigned i = 0; i < threads; ++i) {
      if (!all_threads_[i]->ended) {
        thread = {i};
        swapcontext(&scheduler_, &all_threads_[i]->context);
      }
      if (all_threads_[i]->ended) ++ended;
    }
    if (failure_ != nullptr) std::rethrow_exception(std::exchange(failure_, nullptr));
    if (!progress_) throw std::logic_error("threads wait at a barrier that other threads do not reach");
  }
}

void Block::wait(Barrier& barrier, unsigned count) {
  const unsigned generation = barrier.generation;
  if (++barrier.arrived == count) {
    barrier.arrived = 0;
    ++barrier.generation;
    progress_ = true;
    return;
  }
  const unsigned self = thread.x;
  while (barrier.generation == generation) swapcontext(&all_threads_[self]->context, &scheduler_);
}

// The values of two shuffles in a row are kept apart, so that a fast thread does not overwrite what others still read.
float Block::shuffle_xor(float value, int mask) {
  const unsigned self = thread.x;
  Warp& warp = warps_[self / 32];
  float* const values = warp.values[all_threads_[self]->shuffles++ % 2];
  values[self % 32] = value;
  wait(warp.barrier, 32);
  return values[(self % 32) ^ static_cast<unsigned>(mask)];
}

}  // namespace on_cpu
