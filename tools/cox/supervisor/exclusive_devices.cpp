#include <coxswain/tools/cox/supervisor/exclusive_devices.hpp>

#include <coxswain/runtime/socket/file_descriptor.hpp>
#include <coxswain/servers/cuda/device/cuda_devices.hpp>
#include <coxswain/tools/cox/device_list.hpp>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <exception>
#include <system_error>

namespace cox::tools {
namespace {

#ifdef COX_HAS_CUDA
std::string found_here() try {
  std::string found;
  for (const DeviceId device : enumerate_cuda_devices())
    if (describe_cuda_device(device).use == CudaDeviceFacts::Use::OneProcess)
      found += (found.empty() ? "" : ", ") + device_name(device);
  return found;
} catch (const std::exception&) {  // no usable driver: the program will report it
  return {};
}
#else
std::string found_here() { return {}; }
#endif

}  // namespace

std::string exclusive_devices() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
  FileDescriptor read_end(ends[0]);
  FileDescriptor write_end(ends[1]);
  const pid_t child = fork();
  if (child < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (child == 0) {
    const std::string found = found_here();
    static_cast<void>(!write(write_end.get(), found.data(), found.size()));
    _exit(0);
  }
  write_end.reset();
  std::string found;
  std::array<char, 256> part{};
  for (ssize_t size = 0; (size = read(read_end.get(), part.data(), part.size())) != 0;) {
    if (size > 0) found.append(part.data(), static_cast<std::size_t>(size));
    if (size < 0 && errno != EINTR) break;
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    throw std::system_error(ECHILD, std::generic_category(), "the process that asks the CUDA driver has failed");
  return found;
}

}  // namespace cox::tools
