#include <coxswain/perf/recovery/journal.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <new>
#include <stdexcept>
#include <system_error>

namespace cox::perf {
namespace {

int checked(int result, const char* call) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), call);
  return result;
}

}  // namespace

std::chrono::nanoseconds monotonic_time() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

Journal::Journal() {
  std::array<int, 2> ends{};
  checked(pipe(ends.data()), "pipe");
  read_ = ends[0];
  write_ = ends[1];
  checked(fcntl(read_, F_SETFD, FD_CLOEXEC), "fcntl");
  checked(fcntl(read_, F_SETFL, O_NONBLOCK), "fcntl");
  memory_ = checked(memfd_create("book", 0), "memfd_create");
  checked(ftruncate(memory_, sizeof(Book)), "ftruncate");
  map();
  new (book_) Book();
}

Journal::Journal(const std::string& descriptors) {
  if (std::sscanf(descriptors.c_str(), "%d,%d", &write_, &memory_) != 2)
    throw std::invalid_argument("'" + descriptors + "' are no descriptors of a journal");
  map();
}

Journal::~Journal() {
  munmap(book_, sizeof(Book));
  for (const int descriptor : {read_, write_, memory_})
    if (descriptor >= 0) close(descriptor);
}

void Journal::map() {
  void* const mapped = mmap(nullptr, sizeof(Book), PROT_READ | PROT_WRITE, MAP_SHARED, memory_, 0);
  if (mapped == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
  book_ = static_cast<Book*>(mapped);
}

std::string Journal::descriptors() const { return std::to_string(write_) + "," + std::to_string(memory_); }

void Journal::report(Moment moment, std::uint32_t state, std::uint64_t lost) const noexcept {
  const Report report{.moment = moment, .state = state, .process = getpid(), .time = monotonic_time(), .lost = lost};
  static_cast<void>(!write(write_, &report, sizeof(report)));  // less than PIPE_BUF, so it is not split
}

bool Journal::take(Report& report) const {
  const ssize_t taken = read(read_, &report, sizeof(report));
  if (taken == static_cast<ssize_t>(sizeof(report))) return true;
  if (taken < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  throw std::runtime_error("the pipe of the journal is damaged");
}

}  // namespace cox::perf
