// expect-exit: 0
// Two shared libraries that are opened with RTLD_LOCAL and contain Coxswain each: they use one thread for a device, or
// the second is refused with a sentence (L1).

#include <dlfcn.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

using RunTask = unsigned long (*)(char* why, std::size_t size);

RunTask open_module(const char* file) {
  void* const module = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  void* const symbol = module != nullptr ? dlsym(module, "run_task") : nullptr;
  if (symbol == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::exit(10);
  }
  return reinterpret_cast<RunTask>(symbol);
}

void check(bool condition, int code, const char* why) {
  if (condition) return;
  std::fprintf(stderr, "%s\n", why);
  std::exit(code);
}

}  // namespace

int main() {
  const RunTask first = open_module(COX_MODULE_A);
  const RunTask second = open_module(COX_MODULE_B);
  std::array<char, 1024> why{};
  const unsigned long thread = first(why.data(), why.size());
  check(thread != 0, 1, why.data());
  const unsigned long other = second(why.data(), why.size());
#ifdef COX_ONE_COPY
  check(other == thread, 2, "the modules have a thread each");
#else
  check(other == 0, 3, "the second module was not refused");
  check(std::string(why.data()).find(COX_MODULE_A " contains its own copy of Coxswain") != std::string::npos, 4,
        why.data());
#endif
  check(first(why.data(), why.size()) == thread, 5, why.data());
  return 0;
}
