#include <cstdio>
#include <memory>
#include <thread>
#include <utility>

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/handle/device_handle.hpp>
#include <coxswain/device_handle/service/post_queue.hpp>
#include <coxswain/device_handle/service/thread_context.hpp>

namespace {

class Adder {
 public:
  explicit Adder(cox::DeviceId) {}
  void add(int value) { sum_ += value; }
  [[nodiscard]] int sum() const { return sum_; }

 private:
  int sum_ = 0;
};

/// A server of its own kind, as the CUDA server is built: it has its thread, does something once for several tasks, and
/// has a thread that reports to it.
class Sampler final : private cox::BatchHook {
 public:
  explicit Sampler(cox::ThreadContext& thread)
      : thread_(thread), posts_(std::make_shared<cox::PostQueue>(thread.device(), [this] { ++notifications_; })) {
    posts_->attach(thread);
    helper_ = std::thread([posts = posts_, this] {
      for (int sample = 1; sample <= 3; ++sample) posts->post([this, sample] { samples_ += sample; });
    });
  }
  ~Sampler() {
    helper_.join();
    posts_->close();
  }

  void add(int value) {
    pending_ += value;
    if (!thread_.at_batch_end(*this)) end_batch();
  }
  [[nodiscard]] bool is_done() const { return samples_ == 6 && pending_ == 0 && added_ == 10; }
  [[nodiscard]] int batches() const { return batches_; }

 private:
  void end_batch() noexcept override {
    added_ += std::exchange(pending_, 0);
    ++batches_;
  }

  cox::ThreadContext& thread_;
  std::shared_ptr<cox::PostQueue> posts_;
  std::thread helper_;
  int samples_ = 0;
  int notifications_ = 0;
  int pending_ = 0;
  int added_ = 0;
  int batches_ = 0;
};

int run_sampler() {
  const auto handle = cox::DeviceHandle<Sampler>::get({.type = 0, .index = 0});
  for (int value = 1; value <= 4; ++value) {
    handle.submit([value](Sampler& sampler) { sampler.add(value); });
  }
  while (!handle.submit_blocking([](Sampler& sampler) { return sampler.is_done(); })) std::this_thread::yield();
  const int batches = handle.submit_blocking([](Sampler& sampler) { return sampler.batches(); });
  std::printf("4 additions in %d batches\n", batches);
  return batches >= 1 && batches <= 4 ? 0 : 1;
}

}  // namespace

int main() {
  const auto handle = cox::DeviceHandle<Adder>::get({.type = 0, .index = 0});
  for (int value = 1; value <= 4; ++value) {
    handle.submit([value](Adder& adder) { adder.add(value); });
  }
  const int sum = handle.submit_blocking([](Adder& adder) { return adder.sum(); });
  std::printf("1 + 2 + 3 + 4 = %d\n", sum);
  return sum == 10 ? run_sampler() : 1;
}
