#include <cstdio>

#include <coxswain/device_handle/handle/device_handle.hpp>

namespace {

class Adder {
 public:
  explicit Adder(cox::DeviceId) {}
  void add(int value) { sum_ += value; }
  [[nodiscard]] int sum() const { return sum_; }

 private:
  int sum_ = 0;
};

}  // namespace

int main() {
  const auto handle = cox::DeviceHandle<Adder>::get({.type = 0, .index = 0});
  for (int value = 1; value <= 4; ++value) {
    handle.submit([value](Adder& adder) { adder.add(value); });
  }
  const int sum = handle.submit_blocking([](Adder& adder) { return adder.sum(); });
  std::printf("1 + 2 + 3 + 4 = %d\n", sum);
  return sum == 10 ? 0 : 1;
}
